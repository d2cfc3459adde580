package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/seamark/seamark/tools/build"
)

// A statement says about subjects what predicate has: in-toto attestation framework, statement v1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []subject  `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

// A subject is a file or an image, identified by its digest, such as sha256 or gitCommit.
type subject struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// A provenance says from what, how and by whom the subjects were built: SLSA, provenance v1.
type provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []subject         `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
		Metadata struct {
			InvocationID string `json:"invocationId,omitempty"`
		} `json:"metadata"`
	} `json:"runDetails"`
}

// A builder is the machine that builds the release, as its provenance names it.
type builder struct {
	id         string // URI
	invocation string // URI of this run, or empty
}

// newProvenance returns the provenance of subjects. It has no times, so that only the builder
// distinguishes it from that of another build of the commit.
func newProvenance(r build.Release, b builder, targets []v1.Platform, subjects []subject) (artifact, error) {
	s := statement{
		Type:          "https://in-toto.io/Statement/v1",
		Subject:       subjects,
		PredicateType: "https://slsa.dev/provenance/v1",
	}

	var list []string
	for _, p := range targets {
		list = append(list, p.String())
	}
	d := &s.Predicate.BuildDefinition
	d.BuildType = project + "/blob/main/tools/release/build.md"
	d.ExternalParameters = map[string]string{"version": r.Version, "platforms": strings.Join(list, ","), "pgo": r.PGO}

	// The commit alone: a build need not be of a tag, and a tag can be moved.
	source := subject{URI: "git+" + project}
	if r.Commit != "" {
		source.Digest = map[string]string{"gitCommit": r.Commit}
	}
	toolchain := strings.TrimPrefix(runtime.Version(), "go")
	d.ResolvedDependencies = []subject{source, {Name: "go", URI: "pkg:generic/go@" + toolchain}}

	s.Predicate.RunDetails.Builder.ID = b.id
	s.Predicate.RunDetails.Metadata.InvocationID = b.invocation

	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return artifact{}, fmt.Errorf("provenance: %w", err)
	}
	return artifact{"provenance.intoto.json", append(out, '\n')}, nil
}
