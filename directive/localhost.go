package directive

import (
	"encoding/binary"

	"github.com/seamark/seamark/wire"
)

const (
	localhost = "\x09localhost\x00"
	localTTL  = 604800
)

// appendLocalSOA appends the SOA record of the zone that begins at offset apex
// of the name in the question section, for local and erratic. The zones have no secondaries:
// refresh, retry and expire are 0.
func appendLocalSOA(buf []byte, apex int) []byte {
	const rname, serial, refresh, retry, expire = "\x04root" + localhost, 1, 0, 0, 0
	owner := wire.QuestionPointer(apex)
	buf = wire.AppendRecordHeader(buf, owner[:], wire.TypeSOA, localTTL, len(localhost)+len(rname)+20)
	buf = append(append(buf, localhost...), rname...)
	for _, n := range [...]uint32{serial, refresh, retry, expire, localTTL} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	return buf
}
