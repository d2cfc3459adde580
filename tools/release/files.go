package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/seamark/seamark/tools/build"
)

// A file is an entry of an archive.
type file struct {
	path       string // with slashes
	data       []byte
	executable bool
}

func (f file) mode() os.FileMode {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// readFiles returns the files below directory that match patterns.
func readFiles(directory string, patterns ...string) (files []file, err error) {
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(directory, pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			relative, err := filepath.Rel(directory, name)
			if err != nil {
				return nil, err
			}
			files = append(files, file{path: filepath.ToSlash(relative), data: data})
		}
	}
	return files, nil
}

// platformFiles builds the server for p and returns the files of the archive: those of
// manual, the server, and documents about it.
func platformFiles(r build.Release, p v1.Platform, manual []file) ([]file, error) {
	binary, err := r.Binary(p)
	if err != nil {
		return nil, err
	}
	modules, err := r.SPDX(binary)
	if err != nil {
		return nil, err
	}
	notices, err := r.Notices(binary)
	if err != nil {
		return nil, err
	}
	documents, err := readFiles(r.Source, "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE")
	if err != nil {
		return nil, err
	}
	server := file{path: "seamark", data: binary, executable: true}
	if p.OS == "windows" {
		server.path = "seamark.exe"
	}
	files := append([]file{server}, documents...)
	files = append(files, file{path: "NOTICES", data: notices}, file{path: "seamark.spdx.json", data: modules})
	if p.OS == "linux" {
		units, err := readFiles(filepath.Join(r.Source, "deploy"), "systemd/*")
		if err != nil {
			return nil, err
		}
		files = append(files, units...)
	}
	return append(files, manual...), nil
}

// writeTar writes a compressed archive with files below directory. Every time in it is
// date.
func writeTar(w io.Writer, directory string, files []file, date time.Time) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(directory, f.path), Size: int64(len(f.data)), Mode: int64(f.mode()), ModTime: date}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

// writeZip is like writeTar for an archive that Windows can open.
func writeZip(w io.Writer, directory string, files []file, date time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: path.Join(directory, f.path), Method: zip.Deflate, Modified: date}
		h.SetMode(f.mode())
		out, err := archive.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := out.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}
