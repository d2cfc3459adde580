package forward

import "github.com/seamark/seamark/wire"

// Names in this file are in uncompressed wire form and compared without regard
// to case.

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
