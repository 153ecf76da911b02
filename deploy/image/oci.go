package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// image is an OCI image layout, of which one tar is made: what it is made of,
// each under the hash of its bytes.
type image struct {
	digest string // of the manifest, which names the image
	blobs  []blob
	index  []byte // index.json of OCI
	docker []byte // manifest.json, for docker before it knew of OCI
}

type blob struct {
	digest string
	bytes  []byte
}

// The documents of the OCI image specification, as far as they are used here.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        *descriptor  `json:"config,omitempty"`
		Layers        []descriptor `json:"layers,omitempty"`
		Manifests     []descriptor `json:"manifests,omitempty"` // of an index
	}
	configuration struct {
		platform
		Created time.Time `json:"created"`
		Config  process   `json:"config"`
		RootFS  rootFS    `json:"rootfs"`
	}
	process struct {
		User       string
		Env        []string
		Entrypoint []string
		WorkingDir string
		Labels     map[string]string
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	dockerManifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// epoch is the time of everything.
var epoch = time.Unix(0, 0).UTC()

// newImage makes an image of layers.
func newImage(p platform, name reference, layers [][]file) (*image, error) {
	im := &image{}
	m := manifest{SchemaVersion: 2, MediaType: typeManifest}
	c := configuration{platform: p, Created: epoch, RootFS: rootFS{Type: "layers"}, Config: process{
		User: fmt.Sprintf("%d:%d", user, user), Env: []string{"PATH=/usr/local/bin"}, Entrypoint: []string{start}, WorkingDir: home,
		Labels: map[string]string{
			"org.opencontainers.image.title":    "trainyard",
			"org.opencontainers.image.source":   "https://github.com/trainyard/trainyard",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}}
	old := dockerManifest{RepoTags: []string{name.String()}}
	for _, files := range layers {
		plain, packed, err := pack(files)
		if err != nil {
			return nil, fmt.Errorf("pack layer: %w", err)
		}
		layer := im.add(typeLayer, packed)
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, hash(plain))
		m.Layers, old.Layers = append(m.Layers, layer), append(old.Layers, blobName(layer.Digest))
	}
	config, err := im.addJSON(typeConfig, c)
	if err != nil {
		return nil, err
	}
	m.Config, old.Config = &config, blobName(config.Digest)
	top, err := im.addJSON(typeManifest, m)
	if err != nil {
		return nil, err
	}
	top.Platform = &p
	top.Annotations = map[string]string{"io.containerd.image.name": name.String(), "org.opencontainers.image.ref.name": name.tag}
	im.digest = top.Digest
	if im.index, err = json.Marshal(manifest{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}}); err != nil {
		return nil, err
	}
	im.docker, err = json.Marshal([]dockerManifest{old})
	return im, err
}

func (im *image) add(mediaType string, b []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: hash(b), Size: len(b)}
	im.blobs = append(im.blobs, blob{digest: d.Digest, bytes: b})
	return d
}

func (im *image) addJSON(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return im.add(mediaType, b), nil
}

// write writes the layout as one tar.
func (im *image) write(w io.Writer) error {
	files := []file{
		{name: "oci-layout", mode: 0o644, text: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", mode: 0o644, text: im.index},
		{name: "manifest.json", mode: 0o644, text: im.docker},
	}
	for _, b := range im.blobs {
		files = append(files, file{name: blobName(b.digest), mode: 0o644, text: b.bytes})
	}
	return writeTar(w, files)
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// blobName is where a layout keeps the bytes of a digest.
func blobName(digest string) string { return "blobs/sha256/" + digest[len("sha256:"):] }

// pack makes a layer: a tar, and the same compressed.
func pack(files []file) (plain, packed []byte, err error) {
	var t, z bytes.Buffer
	if err := writeTar(&t, files); err != nil {
		return nil, nil, err
	}
	w := gzip.NewWriter(&z) // its header has neither name nor time
	if _, err := w.Write(t.Bytes()); err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	return t.Bytes(), z.Bytes(), nil
}

func writeTar(w io.Writer, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: int64(f.mode.Perm()), Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)), ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.mode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, f.name+"/"
		}
		if f.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := t.Write(f.text); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return t.Close()
}
