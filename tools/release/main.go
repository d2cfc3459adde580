// Command release builds the files of a release: for each platform an archive with the
// server, its manual pages and completions, and its list of modules; for Linux a Debian and an
// RPM package and the container image, too; the Helm chart for a repository and for a registry; the
// manifest of the kubectl plugin, the notes, the checksums and the provenance of all. It needs no
// network once Go has the modules. Two runs for one commit write the same bytes.
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/seamark/seamark/tools/build"
)

// platforms are the platforms of the image, macOS and Windows.
const platforms = "linux/amd64,linux/arm64,linux/arm/v7,linux/ppc64le,linux/s390x,linux/riscv64," +
	"darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func main() {
	build.Main("release", run)
}

func run(args []string) error {
	var r build.Release
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	r.Flags(f)
	var b builder
	f.StringVar(&b.id, "builder", project+"/tree/main/tools/release", "URI of the builder, for the provenance")
	f.StringVar(&b.invocation, "invocation", "", "URI of this run of the builder, for the provenance")
	output := f.String("output", "dist", "directory for the files; it is replaced")
	list := f.String("platforms", platforms, "platforms, separated by commas")
	if err := build.Parse(f, args); err != nil {
		return err
	}
	targets, err := build.Platforms(*list)
	if err != nil {
		return fmt.Errorf("-platforms: %w", err)
	}
	return build.Replace(*output, func(directory string) error { return write(r, b, directory, targets) })
}

// write builds the release for targets into directory.
func write(r build.Release, b builder, directory string, targets []v1.Platform) error {
	fmt.Fprintln(os.Stderr, "release: the manual pages and completions")
	manual, err := manualFiles(r)
	if err != nil {
		return err
	}

	var sums strings.Builder
	var subjects []subject
	save := func(a artifact) error {
		sum := fmt.Sprintf("%x", sha256.Sum256(a.data))
		fmt.Fprintf(&sums, "%s  %s\n", sum, a.name)
		subjects = append(subjects, subject{Name: a.name, Digest: map[string]string{"sha256": sum}})
		return os.WriteFile(filepath.Join(directory, a.name), a.data, 0o644)
	}

	archives := map[string]artifact{}
	for i, p := range targets {
		fmt.Fprintf(os.Stderr, "release: %s, %d of %d\n", p, i+1, len(targets))
		built, err := artifacts(r, p, manual)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		archives[p.String()] = built[0]
		for _, a := range built {
			if err := save(a); err != nil {
				return err
			}
		}
	}

	fmt.Fprintln(os.Stderr, "release: the image, the chart, the plugin and the provenance")
	others, images, err := shared(r, archives, targets)
	if err != nil {
		return err
	}
	for _, a := range others {
		if err := save(a); err != nil {
			return err
		}
	}

	// Images have no file with their digest: their signatures are about the digest itself.
	subjects = append(subjects, images...)
	p, err := newProvenance(r, b, targets, subjects)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(directory, p.name), p.data, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// shared returns the files of the release that are not of one platform, and the image and the chart
// as a registry names them.
func shared(r build.Release, archives map[string]artifact, targets []v1.Platform) (all []artifact, images []subject, err error) {
	c, err := newChart(r)
	if err != nil {
		return nil, nil, fmt.Errorf("the Helm chart: %w", err)
	}
	index, err := newIndex(r, c)
	if err != nil {
		return nil, nil, fmt.Errorf("the chart's repository: %w", err)
	}
	layout, chartDigest, err := newChartLayout(r, c)
	if err != nil {
		return nil, nil, fmt.Errorf("the chart for registries: %w", err)
	}

	image, imageDigest, err := newImage(r, targets)
	if err != nil {
		return nil, nil, fmt.Errorf("the image: %w", err)
	}

	manifest, err := newPlugin(r, archives, targets)
	if err != nil {
		return nil, nil, fmt.Errorf("the kubectl plugin: %w", err)
	}
	notes, err := newNotes(r)
	if err != nil {
		return nil, nil, err
	}

	var digests strings.Builder
	for name, digest := range map[string]v1.Hash{"seamark": imageDigest, "charts/seamark": chartDigest} {
		images = append(images, subject{Name: name, Digest: map[string]string{digest.Algorithm: digest.Hex}})
	}
	slices.SortFunc(images, func(a, b subject) int { return strings.Compare(b.Name, a.Name) })
	for _, s := range images {
		fmt.Fprintf(&digests, "%s@sha256:%s\n", s.Name, s.Digest["sha256"])
	}

	all = []artifact{c.artifact, index, layout, image, manifest, notes, {"images.txt", []byte(digests.String())}}
	return all, images, nil
}

// manualFiles returns the manual pages and the completions.
func manualFiles(r build.Release) (manual []build.File, err error) {
	directory, err := os.MkdirTemp("", "manual")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	if err := r.Go(nil, "run", "./cmd/manual", "-output", directory, "-version", r.Version, "-date",
		r.Date.Format(time.RFC3339)); err != nil {
		return nil, err
	}
	return readFiles(directory, "man1/*", "man7/*", "completions/*")
}

// An artifact is a file of the release.
type artifact struct {
	name string
	data []byte
}

// artifacts builds the server for p and returns the archive and the packages with it.
func artifacts(r build.Release, p v1.Platform, manual []build.File) ([]artifact, error) {
	files, err := platformFiles(r, p, manual)
	if err != nil {
		return nil, err
	}

	archive := writeTarGzip
	base, suffix := fmt.Sprintf("seamark_%s_%s_%s%s", r.Version, p.OS, p.Architecture, p.Variant), ".tar.gz"
	if p.OS == "windows" {
		archive, suffix = writeZip, ".zip"
	}

	var out bytes.Buffer
	if err := archive(&out, base, files, r.Date); err != nil {
		return nil, err
	}

	// The list of modules is for scanners, which need not unpack the archive.
	modules := files[slices.IndexFunc(files, func(f build.File) bool { return path.Ext(f.Path) == ".json" })]
	all := []artifact{{base + suffix, out.Bytes()}, {base + ".spdx.json", modules.Data}}
	if p.OS != "linux" {
		return all, nil
	}

	for _, format := range []string{"deb", "rpm"} {
		a, err := newPackage(r, p, format, files)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", format, err)
		}
		all = append(all, a)
	}
	return all, nil
}
