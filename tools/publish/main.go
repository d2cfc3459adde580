// Command publish pushes what make release has built for registries: the container image and the
// Helm chart, from the archives of their OCI layouts. It writes no signature: make sign does, by
// the digests, which are the same in every registry.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/seamark/seamark/tools/build"
)

func main() {
	build.Main("publish", run)
}

func run(args []string) error {
	f := flag.NewFlagSet("publish", flag.ContinueOnError)
	dist := f.String("dist", "dist", "directory that make release has written")
	registry := f.String("registry", "", "registry, and the path in it, below which the image is seamark and the chart is charts/seamark")
	version := f.String("version", "", "version of the release, which is the tag")
	predicate := f.String("predicate", "", "file to write the predicate of the provenance to, which cosign attests images with")
	if err := build.Parse(f, args); err != nil {
		return err
	}
	if *registry == "" || *version == "" {
		return errors.New("want -registry and -version")
	}

	// Semantic versions may have a plus sign, tags may not; Helm replaces it in the same way.
	tag := strings.ReplaceAll(*version, "+", "_")
	for _, a := range []struct{ archive, repository string }{
		{"seamark_" + *version + "_image.oci.tar", "seamark"},
		{"seamark_" + *version + "_chart.oci.tar", "charts/seamark"},
	} {
		reference := fmt.Sprintf("%s/%s:%s", *registry, a.repository, tag)
		digest, err := push(filepath.Join(*dist, a.archive), reference)
		if err != nil {
			return fmt.Errorf("%s: %w", a.archive, err)
		}
		fmt.Printf("%s@%s\n", reference, digest)
	}

	if *predicate == "" {
		return nil
	}
	return writePredicate(filepath.Join(*dist, "provenance.intoto.json"), *predicate)
}

// writePredicate writes the predicate of a statement, byte by byte, to another file.
func writePredicate(statement, file string) error {
	data, err := os.ReadFile(statement)
	if err != nil {
		return err
	}
	var s struct{ Predicate json.RawMessage }
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return os.WriteFile(file, s.Predicate, 0o644)
}

// push pushes the only image, or index of images, of a layout, and returns its digest.
func push(archive, reference string) (v1.Hash, error) {
	tag, err := name.NewTag(reference)
	if err != nil {
		return v1.Hash{}, err
	}

	directory, err := os.MkdirTemp("", "layout")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(directory)
	if err := unpack(archive, directory); err != nil {
		return v1.Hash{}, err
	}

	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		return v1.Hash{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	if len(manifest.Manifests) != 1 {
		return v1.Hash{}, fmt.Errorf("got %d manifests, want 1", len(manifest.Manifests))
	}

	found := manifest.Manifests[0]
	login := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if found.MediaType.IsIndex() {
		images, err := index.ImageIndex(found.Digest)
		if err != nil {
			return v1.Hash{}, err
		}
		return found.Digest, remote.WriteIndex(tag, images, login)
	}

	image, err := index.Image(found.Digest)
	if err != nil {
		return v1.Hash{}, err
	}
	return found.Digest, remote.Write(tag, image, login)
}

// unpack writes the files of an archive into directory.
func unpack(archive, directory string) error {
	data, err := os.ReadFile(archive)
	if err != nil {
		return err
	}

	// A name that leads out of the directory is an error of os.Root.
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()

	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := root.WriteFile(h.Name, content, 0o644); err != nil {
			return err
		}
	}
}
