package secondary

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A version with a malformed record is refused as a whole, wherever it comes from, with an error that
// names the record. Parts of it are neither served nor written.
func TestMalformedRecordRefused(t *testing.T) {
	old, err := receiveAll(nil, message(t, mdns.TypeAXFR, "@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 5"))
	if err != nil {
		t.Fatal(err)
	}

	for _, r := range chaintest.MalformedRecords() {
		record := fmt.Sprintf("x 5 RAW %d %x\n", r.Type, r.RData)
		for name, text := range map[string]string{
			"AXFR":            "@ 5 SOA 6\n" + record + "@ 5 SOA 6",
			"IXFR, added":     "@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 6\n" + record + "@ 5 SOA 6",
			"IXFR, deleted":   "@ 5 SOA 6\n@ 5 SOA 5\n" + record + "@ 5 SOA 6\n@ 5 SOA 6",
			"IXFR, cancelled": "@ 5 SOA 7\n@ 5 SOA 5\n@ 5 SOA 6\n" + record + "@ 5 SOA 6\n" + record + "@ 5 SOA 7\n@ 5 SOA 7",
		} {
			from, qtype := old, uint16(mdns.TypeIXFR)
			if name == "AXFR" {
				from, qtype = nil, mdns.TypeAXFR
			}
			_, err := receiveAll(from, message(t, qtype, text))
			wantMalformed(t, name, r, err)
		}

		_, _, err := parseFile(newIncoming(origin, nil, false), bytes.NewReader(fileWith(t, r)))
		wantMalformed(t, "file", r, err)
	}
}

func wantMalformed(t *testing.T, source string, r chaintest.RawRecord, err error) {
	t.Helper()
	want := fmt.Sprintf("x.example.org.: malformed %s record", wire.Type(r.Type))
	if err == nil || err.Error() != want {
		t.Errorf("%s of %s: got error %v, want %s", source, r.Text(), err, want)
	}
}

// fileWith returns a file of the zone with a record, and a right checksum.
func fileWith(t *testing.T, r chaintest.RawRecord) []byte {
	t.Helper()
	z, err := receiveAll(nil, message(t, mdns.TypeAXFR, "@ 5 SOA 5\n@ 5 SOA 5"))
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := writeFile(&file, origin, z, time.Now()); err != nil {
		t.Fatal(err)
	}

	record := wire.AppendRecordHeader(nil, "\x01x"+string(origin), wire.Type(r.Type), 5, len(r.RData))
	record = append(record, r.RData...)
	data := file.Bytes()[:file.Len()-7] // without the length of zero, and the checksum
	data = append(data, binary.BigEndian.AppendUint32(nil, uint32(len(record)))[1:]...)
	data = append(append(data, record...), 0, 0, 0)
	return binary.BigEndian.AppendUint32(data, crc32.ChecksumIEEE(data))
}

// Types of queries and messages are no records of a zone.
func TestMetaTypeRefused(t *testing.T) {
	for _, r := range []chaintest.RawRecord{{Type: 41}, {Type: 0, RData: "x"}, {Type: 255, RData: "x"}, {Type: 128}, {Type: 252, RData: "x"}} {
		_, err := receiveAll(nil, message(t, mdns.TypeAXFR, fmt.Sprintf("@ 5 SOA 6\nx 5 RAW %d %x\n@ 5 SOA 6", r.Type, r.RData)))
		want := fmt.Sprintf("x.example.org.: %s is not a record type", wire.Type(r.Type))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", r.Text(), err, want)
		}
	}
}

// While a primary sends a malformed record, the last version is served and stays in the file, and log
// and condition name the record. The next version without it is served.
func TestMalformedRecordOfPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		synctest.Wait() // until the copy waits for its next refresh
		c.file = filepath.Join(t.TempDir(), "zone")
		const bad = "x 5 RAW 16 05616263\n"
		p.set(0, map[uint16][]string{
			soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 6\n" + bad + "@ 5 SOA 6"}, axfr: {"@ 5 SOA 6\n" + bad + "@ 5 SOA 6"},
		})
		c.notify()
		time.Sleep(45 * time.Second)

		const want = "x.example.org.: malformed TXT record"
		if got := serialOf(c); got != 5 || log.Count("AXFR: "+want) != 1 {
			t.Errorf("got serial number %d, want 5, and %q once in the log\n%s", got, want, log)
		}
		synctest.Wait()
		if z, _, err := c.readFile(); err != nil || count(z) != 4 {
			t.Errorf("got a file of %v, %v, want the 4 records of version 5", z, err)
		}

		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 7"}, ixfr: {"@ 5 SOA 7\na 5 A 192.0.2.1\n@ 5 SOA 7"}})
		time.Sleep(2 * time.Minute)
		if got := serialOf(c); got != 7 {
			t.Errorf("got serial number %d without the record, want 7\n%s", got, log)
		}
	})
}
