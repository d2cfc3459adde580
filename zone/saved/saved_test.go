package saved

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
)

// A sizedReader remembers the size of the largest read.
type sizedReader struct {
	io.Reader
	most int
}

func (r *sizedReader) Read(p []byte) (int, error) {
	r.most = max(r.most, len(p))
	return r.Reader.Read(p)
}

// No memory is taken for a record that is longer than records can be.
func TestRecordTooLong(t *testing.T) {
	for length, want := range map[int]int{maxRecord: maxRecord, maxRecord + 1: 4096, 1<<24 - 1: 4096} {
		size := binary.BigEndian.AppendUint32(nil, uint32(length))[1:]
		r := &sizedReader{Reader: bytes.NewReader(size)}
		if err := NewReader(r).Records(nil); err != ErrMalformed || r.most != want {
			t.Errorf("length %d: got error %v and a read of %d bytes, want %v and %d", length, err, r.most, ErrMalformed, want)
		}
	}
}
