package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/e2e/cluster/node/oci"
)

// ShellImage has busybox: sh and what scripts call. Its programs do not find
// hosts by name: the static C library cannot.
func ShellImage(names ...string) (oci.Image, error) {
	out, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return oci.Image{}, fmt.Errorf("list what busybox does: %w", err)
	}
	files := []oci.File{
		{Path: busybox, Mode: 0o755, Source: busybox},
		{Path: "/tmp", Mode: os.ModeDir | os.ModeSticky | 0o777},
		{Path: "/root", Mode: os.ModeDir | 0o700},
		{Path: "/etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\n")},
		{Path: "/etc/group", Mode: 0o644, Data: []byte("root:x:0:\n")},
	}
	for applet := range strings.FieldsSeq(string(out)) {
		if applet != "busybox" {
			files = append(files, oci.File{Path: "/bin/" + applet, Link: "busybox"})
		}
	}
	return oci.Image{Names: names, Layers: [][]oci.File{files}, Cmd: []string{"sh"}}, nil
}

// TrainyardImage is the shell's, with the program of this source tree, which is
// built into a directory.
func TrainyardImage(ctx context.Context, dir string, names ...string) (oci.Image, error) {
	image, err := ShellImage(names...)
	if err != nil {
		return image, err
	}
	program := filepath.Join(dir, "trainyard")
	source, err := sourceDir(ctx)
	if err != nil {
		return image, err
	}
	_, err = goCommand(ctx, filepath.Dir(source), nil, append(flags(), "-ldflags", "-s -w", "-o", program, "github.com/trainyard/trainyard/cmd/trainyard")...)
	if err != nil {
		return image, err
	}
	image.Layers = append(image.Layers, []oci.File{{Path: "/usr/local/bin/trainyard", Mode: 0o755, Source: program}})
	return image, nil
}

// LoadShell brings the shell's image to the node.
func (n *Node) LoadShell(t testing.TB, names ...string) {
	t.Helper()
	image, err := ShellImage(names...)
	if err != nil {
		t.Fatal(err)
	}
	n.load(t, image)
}

// LoadTrainyard brings the program's image to the node.
func (n *Node) LoadTrainyard(t testing.TB, names ...string) {
	t.Helper()
	image, err := TrainyardImage(t.Context(), t.TempDir(), names...)
	if err != nil {
		t.Fatal(err)
	}
	n.load(t, image)
}

func (n *Node) load(t testing.TB, image oci.Image) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := image.WriteFile(archive); err != nil {
		t.Fatal(err)
	}
	n.LoadImage(t, archive)
}
