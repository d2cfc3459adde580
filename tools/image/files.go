package main

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/seamark/seamark/tools/build"
	"golang.org/x/crypto/x509roots/fallback/bundle"
	"golang.org/x/sys/unix"
)

// files builds the server for p and returns the files of its image.
func (r release) files(p v1.Platform) ([]build.File, error) {
	server, notices, modules, err := r.Server(p)
	if err != nil {
		return nil, err
	}
	server.Capability = netBindService()
	notices.Path = "usr/share/doc/seamark/NOTICES"
	modules.Path = "usr/share/sbom/seamark.spdx.json"
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return []build.File{{Path: "etc/ssl/certs/ca-certificates.crt", Data: roots.Bytes()}, server, notices, modules}, nil
}

// netBindService returns the attribute that setcap cap_net_bind_service=+ep writes
// (linux/capability.h, vfs_cap_data, revision 2, effective). Runtimes that do not lower
// net.ipv4.ip_unprivileged_port_start need it for port 53.
func netBindService() []byte {
	const revision2, effective, number = 0x02000000, 1, 10
	attribute := make([]byte, 20)
	binary.LittleEndian.PutUint32(attribute, revision2|effective)
	binary.LittleEndian.PutUint32(attribute[4:], 1<<number)
	return attribute
}

// newLayer returns a layer with files. Every time in it is date.
func newLayer(files []build.File, date time.Time) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	written := map[string]bool{".": true}
	for _, f := range files {
		if err := addDirectory(w, path.Dir(f.Path), date, written); err != nil {
			return nil, err
		}

		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: int64(len(f.Data)), Mode: int64(f.Mode()),
			ModTime: date, Format: tar.FormatPAX}
		if f.Capability != nil {
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": string(f.Capability)}
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}

	if err := w.Close(); err != nil {
		return nil, err
	}

	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(out.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// addDirectory adds an entry for directory, after its parents, unless there is one.
func addDirectory(w *tar.Writer, directory string, date time.Time, written map[string]bool) error {
	if written[directory] {
		return nil
	}
	written[directory] = true
	if err := addDirectory(w, path.Dir(directory), date, written); err != nil {
		return err
	}
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory + "/", Mode: 0o755, ModTime: date,
		Format: tar.FormatPAX})
}

// writeDirectory writes files below root, as the Dockerfile copies them. It needs the
// right to set file capabilities.
func writeDirectory(root string, files []build.File) error {
	for _, f := range files {
		target := filepath.Join(root, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, f.Data, f.Mode()); err != nil {
			return err
		}
		if f.Capability == nil {
			continue
		}
		if err := unix.Setxattr(target, "security.capability", f.Capability, 0); err != nil {
			return fmt.Errorf("setting the file capability of %s, which needs root: %w", target, err)
		}
	}
	return nil
}
