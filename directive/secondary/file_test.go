package secondary

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/zone"
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
func TestFileRecordTooLong(t *testing.T) {
	head := fileHead + string(origin) + "12345678"
	for length, want := range map[int]int{maxRecord: maxRecord, maxRecord + 1: 4096, 1<<24 - 1: 4096} {
		size := binary.BigEndian.AppendUint32(nil, uint32(length))[1:]
		r := &sizedReader{Reader: bytes.NewReader(append([]byte(head), size...))}
		if _, _, err := parseFile(newIncoming(origin, nil, false), r); !errors.Is(err, errMalformed) || r.most != want {
			t.Errorf("length %d: got error %v and a read of %d bytes, want %v and %d", length, err, r.most, errMalformed, want)
		}
	}
}

// sorted returns the records of a zone, whose order is that of a table of hashes.
func sorted(z *zone.Zone) (records [][]byte) {
	for r := range z.Records {
		records = append(records, bytes.Clone(r))
	}
	slices.SortFunc(records, bytes.Compare)
	return records
}

// FuzzFile: a file with any records neither panics nor results in a zone that is another one when it
// has been written and read again. The head and the checksum of the file are always right.
func FuzzFile(f *testing.F) {
	head := fileHead + string(origin)
	for _, text := range []string{
		"@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 5",
		"@ 5 SOA 5\n* 5 TXT a\na 5 CNAME b\nA 6 MX 1 b\na.b 5 NS c\n@ 5 SOA 5",
	} {
		z, err := receiveAll(nil, message(f, mdns.TypeAXFR, text))
		if err != nil {
			f.Fatal(err)
		}
		var file bytes.Buffer
		if err := writeFile(&file, origin, z, time.Unix(1_700_000_000, 0)); err != nil {
			f.Fatal(err)
		}
		f.Add(file.Bytes()[len(head) : file.Len()-4])
	}
	f.Add([]byte("12345678\xff\xff\xff"))

	read := func(data []byte) (*zone.Zone, time.Time, error) {
		return parseFile(newIncoming(origin, nil, false), bytes.NewReader(data))
	}
	f.Fuzz(func(t *testing.T, records []byte) {
		data := append([]byte(head), records...)
		z, checked, err := read(binary.BigEndian.AppendUint32(data, crc32.ChecksumIEEE(data)))
		if err != nil {
			return
		}

		var written bytes.Buffer
		if err := writeFile(&written, origin, z, checked); err != nil {
			t.Fatal(err)
		}
		again, at, err := read(written.Bytes())
		if err != nil || !at.Equal(checked) {
			t.Fatalf("got %v at %v, read again %v, %v", z, checked, at, err)
		}
		if got, want := sorted(again), sorted(z); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("got %x, written and read again %x", want, got)
		}
	})
}
