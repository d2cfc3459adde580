package corefile

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
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
	Sum     Sum
	// Err joins all errors. Servers may be incomplete or empty then, as for
	// Parse.
	Err error
}

// Read reads the Corefile at path and the files that it imports.
func Read(path string) Reading {
	text, err := readCorefile(path)
	if err != nil {
		return Reading{Err: fmt.Errorf("reading the Corefile: %w", err)}
	}
	return ReadText(path, text)
}

// readCorefile reads the Corefile itself, which may be a pipe that the shell has made: /dev/stdin,
// /dev/fd/63. Opening another one would block until there is a writer.
func readCorefile(path string) ([]byte, error) {
	if !strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/proc/") {
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
	s := &source{snippets: map[string][]word{}}
	servers, err := s.parse(file, text)
	return Reading{servers, s.sum(text), err}
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
