package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seamark/seamark/tools/build"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// versions matches the two versions in a Chart.yaml: of the chart, and of the server
// that it installs.
var versions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// newChart returns the packaged Helm chart. Its version is the release's.
func newChart(r build.Release) (artifact, error) {
	chart, err := loader.LoadDir(filepath.Join(r.Source, "deploy", "helm", "seamark"))
	if err != nil {
		return artifact{}, err
	}
	var files []build.File
	for _, f := range chart.Raw {
		if f.Name == "Chart.yaml" {
			f.Data = versions.ReplaceAll(f.Data, []byte("$1: "+r.Version))
		}
		files = append(files, build.File{Path: f.Name, Data: f.Data})
	}
	slices.SortFunc(files, func(a, b build.File) int { return strings.Compare(a.Path, b.Path) })
	var out bytes.Buffer
	if err := writeTar(&out, "seamark", files, r.Date); err != nil {
		return artifact{}, err
	}
	return artifact{fmt.Sprintf("seamark-%s.tgz", r.Version), out.Bytes()}, nil
}
