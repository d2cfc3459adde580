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

// readFiles returns the files below directory that match patterns.
func readFiles(directory string, patterns ...string) (files []build.File, err error) {
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
			files = append(files, build.File{Path: filepath.ToSlash(relative), Data: data})
		}
	}
	return files, nil
}

// platformFiles builds the server for p and returns the files of the archive: the
// files of manual, the server, and documents about it.
func platformFiles(r build.Release, p v1.Platform, manual []build.File) ([]build.File, error) {
	server, notices, modules, err := r.Server(p)
	if err != nil {
		return nil, err
	}
	documents, err := readFiles(r.Source, "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE")
	if err != nil {
		return nil, err
	}
	if p.OS == "windows" {
		server.Path = "seamark.exe"
	}
	files := append([]build.File{server, notices, modules}, documents...)
	if p.OS == "linux" {
		units, err := readFiles(filepath.Join(r.Source, "deploy"), "systemd/*")
		if err != nil {
			return nil, err
		}
		files = append(files, units...)
	}
	return append(files, manual...), nil
}

// writeTarGzip is writeTar with compression.
func writeTarGzip(w io.Writer, directory string, files []build.File, date time.Time) error {
	compressed := gzip.NewWriter(w)
	if err := writeTar(compressed, directory, files, date); err != nil {
		return err
	}
	return compressed.Close()
}

// writeTar writes an archive with files below directory. Every time in it is date.
func writeTar(w io.Writer, directory string, files []build.File, date time.Time) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(directory, f.Path), Size: int64(len(f.Data)),
			Mode: int64(f.Mode()), ModTime: date}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(f.Data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeZip is like writeTarGzip for an archive that Windows can open.
func writeZip(w io.Writer, directory string, files []build.File, date time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: path.Join(directory, f.Path), Method: zip.Deflate, Modified: date}
		h.SetMode(f.Mode())
		out, err := archive.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := out.Write(f.Data); err != nil {
			return err
		}
	}
	return archive.Close()
}
