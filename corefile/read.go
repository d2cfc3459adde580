package corefile

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Sum identifies the contents of a configuration: the SHA-512 of the Corefile's
// text followed by the name, size and text of each imported file. Without imports
// it is the output of sha512sum. The zero Sum stands for a Corefile that could
// not be read.
type Sum [sha512.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// A Reading is the result of reading a Corefile.
type Reading struct {
	Servers []Server
	Text    []byte // of the Corefile itself
	Sum     Sum
	// Err joins all errors. Servers may be incomplete or empty then, as for
	// Parse.
	Err error
	// Unchanged reports whether the files still have the contents that were read. It does not parse them, which
	// would take 0.1 s and 50 MB for a Corefile of 100,000 words. It is nil if only another Reading can tell.
	Unchanged func() bool
}

// Read reads the Corefile at path and the files that it imports.
func Read(path string) Reading {
	text, err := readCorefile(path)
	if err != nil {
		return Reading{Err: fmt.Errorf("reading the Corefile: %w", err)}
	}
	s := newSource()
	r := s.reading(path, text)
	if !mayBePipe(path) {
		r.Unchanged = unchanged(path, s.patterns, r.Sum)
	}
	return r
}

// unchanged returns a function that reports whether a Corefile, with the files that its imports name, has a sum.
func unchanged(path string, patterns map[string][]string, sum Sum) func() bool {
	return func() bool {
		s := newSource()
		for pattern, files := range patterns {
			now, err := filepath.Glob(pattern)
			if err != nil || !slices.Equal(now, files) {
				return false
			}
			for _, file := range files {
				_, _ = s.file(file) // the sum has an error, too
			}
		}

		text, err := Text(path)
		return err == nil && s.sum(text) == sum
	}
}

func mayBePipe(path string) bool {
	return strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/")
}

// readCorefile reads the Corefile itself, which may be a pipe that the shell has made: /dev/stdin,
// /dev/fd/63. Opening another one would block until there is a writer.
func readCorefile(path string) ([]byte, error) {
	if !mayBePipe(path) {
		return Text(path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return TextFrom(path, file)
}

// ReadText is like Read for a text that has been read.
func ReadText(file string, text []byte) Reading {
	return newSource().reading(file, text)
}

func (s *source) reading(file string, text []byte) Reading {
	servers, err := s.parse(file, text)
	return Reading{Servers: servers, Text: text, Sum: s.sum(text), Err: err}
}

func (s *source) sum(text []byte) (sum Sum) {
	h := sha512.New()
	_, _ = h.Write(text) // a hash's Write never returns an error
	for _, name := range slices.Sorted(maps.Keys(s.read)) {
		size := len(s.read[name])
		if s.read[name] == nil {
			size = -1
		}
		_, _ = io.WriteString(h, fmt.Sprintf("\x00%s\x00%d\x00", name, size))
		_, _ = h.Write(s.read[name])
	}
	h.Sum(sum[:0])
	return sum
}
