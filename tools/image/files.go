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
	"golang.org/x/crypto/x509roots/fallback/bundle"
	"golang.org/x/sys/unix"
)

// A file is one of an image. Its owner is root, and no other user may write to it.
type file struct {
	path       string // without a slash at its start
	data       []byte
	executable bool
	capability []byte // value of the extended attribute security.capability; nil for none
}

// files builds the server for p and returns the files of its image.
func (r release) files(p v1.Platform) ([]file, error) {
	binary, err := r.Binary(p)
	if err != nil {
		return nil, err
	}
	document, err := r.SPDX(binary)
	if err != nil {
		return nil, err
	}
	notices, err := r.Notices(binary)
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return []file{
		{path: "etc/ssl/certs/ca-certificates.crt", data: roots.Bytes()},
		{path: "seamark", data: binary, executable: true, capability: netBindService()},
		{path: "usr/share/doc/seamark/NOTICES", data: notices},
		{path: "usr/share/sbom/seamark.spdx.json", data: document},
	}, nil
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
func newLayer(files []file, date time.Time) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	written := map[string]bool{".": true}
	for _, f := range files {
		if err := addDirectory(w, path.Dir(f.path), date, written); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(f.data)), Mode: int64(f.mode()), ModTime: date, Format: tar.FormatPAX}
		if f.capability != nil {
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": string(f.capability)}
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
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
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory + "/", Mode: 0o755, ModTime: date, Format: tar.FormatPAX})
}

func (f file) mode() os.FileMode {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// writeDirectory writes files below root, as the Dockerfile copies them. It needs the
// right to set file capabilities.
func writeDirectory(root string, files []file) error {
	for _, f := range files {
		target := filepath.Join(root, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, f.data, f.mode()); err != nil {
			return err
		}
		if f.capability == nil {
			continue
		}
		if err := unix.Setxattr(target, "security.capability", f.capability, 0); err != nil {
			return fmt.Errorf("setting the file capability of %s, which needs root: %w", target, err)
		}
	}
	return nil
}
