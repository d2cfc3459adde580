package forward

import (
	"github.com/seamark/seamark/wire"
)

// Names here are bytes in wire form, written out, in any spelling.

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// same compares two names, or two questions, whatever their spelling. The
// bytes of lengths are no letters; those of type and class are compared as they
// are by whoever has them.
func same(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if c != b[i] && lower(c) != lower(b[i]) {
			return false
		}
	}
	return true
}

// within says whether name is zone or below it.
func within(name, zone []byte) bool {
	for i := 0; i < len(name) && len(name)-i >= len(zone); i += int(name[i]) + 1 {
		if len(name)-i == len(zone) {
			return same(name[i:], zone)
		}
		if name[i] == 0 {
			break
		}
	}
	return false
}

// nameAt gives the name that rdata has at off, written out, whole.
func nameAt(rdata []byte, off int) (name []byte, ok bool) {
	for i := off; i < len(rdata); i += int(rdata[i]) + 1 {
		switch n := rdata[i]; {
		case n == 0:
			return rdata[off : i+1], i+1-off <= wire.MaxName
		case n > wire.MaxLabel:
			return nil, false
		}
	}
	return nil, false
}

// appendOwner writes an owner behind buf: as a pointer into the question if
// that is the name, or ends in it, so that each client finds its own spelling.
func appendOwner(buf, question, owner []byte) []byte {
	name := question[:len(question)-4]
	for i := 0; i < len(name) && name[i] != 0 && len(name)-i >= len(owner); i += int(name[i]) + 1 {
		if same(name[i:], owner) {
			p := wire.QuestionPointer(i)
			return append(buf, p[0], p[1])
		}
	}
	return append(buf, owner...)
}
