package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func image(source string) Image {
	return Image{
		Names:        []string{"localhost/a:1", "example/b:2"},
		Architecture: "arm64",
		Layers: [][]File{
			{{Path: "/usr/bin/tool", Mode: 0o755, Source: source}, {Path: "/bin", Link: "usr/bin"}, {Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777}},
			{{Path: "/home/me/.profile", Mode: 0o600, UID: 65532, GID: 65533, Data: []byte("x")}},
		},
		Entrypoint: []string{"/usr/bin/tool"},
		User:       "65532",
	}
}

func write(t *testing.T, i Image) []byte {
	var out bytes.Buffer
	require.NoError(t, i.Write(&out))
	return out.Bytes()
}

type entry struct {
	header *tar.Header
	data   []byte
}

func unpack(t *testing.T, archive []byte) (names []string, entries map[string]entry) {
	entries = map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, entries
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		names = append(names, h.Name)
		entries[h.Name] = entry{h, data}
	}
}

// TestSameBytes: neither the clock, nor the order of the files, nor the times
// and modes of a source are seen.
func TestSameBytes(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	require.NoError(t, os.WriteFile(first, []byte("program"), 0o600))
	require.NoError(t, os.WriteFile(second, []byte("program"), 0o755))
	require.NoError(t, os.Chtimes(second, time.Unix(1, 0), time.Unix(1, 0)))
	a, b := image(first), image(second)
	slices.Reverse(b.Layers[0])
	assert.Equal(t, write(t, a), write(t, b))

	require.NoError(t, os.WriteFile(second, []byte("another"), 0o755))
	assert.NotEqual(t, write(t, a), write(t, b))
}

func TestLayout(t *testing.T) {
	source := filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(source, []byte("program"), 0o600))
	_, outer := unpack(t, write(t, image(source)))
	var index struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(outer["index.json"].data, &index))
	require.Len(t, index.Manifests, 2)
	assert.Equal(t, "example/b:2", index.Manifests[1].Annotations["io.containerd.image.name"])
	assert.Equal(t, "2", index.Manifests[1].Annotations["org.opencontainers.image.ref.name"])
	assert.Equal(t, "arm64", index.Manifests[0].Platform["architecture"])

	read := func(d descriptor, into any) []byte {
		blob := outer["blobs/sha256/"+d.Digest[len("sha256:"):]].data
		require.Len(t, blob, d.Size)
		if into != nil {
			require.NoError(t, json.Unmarshal(blob, into))
		}
		return blob
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(index.Manifests[0], &manifest)
	var config struct {
		Config struct{ Env, Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(manifest.Config, &config)
	assert.Equal(t, []string{"/usr/bin/tool"}, config.Config.Entrypoint)
	assert.Contains(t, config.Config.Env[0], "PATH=")
	require.Len(t, manifest.Layers, 2)
	assert.Equal(t, []string{manifest.Layers[0].Digest, manifest.Layers[1].Digest}, config.RootFS.DiffIDs)

	names, layer := unpack(t, read(manifest.Layers[0], nil))
	assert.Equal(t, []string{"bin", "tmp/", "usr/", "usr/bin/", "usr/bin/tool"}, names)
	assert.Equal(t, "usr/bin", layer["bin"].header.Linkname)
	assert.EqualValues(t, 0o1777, layer["tmp/"].header.Mode)
	assert.EqualValues(t, 0o755, layer["usr/bin/tool"].header.Mode)
	assert.Equal(t, "program", string(layer["usr/bin/tool"].data))
	_, layer = unpack(t, read(manifest.Layers[1], nil))
	profile := layer["home/me/.profile"].header
	assert.Equal(t, []int{65532, 65533}, []int{profile.Uid, profile.Gid})
	assert.True(t, profile.ModTime.Equal(time.Unix(0, 0)))
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	broken := Image{Names: []string{"a"}, Layers: [][]File{{{Path: "/a", Source: filepath.Join(dir, "none")}}}}
	require.ErrorIs(t, broken.WriteFile(filepath.Join(dir, "i.tar")), fs.ErrNotExist)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "nothing is left of an image that could not be made")
	for _, p := range []string{"a", "/", ""} {
		assert.Error(t, Image{Layers: [][]File{{{Path: p}}}}.Write(io.Discard), "%q", p)
	}
	assert.Error(t, Image{Layers: [][]File{{{Path: "/a"}, {Path: "/./a"}}}}.Write(io.Discard))
}
