package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

// readFile returns the content of a file of directory.
func readFile(t *testing.T, directory, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(directory, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// sumOf returns what SHA256SUMS has for a file.
func sumOf(t *testing.T, directory, name string) string {
	t.Helper()
	for line := range strings.Lines(string(readFile(t, directory, "SHA256SUMS"))) {
		if sum, found, _ := strings.Cut(strings.TrimSpace(line), "  "); found == name {
			return sum
		}
	}
	t.Fatalf("SHA256SUMS has no %s", name)
	return ""
}

// checkProvenance compares the subjects of the provenance with the files and the layouts, and reads
// what they were built from.
func checkProvenance(t *testing.T, directory string) {
	t.Helper()
	var s statement
	if err := json.Unmarshal(readFile(t, directory, "provenance.intoto.json"), &s); err != nil {
		t.Fatal(err)
	}
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("provenance: got %s with %s, want a statement v1 with provenance v1", s.Type, s.PredicateType)
	}

	var sums strings.Builder
	images := map[string]string{}
	for _, subject := range s.Subject {
		if name, version := subject.Name, "1.2.3-rc.1"; !strings.Contains(name, version) && strings.HasSuffix(name, "seamark") {
			images[name] = subject.Digest["sha256"]
			continue
		}
		sums.WriteString(subject.Digest["sha256"] + "  " + subject.Name + "\n")
	}
	if want := string(readFile(t, directory, "SHA256SUMS")); sums.String() != want {
		t.Errorf("subjects of the provenance: got\n%swant the files of SHA256SUMS:\n%s", sums.String(), want)
	}

	for name, archive := range map[string]string{"seamark": "image", "charts/seamark": "chart"} {
		found := checkLayout(t, filepath.Join(directory, "seamark_1.2.3-rc.1_"+archive+".oci.tar"))
		if images[name] != found.Digest.Hex {
			t.Errorf("subject %s: got %s, want %s", name, images[name], found.Digest.Hex)
		}
		if line := name + "@" + found.Digest.String() + "\n"; !strings.Contains(string(readFile(t, directory, "images.txt")), line) {
			t.Errorf("images.txt: no line %s", line)
		}
	}

	d := s.Predicate.BuildDefinition
	if got := d.ResolvedDependencies; len(got) != 2 || got[0].Digest["gitCommit"] != "c0ffee" ||
		got[0].URI != "git+"+project || "go"+got[1].URI[len("pkg:generic/go@"):] != runtime.Version() {
		t.Errorf("dependencies of the provenance: got %v, want the commit c0ffee and %s", got, runtime.Version())
	}
	if d.ExternalParameters["version"] != "1.2.3-rc.1" || s.Predicate.RunDetails.Builder.ID != "https://builder.example" {
		t.Errorf("got parameters %v and builder %s, want version 1.2.3-rc.1 and https://builder.example",
			d.ExternalParameters, s.Predicate.RunDetails.Builder.ID)
	}
}

// checkLayout unpacks the archive of an OCI layout, checks each blob's digest, and returns what
// index.json names.
func checkLayout(t *testing.T, archive string) v1.Descriptor {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}

	directory := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(directory, h.Name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%s: got %v and error %v, want one manifest", archive, manifest, err)
	}

	found := manifest.Manifests[0]
	if found.MediaType.IsIndex() {
		err = validate.Index(index)
	} else {
		checkChartArtifact(t, index, found.Digest)
	}
	if err != nil {
		t.Errorf("%s: %v", archive, err)
	}
	return found
}

// checkChartArtifact reads the chart's manifest, its config and its layer, as Helm pulls them.
func checkChartArtifact(t *testing.T, index v1.ImageIndex, digest v1.Hash) {
	t.Helper()
	image, err := index.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Config.MediaType != chartConfig || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != chartLayer {
		t.Errorf("the chart for registries: got %+v, want Helm's media types", manifest)
	}

	config, err := image.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct{ Name, Version, AppVersion string }
	if err := json.Unmarshal(config, &metadata); err != nil {
		t.Fatal(err)
	}
	if metadata.Name != "seamark" || metadata.Version != "1.2.3-rc.1" || metadata.AppVersion != "1.2.3-rc.1" {
		t.Errorf("the chart for registries: got %s, want seamark 1.2.3-rc.1", config)
	}

	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if err := validate.Layer(l, validate.Fast); err != nil {
			t.Error(err)
		}
	}
}

