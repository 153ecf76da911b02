// Package demo shows the whole product on this machine: a repository, a push, a
// real distributed training, and the records that come back. It fakes nothing:
// what it prints was read from the daemon's records and from Git.
package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard/cmd/daemon"
	"github.com/trainyard/trainyard/examples"
	repo "github.com/trainyard/trainyard/repo-layout"
	"github.com/trainyard/trainyard/runner/local"
)

// Options of the demo.
type Options struct {
	Dir     string // where everything goes; it must be empty or absent
	Program string // the trainyard binary that jobs call
	Daemon  daemon.Options
	Out     io.Writer
}

// jobs that are pushed, by their place in package examples.
var jobs = []string{"hello/jobs/hello.yaml", "parameter-server/jobs/softmax.yaml", "retries/jobs/recovers.yaml"}

// Run plays the demo to its end, and returns the names of jobs that failed.
func Run(ctx context.Context, o Options) (failed []string, err error) {
	s := stage{Options: o, remote: filepath.Join(o.Dir, "repository.git"), checkout: filepath.Join(o.Dir, "checkout")}
	if err := s.set(ctx); err != nil {
		return nil, err
	}
	if failed, err = s.play(ctx); err != nil {
		return nil, err
	}
	return failed, s.show(ctx)
}

// stage is where the demo plays.
type stage struct {
	Options
	remote, checkout string
}

// set makes the repository and pushes the jobs.
func (s *stage) set(ctx context.Context) error {
	if entries, err := os.ReadDir(s.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("demo: %s is not empty", s.Dir)
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for _, args := range [][]string{
		{"init", "-q", "--bare", "-b", "main", s.remote},
		{"init", "-q", "-b", "main", s.checkout},
		{"-C", s.checkout, "remote", "add", "origin", s.remote},
	} {
		if _, err := s.git(ctx, args...); err != nil {
			return err
		}
	}
	for _, name := range jobs {
		b, err := examples.FS.ReadFile(name)
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		path := filepath.Join(s.checkout, repo.JobsDir, filepath.Base(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		fmt.Fprintf(s.Out, "  %s\n", filepath.Join("checkout", repo.JobsDir, filepath.Base(name)))
	}
	for _, args := range [][]string{{"add", "."}, {"commit", "-q", "-m", "three jobs"}, {"push", "-q", "origin", "main"}} {
		fmt.Fprintf(s.Out, "  $ git %s\n", strings.Join(args, " "))
		if _, err := s.git(ctx, append([]string{"-C", s.checkout}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// git runs git as nobody in particular: a user without a name set up can play too.
func (s *stage) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "user.name=Trainyard demo", "-c", "user.email=demo@trainyard.invalid", "-c", "commit.gpgsign=false"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("demo: git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// play runs the daemon until everything has come to rest, and shows what happens.
func (s *stage) play(ctx context.Context) ([]string, error) {
	o := s.Daemon
	o.Remote.URL, o.Branch, o.StatusBranch, o.Environment = s.remote, "main", repo.StatusBranch, repo.DefaultEnvironment
	o.StateDir, o.Once = filepath.Join(s.Dir, "state"), true
	path, err := s.programPath()
	if err != nil {
		return nil, err
	}
	o.Open = daemon.Local(o.Environment, local.Options{Environ: append(os.Environ(), "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"))})
	d, err := daemon.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(s.Out, "\nThe daemon starts: trainyard run --repo %s --once\n\n", s.remote)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	w := watcher{out: s.Out, start: time.Now(), lines: map[string]string{}}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-tick.C:
		}
		w.look(ctx, d)
	}
	failed, _ := d.Failed()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return failed, err
}

// programPath makes a directory in which the program is called trainyard.
func (s *stage) programPath() (string, error) {
	dir := filepath.Join(s.Dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	if err := os.Symlink(s.Program, filepath.Join(dir, "trainyard")); err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	return dir, nil
}

// show prints what came back.
func (s *stage) show(ctx context.Context) error {
	fmt.Fprintf(s.Out, "\nWhat a forge shows of branch %s:\n\n", repo.StatusBranch)
	dashboard, err := s.git(ctx, "-C", s.remote, "show", repo.StatusBranch+":README.md")
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s\n\nIts commits:\n\n", indent(dashboard))
	log, err := s.git(ctx, "-C", s.remote, "log", "--format=%h %s", repo.StatusBranch)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s\n\nEverything is in %s. Look around, for example:\n\n", indent(log), s.Dir)
	for _, command := range []string{
		"git -C " + s.remote + " show " + repo.StatusBranch + ":default/demo/softmax/status.yaml",
		"git -C " + s.remote + " show " + repo.StatusBranch + ":default/demo/softmax/README.md",
		"trainyard status --repo " + s.remote,
	} {
		fmt.Fprintf(s.Out, "  %s\n", command)
	}
	return nil
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}
