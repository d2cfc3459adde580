package resolvconf

import (
	"fmt"
	"io"
	"os"
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
	text, err := read(file, nil, maxFile)
	if err != nil {
		return Config{}, nil, fmt.Errorf("reading the node's file: %w", err)
	}
	return ParseNode(file, text)
}

// ReadManifest reads a manifest, from in if the file is "-"; see ParseManifest.
func ReadManifest(file string, in io.Reader) (Manifest, []string, error) {
	name := file
	if file == "-" {
		name = "(standard input)"
	} else {
		in = nil
	}
	text, err := read(name, in, maxManifest)
	if err != nil {
		return Manifest{}, nil, fmt.Errorf("reading the manifest: %w", err)
	}
	return ParseManifest(name, text)
}

// read reads all of in, or of the file if in is nil.
func read(file string, in io.Reader, limit int64) ([]byte, error) {
	if in == nil {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("read %s: larger than %d MB", file, limit>>20)
	}
	return text, err
}
