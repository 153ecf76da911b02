// Command image writes Trainyard's container image as a file, without a
// container engine: the daemon as one static binary, the certificates that
// Mozilla trusts, a user that is not root. It publishes nothing.
//
// The same commit gives the same bytes: no time, no path and no file of the
// machine gets into the image.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	out := flag.String("o", "trainyard.tar", "the `file` to write, for ctr image import, docker load and skopeo (oci-archive:)")
	name := flag.String("name", "docker.io/library/trainyard:dev", "what the image is called, with registry and tag")
	target := flag.String("platform", "linux/"+runtime.GOARCH, "linux/amd64 or linux/arm64")
	tree := flag.String("rootfs", "", "write the image's files into this directory instead, for a Dockerfile")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q is no flag", flag.Arg(0))
	}
	said, err := run(context.Background(), *out, *tree, *name, *target)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(said)
}

// run writes the image, or its files, and says what it wrote.
func run(ctx context.Context, out, tree, name, target string) (string, error) {
	p, err := parsePlatform(target)
	if err != nil {
		return "", err
	}
	ref, err := parseName(name)
	if err != nil {
		return "", err
	}
	binary, err := compile(ctx, p)
	if err != nil {
		return "", err
	}
	layers, err := contents(binary)
	if err != nil {
		return "", err
	}
	if tree != "" {
		return tree, writeTree(tree, layers)
	}
	image, err := newImage(p, ref, layers)
	if err != nil {
		return "", err
	}
	if err := publish(out, image); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %s@%s", out, ref, image.digest), nil
}

// publish puts a whole file in its place, or none.
func publish(name string, image *image) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f, err := os.CreateTemp(dir, ".image-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	err = errors.Join(image.write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
	}
	return nil
}

// platform is what the image runs on.
type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
}

func parsePlatform(s string) (platform, error) {
	system, arch, _ := strings.Cut(s, "/")
	if system != "linux" || arch != "amd64" && arch != "arm64" {
		return platform{}, fmt.Errorf("-platform: %q is neither linux/amd64 nor linux/arm64", s)
	}
	return platform{OS: system, Architecture: arch}, nil
}

// reference is an image's name in full.
type reference struct{ repository, tag string }

func (r reference) String() string { return r.repository + ":" + r.tag }

func parseName(s string) (reference, error) {
	slash, colon := strings.LastIndex(s, "/"), strings.LastIndex(s, ":")
	if slash <= 0 || colon < slash || colon == len(s)-1 || colon == slash+1 || strings.ContainsAny(s, " @\t\n") {
		return reference{}, fmt.Errorf("-name: %q is not of the form registry/name:tag", s)
	}
	return reference{repository: s[:colon], tag: s[colon+1:]}, nil
}

// compile builds the daemon for a platform, apart from the settings of whoever
// builds it. The version in it is that of the checkout, if it is one.
func compile(ctx context.Context, p platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "trainyard-image-")
	if err != nil {
		return nil, fmt.Errorf("make a directory to build in: %w", err)
	}
	defer os.RemoveAll(dir) // nothing in it is needed when that fails
	binary := filepath.Join(dir, "trainyard")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w", "-o", binary, daemon)
	build.Env = append(build.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOOS="+p.OS, "GOARCH="+p.Architecture, "GOAMD64=v1", "GOARM64=v8.0")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %s", cmp.Or(strings.TrimSpace(string(said)), err.Error()))
	}
	return os.ReadFile(binary)
}

const daemon = "github.com/trainyard/trainyard/cmd/trainyard"
