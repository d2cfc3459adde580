package resolvconf

import (
	"fmt"
	"io"

	"github.com/seamark/seamark/cluster/document"
)

const (
	// maxFile is the largest resolv.conf that the kubelet reads.
	maxFile = 10 << 20
	// maxManifest is far above the API server's limit for one object, because
	// input may be a list of many objects.
	maxManifest = 16 << 20
)

// ReadNode reads a node's resolv.conf; see ParseNode.
func ReadNode(file string) (Config, []string, error) {
	text, err := read(file)
	if err != nil {
		return Config{}, nil, err
	}
	return ParseNode(file, text)
}

// ReadResolver reads the resolv.conf of a resolver; see ParseResolver.
func ReadResolver(file string) (Config, error) {
	text, err := read(file)
	if err != nil {
		return Config{}, err
	}
	return ParseResolver(text), nil
}

func read(file string) ([]byte, error) {
	_, text, err := document.Read(file, nil, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading the resolv.conf: %w", err)
	}
	return text, nil
}

// ReadManifest reads a manifest, from in if the file is "-"; see ParseManifest.
func ReadManifest(file string, in io.Reader) (Manifest, []string, error) {
	name, text, err := document.Read(file, in, maxManifest)
	if err != nil {
		return Manifest{}, nil, fmt.Errorf("reading the manifest: %w", err)
	}
	return ParseManifest(name, text)
}
