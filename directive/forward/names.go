package forward

import (
	"github.com/seamark/seamark/wire"
)

// Names in this file are in uncompressed wire form and compared without regard
// to case.

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// inZone reports whether name is zone or below it.
func inZone(name, zone []byte) bool {
	for i := 0; i < len(name) && len(name)-i >= len(zone); i += int(name[i]) + 1 {
		if len(name)-i == len(zone) {
			return wire.SameName(name[i:], zone)
		}
		if name[i] == 0 {
			break
		}
	}
	return false
}

// appendOwner appends an owner name to buf. If the question's name ends in the owner
// name, appendOwner appends a pointer into the question instead, so that each client
// gets the name in its own spelling.
func appendOwner(buf, question, owner []byte) []byte {
	name := question[:len(question)-4]
	for i := 0; i < len(name) && name[i] != 0 && len(name)-i >= len(owner); i += int(name[i]) + 1 {
		if wire.SameName(name[i:], owner) {
			p := wire.QuestionPointer(i)
			return append(buf, p[0], p[1])
		}
	}
	return append(buf, owner...)
}
