package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/miekg/dns"
	"github.com/seamark/seamark/tools/build"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"golang.org/x/sys/unix"
)

// emulators are the programs of Debian's qemu-user-static, by architecture.
var emulators = map[string]string{
	"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static", "arm": "qemu-arm-static",
	"ppc64le": "qemu-ppc64le-static", "s390x": "qemu-s390x-static", "riscv64": "qemu-riscv64-static",
}

var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM,
	"ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "riscv64": elf.EM_RISCV,
}

// TestImage builds the image of all platforms twice, compares the bytes, unpacks the
// first one, and sends the README's query to each binary.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	first, second := filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "image")
	for _, output := range []string{first, second} {
		err := run([]string{"-source", source, "-version", "1.2.3-test", "-commit", "c0ffee", "-date", "2026-11-22T21:00:00Z", "-pgo", "off", "-output", output})
		if err != nil {
			t.Fatal(err)
		}
	}
	if a, b := sums(t, first), sums(t, second); !reflect.DeepEqual(a, b) {
		t.Errorf("two builds differ: got\n%v\nand\n%v", a, b)
	}

	index, err := layout.ImageIndexFromPath(filepath.Join(first, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the OCI layout: %v", err)
	}
	outer, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(outer.Manifests) != 1 {
		t.Fatalf("the OCI layout: got %d manifests, want an index", len(outer.Manifests))
	}
	index, err = index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range manifest.Manifests {
		found = append(found, m.Platform.String())
		t.Run(strings.ReplaceAll(m.Platform.String(), "/", "-"), func(t *testing.T) {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			checkConfig(t, image, *m.Platform)
			root := unpack(t, image)
			checkFiles(t, root, *m.Platform)
			checkArchive(t, first, image, *m.Platform)
			checkAnswer(t, root, filepath.Join(source, "examples"), *m.Platform)
		})
	}
	if got := strings.Join(found, ","); got != platforms {
		t.Errorf("platforms: got %s, want %s", got, platforms)
	}
}

// sums returns the checksums of the files below directory.
func sums(t *testing.T, directory string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(directory), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(directory, path))
		all[path] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func checkConfig(t *testing.T, image v1.Image, p v1.Platform) {
	t.Helper()
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := v1.Platform.String(v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}); got != p.String() {
		t.Errorf("platform of the configuration: got %s, want %s", got, p)
	}
	if c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/seamark"}) {
		t.Errorf("got user %s and entrypoint %q, want 65532:65532 and /seamark", c.Config.User, c.Config.Entrypoint)
	}
	for key, want := range map[string]string{"version": "1.2.3-test", "revision": "c0ffee", "created": "2026-11-22T21:00:00Z", "licenses": "Apache-2.0"} {
		if got := c.Config.Labels["org.opencontainers.image."+key]; got != want {
			t.Errorf("label %s: got %q, want %q", key, got, want)
		}
	}
}

// unpack writes the files of image to a directory, with their extended attributes if
// the user may set them, and returns the directory.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for archive := tar.NewReader(r); ; {
			h, err := archive.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(time.Date(2026, 11, 22, 21, 0, 0, 0, time.UTC)) {
				t.Errorf("%s: got owner %d:%d and time %v, want 0:0 and that of the commit", h.Name, h.Uid, h.Gid, h.ModTime)
			}
			target := filepath.Join(root, filepath.FromSlash(h.Name))
			if h.Typeflag == tar.TypeDir {
				if err := os.Mkdir(target, h.FileInfo().Mode()); err != nil {
					t.Fatal(err)
				}
				continue
			}
			data, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(target, data, h.FileInfo().Mode()); err != nil {
				t.Fatal(err)
			}
			attribute := h.PAXRecords["SCHILY.xattr.security.capability"]
			if (attribute != "") != (h.Name == "seamark") {
				t.Errorf("%s: got capability %x", h.Name, attribute)
			}
			if attribute != "" && os.Getuid() == 0 {
				if err := unix.Setxattr(target, "security.capability", []byte(attribute), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
					t.Fatal(err)
				}
			}
		}
	}
	return root
}

