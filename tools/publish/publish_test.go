package main

import (
	"archive/tar"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestPublish pushes an index of two images and an image in the chart's place to a registry of this
// process, and finds both by the tag, with their digests and all their blobs.
func TestPublish(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")

	dist := t.TempDir()
	index, err := random.Index(1000, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	archive(t, filepath.Join(dist, "seamark_1.2.3+x_image.oci.tar"), func(p layout.Path) error { return p.AppendIndex(index) })
	archive(t, filepath.Join(dist, "seamark_1.2.3+x_chart.oci.tar"), func(p layout.Path) error { return p.AppendImage(image) })
	statement := `{"subject": [], "predicate": {"buildDefinition": {}}}`
	if err := os.WriteFile(filepath.Join(dist, "provenance.intoto.json"), []byte(statement), 0o644); err != nil {
		t.Fatal(err)
	}

	predicate := filepath.Join(t.TempDir(), "predicate.json")
	if err := run([]string{"-dist", dist, "-registry", address + "/project", "-version", "1.2.3+x", "-predicate", predicate}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(predicate); string(got) != `{"buildDefinition": {}}` {
		t.Errorf("predicate: got %s and error %v, want that of the statement", got, err)
	}

	for repository, want := range map[string]interface{ Digest() (v1.Hash, error) }{"seamark": index, "charts/seamark": image} {
		tag, err := name.ParseReference(address + "/project/" + repository + ":1.2.3_x")
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Get(tag)
		if err != nil {
			t.Errorf("%s: %v", tag, err)
			continue
		}
		if digest, err := want.Digest(); got.Digest != digest || err != nil {
			t.Errorf("%s: got %s, want %s (error %v)", tag, got.Digest, digest, err)
		}
	}
}

// TestPublishArchiveOutside refuses an archive with a file outside of its directory.
func TestPublishArchiveOutside(t *testing.T) {
	file := filepath.Join(t.TempDir(), "layout.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := w.WriteHeader(&tar.Header{Name: "../outside", Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	directory := filepath.Join(t.TempDir(), "layout")
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	err = unpack(file, directory)
	if _, outside := os.Stat(filepath.Join(directory, "..", "outside")); err == nil || outside == nil {
		t.Errorf("a file ../outside: got error %v, and it is there: %t; want an error and no file", err, outside == nil)
	}
}

// archive writes an archive of a layout that fill fills.
func archive(t *testing.T, file string, fill func(layout.Path) error) {
	t.Helper()
	directory := t.TempDir()
	p, err := layout.Write(directory, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(p); err != nil {
		t.Fatal(err)
	}

	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
