package server

import (
	"strings"
	"testing"
)

// pieces are the arguments of each Write.
type pieces []string

func (p *pieces) Write(text []byte) (int, error) {
	*p = append(*p, string(text))
	return len(text), nil
}

// The log may go to the same file, so that a line that is written in parts could have one of the log in it.
func TestAddressesAreWrittenAtOnce(t *testing.T) {
	p := start(t, ". {\n bind 127.0.0.1\n code 5\n}\na.org b.org {\n bind 127.0.0.1\n code 0\n}\n", onPortZero(), nil)
	var got pieces
	p.printAddresses(&got)
	if len(got) != 1 || strings.Count(got[0], " on 127.0.0.1\n") != 3 {
		t.Errorf("got the writes %q, want one with three lines", got)
	}
}
