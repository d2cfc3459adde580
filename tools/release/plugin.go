package main

import (
	"crypto/sha256"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/seamark/seamark/tools/build"
	"sigs.k8s.io/yaml"
)

// plugin describes the kubectl plugin: a manifest of krew, kubectl's manager of plugins.
const plugin = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: seamark
spec:
  homepage: ` + project + `
  shortDescription: Find out why a name of the cluster does not resolve
  description: |
    Compares the answers of the cluster's DNS server, such as CoreDNS, with the
    objects of the cluster (doctor, diff), checks its Corefile (check
    --from-cluster), shows what Seamark servers do (status, top, tail, explain), and
    replaces CoreDNS by Seamark in stages, with one step back (canary).
`

// A pluginPlatform is an archive that krew installs the plugin from.
type pluginPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string       `json:"uri"`
	SHA256 string       `json:"sha256"`
	Bin    string       `json:"bin"`
	Files  []pluginFile `json:"files"`
}

// A pluginFile is copied from the archive into the plugin's directory.
type pluginFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// newPlugin returns the manifest of the plugin, with an archive for each platform. krew knows no
// variants, and installs on machines with kubectl: it gets the archives for amd64 and arm64.
func newPlugin(r build.Release, archives map[string]artifact, targets []v1.Platform) (artifact, error) {
	var list []pluginPlatform
	for _, p := range targets {
		if p.Architecture != "amd64" && p.Architecture != "arm64" {
			continue
		}

		a, binary := archives[p.String()], "seamark"
		if p.OS == "windows" {
			binary = "seamark.exe"
		}

		directory := strings.TrimSuffix(strings.TrimSuffix(a.name, ".tar.gz"), ".zip")
		archive := pluginPlatform{
			URI:    downloads(r.Version) + "/" + a.name,
			SHA256: fmt.Sprintf("%x", sha256.Sum256(a.data)),
			Bin:    binary,
			Files:  []pluginFile{{directory + "/" + binary, "."}, {directory + "/LICENSE", "."}},
		}
		archive.Selector.MatchLabels = map[string]string{"os": p.OS, "arch": p.Architecture}
		list = append(list, archive)
	}

	var manifest map[string]any
	if err := yaml.Unmarshal([]byte(plugin), &manifest); err != nil {
		return artifact{}, err
	}
	spec := manifest["spec"].(map[string]any)
	spec["version"], spec["platforms"] = "v"+r.Version, list

	out, err := yaml.Marshal(manifest)
	return artifact{"krew.yaml", out}, err
}
