package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/tools/build"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// versions matches the two versions in a Chart.yaml: of the chart, and of the server
// that it installs.
var versions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// A chart is the packaged Helm chart.
type chart struct {
	artifact
	metadata *v2.Metadata // its Chart.yaml
}

// newChart returns the packaged Helm chart. Its version is the release's.
func newChart(r build.Release) (chart, error) {
	loaded, err := loader.LoadDir(filepath.Join(r.Source, "deploy", "helm", "seamark"))
	if err != nil {
		return chart{}, err
	}
	loaded.Metadata.Version, loaded.Metadata.AppVersion = r.Version, r.Version

	var files []build.File
	for _, f := range loaded.Raw {
		if f.Name == "Chart.yaml" {
			f.Data = versions.ReplaceAll(f.Data, []byte("$1: "+r.Version))
		}
		files = append(files, build.File{Path: f.Name, Data: f.Data})
	}
	slices.SortFunc(files, func(a, b build.File) int { return strings.Compare(a.Path, b.Path) })

	var out bytes.Buffer
	if err := writeTarGzip(&out, "seamark", files, r.Date); err != nil {
		return chart{}, err
	}
	return chart{artifact{fmt.Sprintf("seamark-%s.tgz", r.Version), out.Bytes()}, loaded.Metadata}, nil
}

// newIndex returns the index of a repository with c alone, which is where the files of the
// release are published.
func newIndex(r build.Release, c chart) (artifact, error) {
	type version struct {
		*v2.Metadata
		Created time.Time `json:"created"`
		Digest  string    `json:"digest"`
		URLs    []string  `json:"urls"`
	}

	out, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1",
		"generated":  r.Date,
		"entries": map[string][]version{"seamark": {{
			Metadata: c.metadata,
			Created:  r.Date,
			Digest:   fmt.Sprintf("%x", sha256.Sum256(c.data)),
			URLs:     []string{downloads(r.Version) + "/" + c.name},
		}}},
	})
	return artifact{"index.yaml", out}, err
}
