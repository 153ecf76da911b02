package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/trainyard/trainyard/e2e/cluster/node/oci"
)

// Programs are what runs on a node beside Debian's containerd: paths of what
// Build made.
type Programs struct {
	Kubelet string
	CoreDNS string
	Init    string
	Pause   string // image of the pod sandbox
}

const pauseImage = "localhost/trainyard-pause:1"

func programs(dir string) Programs {
	return Programs{
		Kubelet: filepath.Join(dir, "kubelet"),
		CoreDNS: filepath.Join(dir, "coredns"),
		Init:    filepath.Join(dir, "init"),
		Pause:   filepath.Join(dir, "pause.tar"),
	}
}

// Build builds the programs from the Go module proxy, once: the result is kept
// in the user's cache directory under a digest of what it was built from. It
// takes minutes the first time, and says so on log.
func Build(ctx context.Context, log io.Writer) (Programs, error) {
	source, err := sourceDir(ctx)
	if err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	digest, err := digest(source)
	if err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	cache = filepath.Join(cache, "trainyard", "cluster")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	dir := filepath.Join(cache, "node-"+digest)
	lock, err := lockFile(filepath.Join(cache, "node.lock"), true)
	if err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	defer lock.Close()
	now := time.Now()
	if os.Chtimes(dir, now, now) == nil { // it is there, and in use
		return programs(dir), nil
	}
	if err := prune(cache, now); err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	fmt.Fprintln(log, "node: building kubelet and CoreDNS, once: half a minute after the control plane, else about four")
	work, err := os.MkdirTemp(cache, unfinished)
	if err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	defer os.RemoveAll(work)
	if err := build(ctx, source, work, log); err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	if err := os.Rename(work, dir); err != nil {
		return Programs{}, fmt.Errorf("build node: %w", err)
	}
	return programs(dir), nil
}

const unfinished = "node-unfinished-"

// prune removes what builds that were killed have left, and programs that
// nobody has asked for in a month. No other build runs.
func prune(cache string, now time.Time) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), "node-") {
			continue
		}
		if strings.HasPrefix(e.Name(), unfinished) || now.Sub(info.ModTime()) > 30*24*time.Hour {
			if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// sourceDir is where the module of the programs lies. Binaries built with
// -trimpath do not know where they come from; the go command does.
func sourceDir(ctx context.Context) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/trainyard/trainyard/e2e/cluster/node")
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of the programs: %w%s", err, stderr(err))
	}
	return filepath.Join(strings.TrimSpace(string(out)), "programs"), nil
}

// flags of every build: the same as the control plane's, so that both share
// what the go command caches.
func flags() []string { return []string{"build", "-trimpath", "-buildvcs=false"} }

// digest of everything that the programs depend on.
func digest(source string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, flags())
	err := fs.WalkDir(os.DirFS(source), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(text))
		sum.Write(text)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil))[:16], err
}

func build(ctx context.Context, source, dir string, log io.Writer) error {
	version, err := goCommand(ctx, source, nil, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	for _, p := range []struct{ name, of, ldflags string }{
		{"init", "./init", ""},
		{"pause", "./pause", ""},
		{"coredns", "./coredns", ""},
		{"kubelet", "k8s.io/kubernetes/cmd/kubelet", versionFlags(strings.TrimSpace(version))},
	} {
		fmt.Fprintln(log, "node: building", p.name)
		args := append(flags(), "-ldflags", "-s -w"+p.ldflags, "-o", filepath.Join(dir, p.name), p.of)
		if _, err := goCommand(ctx, source, log, args...); err != nil {
			return err
		}
	}
	return oci.Image{
		Names:      []string{pauseImage},
		Layers:     [][]oci.File{{{Path: "/pause", Mode: 0o755, Source: filepath.Join(dir, "pause")}}},
		Entrypoint: []string{"/pause"},
	}.WriteFile(programs(dir).Pause)
}

// versionFlags tell Kubernetes its version, which it takes from its own build
// scripts: without them others cannot read it.
func versionFlags(version string) string {
	var out strings.Builder
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		fmt.Fprintf(&out, " -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", p, version, major, minor)
		fmt.Fprintf(&out, " -X %[1]s.gitCommit=modproxy -X %[1]s.gitTreeState=clean -X %[1]s.buildDate=1970-01-01T00:00:00Z", p)
	}
	return out.String()
}

// goCommand runs go without cgo in a directory and returns what it prints. What
// it says while it works goes to log.
func goCommand(ctx context.Context, dir string, log io.Writer, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	var said bytes.Buffer
	cmd.Stderr = &said
	if log != nil {
		cmd.Stderr = io.MultiWriter(&said, log)
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, lastLines(said.String(), 20))
	}
	return string(out), nil
}

func stderr(err error) string {
	if e, ok := err.(*exec.ExitError); ok {
		return ": " + lastLines(string(e.Stderr), 20)
	}
	return ""
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