// checkPlugin compares the manifest of the kubectl plugin with the archives: the checksums, and that
// each file that krew copies is in the archive.
func checkPlugin(t *testing.T, directory, base string) {
	t.Helper()
	var manifest struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version, ShortDescription string
			Platforms                 []pluginPlatform
		}
	}
	if err := yaml.UnmarshalStrict(readFile(t, directory, "krew.yaml"), &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(readFile(t, directory, "krew.yaml"), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Metadata.Name != "seamark" || manifest.Spec.Version != "v1.2.3-rc.1" || len(manifest.Spec.ShortDescription) > 60 {
		t.Errorf("krew.yaml: got %+v, want seamark v1.2.3-rc.1 with a short description", manifest)
	}

	var found []string
	for _, p := range manifest.Spec.Platforms {
		labels := p.Selector.MatchLabels
		found = append(found, labels["os"]+"/"+labels["arch"])
		name := strings.TrimPrefix(p.URI, downloads("1.2.3-rc.1")+"/")
		if p.SHA256 != sumOf(t, directory, name) {
			t.Errorf("krew.yaml, %s: got checksum %s, want that of %s", p.URI, p.SHA256, name)
		}
		if labels["os"] != "linux" {
			continue
		}

		files := readTar(t, filepath.Join(directory, name))
		for _, f := range p.Files {
			if len(files[f.From]) == 0 {
				t.Errorf("krew.yaml: %s has no %s", name, f.From)
			}
		}
		if p.Files[0].From != base+"/"+p.Bin {
			t.Errorf("krew.yaml: got %s as %s, want the server", p.Files[0].From, p.Bin)
		}
	}
	if want := []string{"linux/" + runtime.GOARCH, "darwin/arm64", "windows/amd64"}; !slices.Equal(found, want) {
		t.Errorf("platforms of krew.yaml: got %v, want %v", found, want)
	}
}

// checkIndex compares the index of the chart's repository with the chart.
func checkIndex(t *testing.T, directory string) {
	t.Helper()
	var index struct {
		APIVersion string
		Entries    map[string][]struct {
			Version, AppVersion, Digest, KubeVersion string
			URLs                                     []string
		}
	}
	if err := yaml.Unmarshal(readFile(t, directory, "index.yaml"), &index); err != nil {
		t.Fatal(err)
	}
	const chart = "seamark-1.2.3-rc.1.tgz"
	versions := index.Entries["seamark"]
	if index.APIVersion != "v1" || len(versions) != 1 {
		t.Fatalf("index.yaml: got %+v, want one version of the chart", index)
	}
	got := versions[0]
	if got.Version != "1.2.3-rc.1" || got.AppVersion != got.Version || got.KubeVersion == "" ||
		got.Digest != sumOf(t, directory, chart) || !slices.Equal(got.URLs, []string{downloads("1.2.3-rc.1") + "/" + chart}) {
		t.Errorf("index.yaml: got %+v, want the chart's metadata, checksum and URL", got)
	}
}

// TestChangesOfVersion finds the entry of a version in a text with two.
func TestChangesOfVersion(t *testing.T) {
	const text = "# Changes\n\nIntroduction.\n\n## 0.2.0 (2027-01-02)\n\nSecond.\n\n### Part\n\n- one\n\n## 0.1.0\n\nFirst.\n"
	for _, test := range []struct{ version, want string }{
		{"0.2.0", "Second.\n\n### Part\n\n- one\n"},
		{"0.1.0", "First.\n"},
		{"0.3.0-rc.1", "Second.\n\n### Part\n\n- one\n"},
		{"0.3.0", ""},
	} {
		got, err := changes(text, test.version)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("changes of %s: got %q and error %v, want %q", test.version, got, err, test.want)
		}
	}
}

// TestJoinedParagraphs joins the lines of paragraphs and items, and no others.
func TestJoinedParagraphs(t *testing.T) {
	const text = "First\nsecond.\n\n### Part\n\n- one\n  more\n- two\n\n| a |\n|---|\n| b |\nNext\nline.\n"
	const want = "First second.\n\n### Part\n\n- one more\n- two\n\n| a |\n|---|\n| b |\nNext line.\n"
	if got := joined(text); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}
