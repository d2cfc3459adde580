package corefile

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// A Sum tells the contents of a configuration from others: the SHA-512 of the
// Corefile's text and, behind it, of the name, size and text of each file that
// it imports. Of a Corefile that imports nothing it is what sha512sum says. The
// zero Sum is a Corefile that could not be read.
type Sum [sha512.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// A Reading is a Corefile as it was at one time.
type Reading struct {
	Servers []Server
	Sum     Sum
	// Err is what is wrong with it. Some servers may have been read all the
	// same, as by Parse.
	Err error
}

// Read reads the Corefile at path, and whatever it imports.
func Read(path string) Reading {
	text, err := whole(path)
	if err != nil {
		return Reading{Err: fmt.Errorf("reading the Corefile: %w", err)}
	}
	return ReadText(path, text)
}

// whole reads the Corefile itself, which may come from a pipe.
func whole(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return limited(path, file)
}

// ReadText is Parse, and says what was read.
func ReadText(file string, text []byte) Reading {
	s := &source{snippets: map[string][]word{}}
	servers, err := s.parse(file, text)
	return Reading{servers, s.sum(text), err}
}

func (s *source) sum(text []byte) (sum Sum) {
	h := sha512.New()
	_, _ = h.Write(text) // a hash's Write never fails
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
