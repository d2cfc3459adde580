package secondary

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/zone"
)

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
