// Command release builds the files of a release: for each platform an archive with the
// server, its manual pages and completions, for Linux a Debian and an RPM package too, the
// Helm chart, and the checksums of all. It needs no network once Go has the modules. Two runs for one
// commit write the same bytes.
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	output := f.String("output", "dist", "directory for the files; it is replaced")
	list := f.String("platforms", platforms, "platforms, separated by commas")
	if err := build.Parse(f, args); err != nil {
		return err
	}
	targets, err := build.Platforms(*list)
	if err != nil {
		return fmt.Errorf("-platforms: %w", err)
	}
	return build.Replace(*output, func(directory string) error { return write(r, directory, targets) })
}

// write builds the release for targets into directory.
func write(r build.Release, directory string, targets []v1.Platform) error {
	manual, err := manualFiles(r)
	if err != nil {
		return err
	}

	var sums strings.Builder
	save := func(a artifact) error {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(a.data), a.name)
		return os.WriteFile(filepath.Join(directory, a.name), a.data, 0o644)
	}

	chart, err := newChart(r)
	if err != nil {
		return fmt.Errorf("the Helm chart: %w", err)
	}
	if err := save(chart); err != nil {
		return err
	}

	for i, p := range targets {
		fmt.Fprintf(os.Stderr, "release: %s, %d of %d\n", p, i+1, len(targets))
		built, err := artifacts(r, p, manual)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for _, a := range built {
			if err := save(a); err != nil {
				return err
			}
		}
	}

	return os.WriteFile(filepath.Join(directory, "SHA256SUMS"), []byte(sums.String()), 0o644)
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

	archive := writeTar
	base, suffix := fmt.Sprintf("seamark_%s_%s_%s%s", r.Version, p.OS, p.Architecture, p.Variant), ".tar.gz"
	if p.OS == "windows" {
		archive, suffix = writeZip, ".zip"
	}

	var out bytes.Buffer
	if err := archive(&out, base, files, r.Date); err != nil {
		return nil, err
	}

	all := []artifact{{base + suffix, out.Bytes()}}
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
