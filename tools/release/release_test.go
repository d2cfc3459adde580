package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/pe"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/seamark/seamark/tools/build"
)

var date = time.Date(2026, 11, 22, 21, 0, 0, 0, time.UTC)

// repository returns the root directory of the repository.
func repository(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// architecture returns the architecture of this machine, which must be one of the releases'.
func architecture(t *testing.T) string {
	t.Helper()
	if !slices.Contains(strings.Split(platforms, ","), "linux/"+runtime.GOARCH) {
		t.Skipf("releases have no linux/%s", runtime.GOARCH)
	}
	return runtime.GOARCH
}

// TestRelease builds a release for three systems twice, compares the bytes, and reads the
// archives and the packages.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	source := repository(t)
	native := architecture(t)
	first, second := filepath.Join(t.TempDir(), "dist"), filepath.Join(t.TempDir(), "dist")
	for i, output := range []string{first, second} {
		if i == 1 { // settings for other programs of the machine change no bytes
			t.Setenv("GOAMD64", "v3")
			t.Setenv("GOARM64", "v9.0")
			t.Setenv("GOFIPS140", "latest")
			t.Setenv("GOFLAGS", "-tags=netgo,osusergo")
		}
		if err := run([]string{"-source", source, "-output", output, "-version", "1.2.3-rc.1", "-commit", "c0ffee",
			"-date", date.Format(time.RFC3339), "-pgo", "off", "-platforms", "linux/" + native + ",darwin/arm64,windows/amd64",
			"-builder", "https://builder.example"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := exec.Command("diff", "--recursive", first, second).Run(); err != nil {
		t.Errorf("two builds differ: %v", err)
	}
	checkSums(t, first)

	base := "seamark_1.2.3-rc.1_linux_" + native
	files := readTar(t, filepath.Join(first, base+".tar.gz"))
	for _, want := range []string{
		"seamark", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "NOTICES", "seamark.spdx.json",
		"man1/seamark.1", "man1/seamark-check.1", "man7/seamark-kubernetes.7",
		"completions/seamark", "completions/_seamark", "completions/seamark.fish",
		"systemd/seamark.service", "systemd/seamark.socket", "systemd/Corefile",
		"systemd/seamark-node.service", "systemd/Corefile.node",
	} {
		if len(files[path.Join(base, want)]) == 0 {
			t.Errorf("%s.tar.gz: no %s, or it is empty", base, want)
		}
	}
	for _, want := range []string{"Go, golang.org/x/sys: LICENSE", "k8s.io/client-go: LICENSE", "Apache License", "MIT License"} {
		if !bytes.Contains(files[base+"/NOTICES"], []byte(want)) {
			t.Errorf("NOTICES: no %q", want)
		}
	}
	checkBinary(t, files[base+"/seamark"])
	if readTar(t, filepath.Join(first, "seamark_1.2.3-rc.1_darwin_arm64.tar.gz"))["seamark_1.2.3-rc.1_darwin_arm64/seamark"] == nil {
		t.Error("the archive for darwin/arm64 has no server")
	}
	checkZip(t, filepath.Join(first, "seamark_1.2.3-rc.1_windows_amd64.zip"))
	checkRPM(t, first)
	checkChart(t, filepath.Join(first, "seamark-1.2.3-rc.1.tgz"))
	checkProvenance(t, first)
	checkPlugin(t, first, base)
	checkIndex(t, first)
	t.Run("Verification", func(t *testing.T) { checkVerification(t, source, first, second) })
}

// checkChart loads the packaged chart as helm does, and renders it with its default values
// for a registry.
func checkChart(t *testing.T, name string) {
	t.Helper()
	chart, err := loader.LoadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := chart.Metadata; got.Version != "1.2.3-rc.1" || got.AppVersion != "1.2.3-rc.1" {
		t.Errorf("%s: got version %s and appVersion %s, want 1.2.3-rc.1", name, got.Version, got.AppVersion)
	}
	values, err := util.ToRenderValues(chart, map[string]any{"image": map[string]any{"repository": "registry.example/seamark"}},
		common.ReleaseOptions{Name: "seamark", Namespace: "kube-system"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	if got := rendered["seamark/templates/deployment.yaml"]; !strings.Contains(got, `image: "registry.example/seamark:1.2.3-rc.1"`) {
		t.Errorf("%s: the image of the Deployment is not that of the release:\n%s", name, got)
	}
}

// checkSums compares the checksums with the files of directory.
func checkSums(t *testing.T, directory string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(directory, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines != 15 || len(entries) != 17 {
		t.Errorf("got %d files and %d checksums, want 17 and 15", len(entries), lines)
	}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sum {
			t.Errorf("SHA256SUMS of %s: got %s, want %s", name, sum, got)
		}
	}
}

// readTar returns the files of an archive by name.
func readTar(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	compressed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(compressed); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(date) || h.Uid != 0 {
			t.Errorf("%s: got time %v and owner %d, want that of the commit and 0", h.Name, h.ModTime, h.Uid)
		}
		if files[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// checkBinary runs the binary for its version.
func checkBinary(t *testing.T, binary []byte) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "seamark")
	if err := os.WriteFile(name, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(name, "version", "--output", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"version": "1.2.3-rc.1"`, `"commit": "c0ffee"`, `"date": "2026-11-22T21:00:00Z"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("seamark version: got %s, want %s", out, want)
		}
	}
}

func checkZip(t *testing.T, name string) {
	t.Helper()
	archive, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	f, err := archive.Open(strings.TrimSuffix(filepath.Base(name), ".zip") + "/seamark.exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	program, err := pe.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if program.Machine != pe.IMAGE_FILE_MACHINE_AMD64 {
		t.Errorf("machine of seamark.exe: got %x, want amd64", program.Machine)
	}
}

// checkRPM installs the RPM package into an empty directory with rpm.
func checkRPM(t *testing.T, directory string) {
	t.Helper()
	_, err := exec.LookPath("rpm")
	if err != nil && os.Getenv("SEAMARK_TEST_COMPLETE") != "" {
		t.Fatal(err)
	}
	if err != nil || os.Getuid() != 0 {
		t.Logf("the RPM package was not installed: that needs rpm and root")
		return
	}
	packages, err := filepath.Glob(filepath.Join(directory, "*.rpm"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("got RPM packages %q, want one", packages)
	}
	root := t.TempDir()
	out, err := exec.Command("rpm", "--root", root, "--install", "--nodeps", "--noscripts", packages[0]).CombinedOutput()
	if err != nil {
		t.Fatalf("rpm --install: %v\n%s", err, out)
	}
	for _, want := range []string{"usr/bin/seamark", "usr/lib/systemd/system/seamark.service", "etc/seamark/Corefile", "usr/share/man/man7/seamark-health.7.gz"} {
		if _, err := os.Stat(filepath.Join(root, want)); err != nil {
			t.Errorf("the RPM package: %v", err)
		}
	}
	out, err = exec.Command("rpm", "--root", root, "--query", "--scripts", "--configfiles", "seamark").CombinedOutput()
	if err != nil {
		t.Fatalf("rpm --query: %v\n%s", err, out)
	}
	for _, want := range []string{"postinstall scriptlet", "preuninstall scriptlet", "postuninstall scriptlet", "/etc/seamark/Corefile"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("rpm --query: no %q in\n%s", want, out)
		}
	}
}

// The error about an image with several manifests, or none, has their number.
func TestLayoutArchiveManifests(t *testing.T) {
	index := []build.File{{Path: "index.json", Data: []byte(`{"manifests":[]}`)}}
	_, _, err := layoutArchive("image.tar", index, date)
	if want := "image.tar: want an index.json with one manifest: it has 0"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
