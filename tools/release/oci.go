package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/seamark/seamark/tools/build"
)

// The media types of a chart in a registry, as Helm reads it.
const (
	chartConfig = "application/vnd.cncf.helm.config.v1+json"
	chartLayer  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// newImage builds the container image for the targets with Linux. It returns an archive of its
// OCI layout, and the digest of its index.
func newImage(r build.Release, targets []v1.Platform) (artifact, v1.Hash, error) {
	var list []string
	for _, p := range targets {
		if p.OS == "linux" {
			list = append(list, p.String())
		}
	}

	directory, err := os.MkdirTemp("", "image")
	if err != nil {
		return artifact{}, v1.Hash{}, err
	}
	defer os.RemoveAll(directory)

	// The program of make image, with the same flags: the image is byte-equal to its image.
	if err := r.Go(nil, "run", "-C", "tools", "./image", "-source", "..", "-output", filepath.Join(directory, "image"),
		"-platforms", strings.Join(list, ","), "-version", r.Version, "-commit", r.Commit,
		"-date", r.Date.Format(time.RFC3339), "-pgo", r.PGO); err != nil {
		return artifact{}, v1.Hash{}, err
	}

	files, err := readFiles(filepath.Join(directory, "image", "oci"), "oci-layout", "index.json", "blobs/sha256/*")
	if err != nil {
		return artifact{}, v1.Hash{}, err
	}
	return layoutArchive(fmt.Sprintf("seamark_%s_image.oci.tar", r.Version), files, r.Date)
}

// newChartLayout returns the chart as an OCI artifact of Helm, in an archive of an OCI layout,
// and the digest of its manifest.
func newChartLayout(r build.Release, c chart) (artifact, v1.Hash, error) {
	config, err := json.Marshal(c.metadata)
	if err != nil {
		return artifact{}, v1.Hash{}, err
	}

	var files []build.File
	blob := func(data []byte, mediaType string) v1.Descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		files = append(files, build.File{Path: "blobs/sha256/" + sum, Data: data})
		return v1.Descriptor{MediaType: types.MediaType(mediaType), Size: int64(len(data)),
			Digest: v1.Hash{Algorithm: "sha256", Hex: sum}}
	}

	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		Config:        blob(config, chartConfig),
		Layers:        []v1.Descriptor{blob(c.data, chartLayer)},
		Annotations: map[string]string{
			"org.opencontainers.image.title":   "seamark",
			"org.opencontainers.image.version": r.Version,
			"org.opencontainers.image.created": r.Date.Format(time.RFC3339),
		},
	})
	if err != nil {
		return artifact{}, v1.Hash{}, err
	}

	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2,
		MediaType:     types.OCIImageIndex,
		Manifests:     []v1.Descriptor{blob(manifest, string(types.OCIManifestSchema1))},
	})
	if err != nil {
		return artifact{}, v1.Hash{}, err
	}

	files = append(files, build.File{Path: "oci-layout", Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		build.File{Path: "index.json", Data: index})
	return layoutArchive(fmt.Sprintf("seamark_%s_chart.oci.tar", r.Version), files, r.Date)
}

// layoutArchive returns an archive of the files of an OCI layout, and the digest of the only
// manifest that its index.json has.
func layoutArchive(name string, files []build.File, date time.Time) (artifact, v1.Hash, error) {
	var digest v1.Hash
	for _, f := range files {
		if f.Path != "index.json" {
			continue
		}
		index, err := v1.ParseIndexManifest(bytes.NewReader(f.Data))
		if err == nil && len(index.Manifests) != 1 {
			err = fmt.Errorf("it has %d", len(index.Manifests))
		}
		if err != nil {
			return artifact{}, v1.Hash{}, fmt.Errorf("%s: want an index.json with one manifest: %w", name, err)
		}
		digest = index.Manifests[0].Digest
	}

	var out bytes.Buffer
	if err := writeTar(&out, "", files, date); err != nil {
		return artifact{}, v1.Hash{}, err
	}
	return artifact{name, out.Bytes()}, digest, nil
}