func checkFiles(t *testing.T, root string, p v1.Platform) {
	t.Helper()
	binary, err := elf.Open(filepath.Join(root, "seamark"))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if binary.Machine != machines[p.Architecture] {
		t.Errorf("machine of the binary: got %v, want %v", binary.Machine, machines[p.Architecture])
	}
	for _, segment := range binary.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is not static: it has a segment %v", segment.Type)
		}
	}
	roots, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(roots) {
		t.Errorf("the root certificates: got %.100q, want PEM", roots)
	}
	notices, err := os.ReadFile(filepath.Join(root, "usr/share/doc/seamark/NOTICES"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(notices, []byte("k8s.io/client-go: LICENSE")) {
		t.Errorf("NOTICES: got %.300q, want licenses of the modules", notices)
	}
	text, err := os.ReadFile(filepath.Join(root, "usr/share/sbom/seamark.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document v2_3.Document
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var modules []string
	for _, m := range document.Packages {
		modules = append(modules, m.PackageName)
		if m.PackageLicenseDeclared == "NOASSERTION" {
			t.Errorf("SPDX document: no license of %s", m.PackageName)
		}
	}
	for _, want := range []string{"github.com/seamark/seamark", "stdlib", "k8s.io/client-go"} {
		if !slices.Contains(modules, want) {
			t.Errorf("SPDX document: got packages %q, want %s too", modules, want)
		}
	}
}

// checkArchive checks that the archive for docker load has the same configuration and
// the same layers as image.
func checkArchive(t *testing.T, directory string, image v1.Image, p v1.Platform) {
	t.Helper()
	tag, err := name.NewTag("seamark.local/seamark:1.2.3-test")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := tarball.ImageFromPath(filepath.Join(directory, "seamark-"+strings.ReplaceAll(p.String(), "/", "-")+".tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	got, err := archive.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want, err := image.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("configuration in the archive: got\n%s\nwant\n%s", got, want)
	}
	if err := validate.Image(archive); err != nil {
		t.Errorf("the archive: %v", err)
	}
}

// checkAnswer runs the binary of a root directory and sends it the README's query over
// UDP and TCP. A binary of another platform runs under qemu-user.
func checkAnswer(t *testing.T, root, examples string, p v1.Platform) {
	t.Helper()
	command := []string{filepath.Join(root, "seamark")}
	if p.Architecture != runtime.GOARCH {
		emulator, err := exec.LookPath(emulators[p.Architecture])
		if err != nil {
			t.Skipf("%v: install Debian's package qemu-user-static, or run make programs as root", err)
		}
		command = append([]string{emulator}, command...)
	}
	address := freeAddress(t)
	serve(t, exec.Command(command[0], append(command[1:], "serve", "--manifests", examples, "--listen", address)...), address)
}

// TestImageRestricted runs the image of this machine's platform in a root directory of its
// own, as user 65532 who may not write there. It serves port 53 with the capability of
// the file alone.
func TestImageRestricted(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, for chroot and file capabilities")
	}
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := release{Release: build.Release{Source: source, Version: "1.2.3-test", Date: time.Date(2026, 11, 22, 21, 0, 0, 0, time.UTC), PGO: "off"}}
	image, err := r.image(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	root := unpack(t, image)
	directory := t.TempDir() // as the Dockerfile makes it
	if err := run([]string{"-source", source, "-version", r.Version, "-date", "2026-11-22T21:00:00Z", "-pgo", "off", "-platforms", "linux/" + runtime.GOARCH, "-root", directory}); err != nil {
		t.Fatal(err)
	}
	if got, want := sums(t, directory), sums(t, root); !reflect.DeepEqual(got, want) {
		t.Errorf("-root wrote %v, want the files of the image: %v", got, want)
	}
	if err := os.CopyFS(filepath.Join(root, "examples"), os.DirFS(filepath.Join(source, "examples"))); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.77.%d.%d:53", rand.IntN(256), 1+rand.IntN(254)) // another run may serve at the same time
	if l, err := net.Listen("tcp", address); err != nil {
		t.Skipf("%s is not free: %v", address, err)
	} else {
		_ = l.Close()
	}
	serve(t, chrooted(root, address), address)
}

// chrooted returns the command that serves from root as user 65532.
func chrooted(root, address string) *exec.Cmd {
	c := exec.Command("/seamark", "serve", "--manifests", "/examples", "--listen", address)
	c.Dir, c.Env = "/", []string{"HOME=/"}
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	return c
}

// serve starts c, queries address until it answers, and ends c.
func serve(t *testing.T, c *exec.Cmd, address string) {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	query := new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA)
	deadline := time.Now().Add(2 * time.Minute)
	var exited error
	for _, network := range []string{"udp", "tcp"} {
		client := dns.Client{Net: network, Timeout: 5 * time.Second}
		for {
			reply, _, err := client.Exchange(query, address)
			if err == nil && reply.Rcode == dns.RcodeSuccess {
				if got := fmt.Sprint(reply.Answer); !strings.Contains(got, "\t10.96.10.10]") {
					t.Errorf("%s %s A over %s: got %s, want 10.96.10.10", address, query.Question[0].Name, network, got)
				}
				break
			}
			select {
			case exited = <-ended:
				t.Fatalf("%s ended: %v\n%s", c, exited, out.String())
			case <-time.After(100 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: no answer over %s: %v", c, network, err)
				break
			}
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%s after SIGTERM: %v\n%s", c, err, out.String())
		}
	case <-time.After(time.Minute):
		_ = c.Process.Kill()
		<-ended
		t.Errorf("%s did not end after SIGTERM:\n%s", c, out.String())
	}
}

// freeAddress returns a loopback address with a port that no other process has.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
