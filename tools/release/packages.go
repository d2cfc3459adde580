package main

import (
	"bytes"
	"compress/gzip"
	"embed"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"github.com/seamark/seamark/tools/build"
)

// scripts contains the scripts that dpkg and rpm run.
//
//go:embed scripts
var scripts embed.FS

// maintainer is where users of the packages report defects: the project has no address for mail.
const maintainer = "Seamark (https://github.com/seamark/seamark/issues)"

// newPackage returns the package in a format, deb or rpm, with the files of the archive for
// p, a platform with Linux.
func newPackage(r build.Release, p v1.Platform, format string, archived []build.File) (artifact, error) {
	// nfpm reads contents and scripts from files.
	directory, err := os.MkdirTemp("", "package")
	if err != nil {
		return artifact{}, err
	}
	defer os.RemoveAll(directory)

	if err := os.CopyFS(directory, scripts); err != nil {
		return artifact{}, err
	}

	info := nfpm.WithDefaults(&nfpm.Info{
		Name:        "seamark",
		Arch:        p.Architecture + strings.TrimPrefix(p.Variant, "v"),
		Platform:    "linux",
		Version:     r.Version,
		Release:     "1",
		Section:     "net",
		Priority:    "optional",
		Maintainer:  maintainer,
		Description: "DNS server for Kubernetes clusters\nIt answers queries for the names of a cluster, which it reads from the API server or\nfrom a folder of manifests, and forwards and caches all others.",
		Homepage:    "https://github.com/seamark/seamark",
		License:     "Apache-2.0",
		MTime:       r.Date,
		Overridables: nfpm.Overridables{
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(directory, "scripts/postinstall.sh"),
				PreRemove:   filepath.Join(directory, "scripts/preremove.sh"),
				PostRemove:  filepath.Join(directory, "scripts/postremove.sh"),
			},
			RPM: nfpm.RPM{BuildHost: "localhost", Summary: "DNS server for Kubernetes clusters"},
		},
	})

	for _, f := range archived {
		target, kind := installed(f.Path, format)
		if strings.HasPrefix(target, "/usr/share/man/") {
			if f.Data, err = compress(f.Data); err != nil {
				return artifact{}, err
			}
		}

		source := filepath.Join(directory, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return artifact{}, err
		}
		if err := os.WriteFile(source, f.Data, f.Mode()); err != nil {
			return artifact{}, err
		}

		info.Contents = append(info.Contents, &files.Content{
			Source: source, Destination: target, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.Mode(), MTime: r.Date},
		})
	}

	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return artifact{}, err
	}

	packager, err := nfpm.Get(format)
	if err != nil {
		return artifact{}, err
	}

	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return artifact{}, err
	}
	return artifact{packager.ConventionalFileName(info), out.Bytes()}, nil
}

// installed returns where a file of the archive is installed, and its type for nfpm.
func installed(name, format string) (target, kind string) {
	base := path.Base(name)
	switch path.Dir(name) {
	case "man1", "man7":
		return "/usr/share/man/" + name + ".gz", files.TypeFile
	case "completions":
		switch {
		case base == "seamark":
			return "/usr/share/bash-completion/completions/seamark", files.TypeFile
		case base == "seamark.fish":
			return "/usr/share/fish/vendor_completions.d/seamark.fish", files.TypeFile
		case format == "deb":
			return "/usr/share/zsh/vendor-completions/_seamark", files.TypeFile
		}
		return "/usr/share/zsh/site-functions/_seamark", files.TypeFile
	case "systemd":
		if strings.HasPrefix(base, "Corefile") {
			return "/etc/seamark/" + base, files.TypeConfigNoReplace
		}
		return "/usr/lib/systemd/system/" + base, files.TypeFile
	}

	switch {
	case name == "seamark":
		return "/usr/bin/seamark", files.TypeFile
	case name == "LICENSE" && format == "deb":
		return "/usr/share/doc/seamark/copyright", files.TypeFile
	}
	return "/usr/share/doc/seamark/" + name, files.TypeFile
}

// compress returns data in gzip's format.
func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
