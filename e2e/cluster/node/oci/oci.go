// Package oci writes container images: a file list in, an OCI image layout as a
// tar archive out. The same files give the same bytes, on every machine and by
// every user. It needs no Docker, no registry and no network, and never runs
// what it packs.
package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// File is an entry of a layer: a regular file with Data or the content of the
// file Source, a symbolic link if Link is set, a directory if Mode says so.
// Directories on the way to a file need not be listed.
type File struct {
	Path   string // absolute, slash-separated
	Mode   fs.FileMode
	UID    int
	GID    int
	Data   []byte
	Source string
	Link   string
}

// Image is what to write. The layers lie on each other, the last on top.
type Image struct {
	Names        []string // full, as in localhost/pause:1
	Architecture string   // as Go calls it; empty: this machine's
	Layers       [][]File
	Env          []string // PATH is there if it is not given
	Entrypoint   []string
	Cmd          []string
	User         string // of the process: a UID or UID:GID; empty: root
	WorkingDir   string
}

// WriteFile makes the archive at a path, whole or not at all.
func (i Image) WriteFile(name string) error {
	out, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	defer os.Remove(out.Name())
	if err := cmp.Or(i.Write(out), out.Chmod(0o644), out.Close()); err != nil {
		out.Close()
		return fmt.Errorf("write image %s: %w", name, err)
	}
	return os.Rename(out.Name(), name)
}

// Write writes the archive. Layers are not compressed: they are read on the
// machine that made them.
func (i Image) Write(w io.Writer) error {
	a := archive{tar: tar.NewWriter(w), written: map[string]bool{}}
	a.add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	var layers []descriptor
	var diffs []string
	for _, files := range i.Layers {
		layer, err := pack(files)
		if err != nil {
			return err
		}
		d := a.blob("application/vnd.oci.image.layer.v1.tar", layer)
		layers, diffs = append(layers, d), append(diffs, d.Digest)
	}
	config := a.blob("application/vnd.oci.image.config.v1+json", i.config(diffs))
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest := a.blob(manifestType, encode(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": layers,
	}))
	index := map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
	var named []descriptor
	for _, name := range i.Names {
		d := manifest
		d.Platform = map[string]string{"architecture": i.arch(), "os": "linux"}
		d.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag(name)}
		named = append(named, d)
	}
	index["manifests"] = named
	a.add("index.json", encode(index))
	return cmp.Or(a.err, a.tar.Close())
}

func (i Image) arch() string { return cmp.Or(i.Architecture, runtime.GOARCH) }

func (i Image) config(diffs []string) []byte {
	env := i.Env
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
	}
	return encode(map[string]any{
		"architecture": i.arch(),
		"os":           "linux",
		"created":      "1970-01-01T00:00:00Z",
		"config": map[string]any{
			"Env": env, "Entrypoint": i.Entrypoint, "Cmd": i.Cmd, "User": i.User, "WorkingDir": cmp.Or(i.WorkingDir, "/"),
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
}

// descriptor names a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive is the outer tar file. The first error stays.
type archive struct {
	tar     *tar.Writer
	written map[string]bool
	err     error
}

func (a *archive) add(name string, content []byte) {
	if a.err != nil || a.written[name] {
		return
	}
	a.written[name] = true
	a.err = a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX})
	if a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

func (a *archive) blob(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	a.add("blobs/sha256/"+digest, content)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

// pack makes a layer: entries by path, parents before what lies in them, times
// all zero.
func pack(files []File) ([]byte, error) {
	entries := map[string]File{}
	for _, f := range files {
		clean := path.Clean(f.Path)
		if !path.IsAbs(clean) || clean == "/" {
			return nil, fmt.Errorf("layer: %q is no absolute path of a file", f.Path)
		}
		if _, twice := entries[clean]; twice {
			return nil, fmt.Errorf("layer: %s is there twice", clean)
		}
		entries[clean] = f
	}
	for _, f := range files {
		for dir := path.Dir(path.Clean(f.Path)); dir != "/"; dir = path.Dir(dir) {
			if _, listed := entries[dir]; !listed {
				entries[dir] = File{Mode: fs.ModeDir | 0o755}
			}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names) // a directory's name is a prefix of what lies in it, and so before it
	for _, name := range names {
		if err := writeEntry(w, name, entries[name]); err != nil {
			return nil, fmt.Errorf("layer: %s: %w", name, err)
		}
	}
	return out.Bytes(), w.Close()
}

func writeEntry(w *tar.Writer, name string, f File) error {
	h := &tar.Header{
		Name: name[1:], Mode: int64(f.Mode.Perm()), Uid: f.UID, Gid: f.GID, ModTime: time.Unix(0, 0), Format: tar.FormatPAX, Typeflag: tar.TypeReg,
	}
	if f.Mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	data := f.Data
	switch {
	case f.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case f.Source != "":
		var err error
		if data, err = os.ReadFile(f.Source); err != nil {
			return err
		}
	}
	h.Size = int64(len(data))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// tag is what follows the colon of an image's name.
func tag(name string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[i+1:]
	}
	return "latest"
}

// encode never fails: it is given maps of strings and numbers.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
