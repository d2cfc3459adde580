// Command image builds Seamark's container image for several platforms, without a
// container daemon and without a network: a static binary with the file capability for
// port 53, the root certificates of Mozilla's program, and an SPDX document. Two runs
// for one commit write the same bytes.
//
// It writes the directory oci, an OCI image layout with an index of all platforms, and
// for each platform an archive that docker load and kind load accept.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/seamark/seamark/tools/build"
)

// platforms are the platforms of the images that kubeadm installs.
const platforms = "linux/amd64,linux/arm64,linux/arm/v7,linux/ppc64le,linux/s390x,linux/riscv64"

// A release describes the build of an image.
type release struct {
	build.Release
	tag string // of the archives
}

func main() {
	build.Main("image", run)
}

func run(args []string) error {
	var r release
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	r.Flags(f)
	f.StringVar(&r.tag, "tag", "", "name of the image in the archives (default: seamark.local/seamark:VERSION)")
	output := f.String("output", "bin/image", "directory for the layout and the archives; it is replaced")
	list := f.String("platforms", platforms, "platforms, separated by commas")
	root := f.String("root", "", "write the files of the first platform's image to this directory, and no image")

	if err := build.Parse(f, args); err != nil {
		return err
	}
	if r.tag == "" {
		r.tag = "seamark.local/seamark:" + strings.ReplaceAll(r.Version, "+", "-")
	}

	targets, err := build.Platforms(*list)
	if err != nil {
		return fmt.Errorf("-platforms: %w", err)
	}

	if *root != "" {
		files, err := r.files(targets[0])
		if err != nil {
			return err
		}
		return writeDirectory(*root, files)
	}
	return build.Replace(*output, func(directory string) error { return r.write(directory, targets) })
}

// write builds the images of platforms into directory.
func (r release) write(directory string, platforms []v1.Platform) error {
	tag, err := name.NewTag(r.tag)
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}

	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, p := range platforms {
		fmt.Fprintf(os.Stderr, "image: %s, %d of %d\n", p, i+1, len(platforms))
		image, err := r.image(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &p}})
		archive := filepath.Join(directory, "seamark-"+strings.ReplaceAll(p.String(), "/", "-")+".tar")
		if err := tarball.WriteToFile(archive, tag, image); err != nil {
			return err
		}
	}

	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	oci := filepath.Join(directory, "oci")
	if err := os.Mkdir(oci, 0o755); err != nil {
		return err
	}

	path, err := layout.Write(oci, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.Version}))
}

// image returns the image of one platform.
func (r release) image(p v1.Platform) (v1.Image, error) {
	files, err := r.files(p)
	if err != nil {
		return nil, err
	}
	layer, err := newLayer(files, r.Date)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:     layer,
		MediaType: types.OCILayer,
		History:   v1.History{Created: v1.Time{Time: r.Date}, CreatedBy: "make image"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.config(image, p))
}

// config returns the configuration of image.
func (r release) config(image v1.Image, p v1.Platform) *v1.ConfigFile {
	c, err := image.ConfigFile()
	if err != nil {
		panic(err) // the image was made above
	}
	c = c.DeepCopy()
	c.Created, c.OS, c.Architecture, c.Variant = v1.Time{Time: r.Date}, p.OS, p.Architecture, p.Variant
	c.Config = v1.Config{
		User:       "65532:65532",
		Entrypoint: []string{"/seamark"},
		WorkingDir: "/",
		Labels:     r.labels(),
		ExposedPorts: map[string]struct{}{
			"53/udp": {}, "53/tcp": {}, "8080/tcp": {}, "8181/tcp": {}, "9153/tcp": {},
		},
	}
	return c
}

// labels returns the labels of an image, which are also the annotations of the index.
func (r release) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "Seamark",
		"org.opencontainers.image.description": "DNS server for Kubernetes clusters",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     r.Version,
		"org.opencontainers.image.created":     r.Date.UTC().Format(time.RFC3339),
	}
	if r.Commit != "" {
		labels["org.opencontainers.image.revision"] = r.Commit
	}
	return labels
}
