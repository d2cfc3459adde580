package objects

import (
	"encoding/binary"
	"iter"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// AppendName appends what an object says of one name to the content that Owners reads: the length of the
// name as a varint, the name, the length of the value as a varint, and the value.
func AppendName(packed []byte, owner wire.Name, value []byte) []byte {
	packed = append(binary.AppendUvarint(packed, uint64(len(owner))), owner...)
	return append(binary.AppendUvarint(packed, uint64(len(value))), value...)
}

// Owners returns the names that AppendName has appended, and their values.
func Owners(packed string) iter.Seq2[wire.Name, string] {
	return func(yield func(wire.Name, string) bool) {
		for rest := packed; rest != ""; {
			size, after := zone.Varint(rest)
			owner, after := wire.Name(after[:size]), after[size:]
			size, after = zone.Varint(after)
			if !yield(owner, after[:size]) {
				return
			}
			rest = after[size:]
		}
	}
}
