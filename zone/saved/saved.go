// Package saved writes the records of a zone to a file in wire form, and reads them. A file is a
// head, which the caller defines; each record with names written out, preceded by its length in
// three bytes; a length of zero; and the CRC-32 of everything before. The directives secondary and
// dynupdate keep zones in such files.
package saved

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"slices"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// maxRecord is the size of the largest record: owner, type, class, TTL, length and data.
const maxRecord = wire.MaxName + 10 + 1<<16 - 1

// Errors of a Reader.
var (
	ErrMalformed = errors.New("malformed file")
	ErrChecksum  = errors.New("wrong checksum")
)

// Write writes a zone.
func Write(file io.Writer, head []byte, z *zone.Zone) error {
	sum := crc32.NewIEEE()
	w := bufio.NewWriter(io.MultiWriter(file, sum))
	_, _ = w.Write(head)

	for r := range z.Records {
		_, _ = w.Write([]byte{byte(len(r) >> 16), byte(len(r) >> 8), byte(len(r))})
		_, _ = w.Write(r)
	}
	_, _ = w.Write([]byte{0, 0, 0})

	if err := w.Flush(); err != nil {
		return err
	}
	_, err := file.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// A Reader reads a file: first the head, then the records.
type Reader struct {
	file *bufio.Reader
	sum  hash.Hash32
}

// NewReader returns a Reader of a file.
func NewReader(file io.Reader) *Reader { return &Reader{bufio.NewReader(file), crc32.NewIEEE()} }

func (r *Reader) read(buf []byte) error {
	_, err := io.ReadFull(r.file, buf)
	_, _ = r.sum.Write(buf)
	return err
}

// Head reads a head of n bytes.
func (r *Reader) Head(n int) ([]byte, error) {
	head := make([]byte, n)
	return head, r.read(head)
}

// Records calls add with each record, which is valid until add returns, until add returns an error,
// and checks the end of the file after that. A file that has changed is ErrMalformed or ErrChecksum,
// whatever add says about it.
func (r *Reader) Records(add func(record []byte) error) error {
	var record []byte
	var refused error
	for {
		var length [3]byte
		if err := r.read(length[:]); err != nil {
			return ErrMalformed
		}
		n := int(length[0])<<16 | int(length[1])<<8 | int(length[2])
		if n == 0 {
			break
		}
		// The records are not counted yet: a wrong length must not take up to 16 MB first.
		if n > maxRecord {
			return ErrMalformed
		}

		record = slices.Grow(record[:0], n)[:n]
		if err := r.read(record); err != nil {
			return ErrMalformed
		}
		if at, ok := wire.ReadRecord(record, 0); !ok || at.Next != n {
			return ErrMalformed
		}
		if refused == nil {
			refused = add(record)
		}
	}

	want := r.sum.Sum32()
	var got [4]byte
	if _, err := io.ReadFull(r.file, got[:]); err != nil || binary.BigEndian.Uint32(got[:]) != want {
		return ErrChecksum
	}
	return refused
}
