package cluster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Build returns the path of the control plane's program, and builds it first if
// the user's cache lacks it: in about six minutes on two cores, with a line on
// progress every ten seconds. Of several processes that ask, one builds.
func Build(ctx context.Context, progress io.Writer) (program string, err error) {
	source, err := sourceFolder()
	if err != nil {
		return "", err
	}
	key, err := digest(source)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("a place for the control plane's program: %w", err)
	}
	cache = filepath.Join(cache, "trainyard", "cluster")
	program = filepath.Join(cache, key, "controlplane")
	if built(program) {
		return program, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(cache, "lock"), progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(program) {
		return program, nil
	}
	return program, compileInto(ctx, source, cache, key, progress)
}

// sourceFolder is the folder of the control plane's module, from any folder of
// this one: tests run in their package's.
func sourceFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		found := filepath.Join(at, "e2e", "cluster", "controlplane")
		if _, err := os.Stat(filepath.Join(found, "go.mod")); err == nil {
			return found, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no e2e/cluster/controlplane above %s: the control plane is built from a checkout of Trainyard", dir)
		}
	}
}

// digest names what is built: by its source, the versions it is built from, and
// the compiler.
func digest(source string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum")) {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(name), len(text), text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:10]), nil
}

// built says whether a program is there, and that it is in use. A folder gets
// its name when all is in it.
func built(program string) bool {
	now := time.Now()
	return os.Chtimes(program, now, now) == nil
}

// lock waits until no other process builds.
func lock(ctx context.Context, name string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
		}
		if !said {
			fmt.Fprintln(progress, "control plane: another process builds it; waiting")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// compileInto makes the folder key of the cache, under another name until all
// is in it, and removes what was left by builds that were killed, and programs
// that nobody has asked for in a month.
func compileInto(ctx context.Context, source, cache, key string, progress io.Writer) error {
	const unfinished = "unfinished-"
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, e := range entries {
		used, err := os.Stat(filepath.Join(cache, e.Name(), "controlplane"))
		old := err == nil && time.Since(used.ModTime()) > 30*24*time.Hour
		if old || strings.HasPrefix(e.Name(), unfinished) {
			if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
				return err
			}
		}
	}
	dir, err := os.MkdirTemp(cache, unfinished)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := compile(ctx, source, filepath.Join(dir, "controlplane"), progress); err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	return os.Rename(dir, filepath.Join(cache, key))
}

func compile(ctx context.Context, source, out string, progress io.Writer) error {
	began := time.Now()
	fmt.Fprintln(progress, "control plane: building it, once: about six minutes on two cores, of which a few for 600 MB of modules")
	needed, err := goCommand(ctx, source, progress, "modules", "list", "-deps", "-f", "{{.ImportPath}}", ".")
	if err != nil {
		return err
	}
	stamps, err := versions(ctx, source, progress)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("of at most %d packages compiled", len(needed))
	if _, err := goCommand(ctx, source, progress, what, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"+stamps, "-o", out, "."); err != nil {
		return err
	}
	fmt.Fprintf(progress, "control plane: built in %s\n", time.Since(began).Round(time.Second))
	return nil
}

// versions are the linker's flags for what the programs say of themselves.
// Without them it is no version that clients can read.
func versions(ctx context.Context, source string, progress io.Writer) (string, error) {
	found, err := goCommand(ctx, source, progress, "modules", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes", "sigs.k8s.io/kwok")
	if err != nil {
		return "", err
	}
	if len(found) != 2 {
		return "", fmt.Errorf("versions of kubernetes and kwok: found %q", found)
	}
	numbers := strings.Split(found[0], ".")
	flags := " -X sigs.k8s.io/kwok/pkg/consts.Version=" + found[1]
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s -X %[1]s.gitTreeState=clean -X %[1]s.buildDate=1970-01-01T00:00:00Z", p, found[0], numbers[1])
	}
	return flags, nil
}

// goCommand runs Go in the module's folder, counts the lines that it says on
// progress, and returns those of its output.
func goCommand(ctx context.Context, source string, progress io.Writer, what string, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOOS=", "GOARCH=")
	var out strings.Builder
	cmd.Stdout = &out
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	last, n := time.Now(), 0
	var errs []string
	for lines := bufio.NewScanner(said); lines.Scan(); {
		n++
		if errs = append(errs, lines.Text()); len(errs) > 20 {
			errs = errs[1:]
		}
		if time.Since(last) > 10*time.Second {
			fmt.Fprintf(progress, "control plane: %d %s\n", n, what)
			last = time.Now()
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, strings.Join(errs, "\n"))
	}
	return strings.Fields(out.String()), nil
}
