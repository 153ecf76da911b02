package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const name = "docker.io/library/trainyard:test"

// entries reads a tar: headers in order, contents by name.
func entries(t *testing.T, r io.Reader) ([]*tar.Header, map[string][]byte) {
	t.Helper()
	var headers []*tar.Header
	texts := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err == io.EOF {
			return headers, texts
		}
		require.NoError(t, err)
		assert.True(t, h.ModTime.Equal(epoch), "%s: %s", h.Name, h.ModTime)
		assert.Empty(t, h.Uname+h.Gname)
		b, err := io.ReadAll(in)
		require.NoError(t, err)
		headers, texts[h.Name] = append(headers, h), b
	}
}

// TestImage builds the daemon's image twice, for the platform of this machine,
// and reads it as a container engine does.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	var built [2][]byte
	for i := range built {
		out := filepath.Join(dir, "bin", "trainyard.tar")
		said, err := run(t.Context(), out, "", name, "linux/"+runtime.GOARCH)
		require.NoError(t, err)
		assert.Contains(t, said, out+": "+name+"@sha256:")
		built[i], err = os.ReadFile(out)
		require.NoError(t, err)
		assert.Contains(t, string(built[i]), strings.TrimPrefix(said, out+": "+name+"@"), "the digest that it says is in the index")
	}
	assert.Equal(t, sha256.Sum256(built[0]), sha256.Sum256(built[1]))
	left, err := os.ReadDir(filepath.Join(dir, "bin"))
	require.NoError(t, err)
	assert.Len(t, left, 1)

	_, layout := entries(t, bytes.NewReader(built[0]))
	m, c := follow(t, layout)
	assert.Equal(t, "65532:65532", c.Config.User)
	assert.Equal(t, []string{start}, c.Config.Entrypoint)
	assert.Equal(t, platform{"linux", runtime.GOARCH}, c.platform)
	files := map[string]*tar.Header{}
	texts := map[string][]byte{}
	for i, l := range m.Layers {
		plain := unpacked(t, layout[blobName(l.Digest)])
		assert.Equal(t, c.RootFS.DiffIDs[i], hash(plain))
		headers, in := entries(t, bytes.NewReader(plain))
		for _, h := range headers {
			parent := filepath.Dir(strings.TrimSuffix(h.Name, "/"))
			assert.True(t, parent == "." || files[parent+"/"] != nil, "%s comes before its directory", h.Name)
			files[h.Name] = h
			texts[h.Name] = in[h.Name]
		}
	}
	assert.EqualValues(t, 0o1777, files["tmp/"].Mode)
	assert.EqualValues(t, 0o755, files[start[1:]].Mode)
	assert.Equal(t, user, files[home[1:]+"/"].Uid)
	assert.Contains(t, string(texts["etc/passwd"]), "\ntrainyard:x:65532:65532:")
	assert.True(t, x509.NewCertPool().AppendCertsFromPEM(texts["etc/ssl/certs/ca-certificates.crt"]))
	assert.Greater(t, bytes.Count(texts["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN")), 80)
	static(t, texts[start[1:]])
}

// follow goes from the index to the image, checking each digest, and sees that
// both ways to read the layout lead to the same one.
func follow(t *testing.T, layout map[string][]byte) (manifest, configuration) {
	t.Helper()
	assert.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, string(layout["oci-layout"]))
	for file, b := range layout {
		if want, ok := strings.CutPrefix(file, "blobs/sha256/"); ok {
			sum := sha256.Sum256(b)
			assert.Equal(t, want, hex.EncodeToString(sum[:]))
		}
	}
	var index, m manifest
	var c configuration
	read := func(d descriptor, v any) {
		b := layout[blobName(d.Digest)]
		require.Len(t, b, d.Size)
		require.NoError(t, json.Unmarshal(b, v))
	}
	require.NoError(t, json.Unmarshal(layout["index.json"], &index))
	require.Len(t, index.Manifests, 1)
	assert.Equal(t, name, index.Manifests[0].Annotations["io.containerd.image.name"])
	read(index.Manifests[0], &m)
	read(*m.Config, &c)
	var docker []dockerManifest
	require.NoError(t, json.Unmarshal(layout["manifest.json"], &docker))
	assert.Equal(t, []string{name}, docker[0].RepoTags)
	assert.Equal(t, blobName(m.Config.Digest), docker[0].Config)
	for i, l := range m.Layers {
		assert.Equal(t, blobName(l.Digest), docker[0].Layers[i])
		assert.Len(t, layout[blobName(l.Digest)], l.Size)
	}
	return m, c
}

func unpacked(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	assert.True(t, z.ModTime.IsZero())
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	return plain
}

// static: nothing has to be there for it to start, and it does not know where
// it was built.
func static(t *testing.T, binary []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(binary))
	require.NoError(t, err)
	needs, err := f.ImportedLibraries()
	if err == nil {
		assert.Empty(t, needs)
	}
	for _, p := range f.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "asks for a dynamic linker")
	}
	here, err := filepath.Abs("../..")
	require.NoError(t, err)
	assert.NotContains(t, string(binary), here+"/")
}

// TestTree: the files for a Dockerfile are those of the image.
func TestTree(t *testing.T) {
	layers, err := contents([]byte("a program"))
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "image")
	for range 2 { // a second time over the first
		require.NoError(t, writeTree(dir, layers))
	}
	for _, layer := range layers {
		for _, f := range layer {
			info, err := os.Stat(filepath.Join(dir, f.name))
			require.NoError(t, err)
			assert.Equal(t, f.mode, info.Mode(), f.name)
			if !f.mode.IsDir() {
				b, err := fs.ReadFile(os.DirFS(dir), f.name)
				require.NoError(t, err)
				assert.Equal(t, f.text, b)
			}
		}
	}
}

// TestUsage: what cannot be built is refused before anything is built.
func TestUsage(t *testing.T) {
	for _, bad := range []string{"", "linux", "windows/amd64", "linux/s390x", "linux/amd64/v2"} {
		_, err := parsePlatform(bad)
		assert.ErrorContains(t, err, "-platform", bad)
	}
	for _, bad := range []string{"", "trainyard", "trainyard:dev", "ghcr.io/acme/trainyard", "localhost:5000/trainyard", "a/b:", "a/:b", "a/b:c@sha256:00", "a/b c:d"} {
		_, err := parseName(bad)
		assert.ErrorContains(t, err, "-name", bad)
	}
	ref, err := parseName("localhost:5000/trainyard:v1")
	require.NoError(t, err)
	assert.Equal(t, reference{"localhost:5000/trainyard", "v1"}, ref)
}
