package secondary

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

const origin wire.Name = "\x07example\x03org\x00"

// message packs records, one on a line. @ as the owner is example.org., and a record of the type RAW
// has a type and the RDATA in hexadecimal, which are not checked.
func message(t testing.TB, qtype uint16, text string) []byte {
	t.Helper()
	m := new(mdns.Msg).SetReply(new(mdns.Msg).SetQuestion("example.org.", qtype))
	m.Id, m.Compress = 1, true
	for line := range strings.Lines(strings.ReplaceAll(text, "SOA ", "SOA ns. host. ")) {
		line = strings.TrimSpace(line)
		if i := strings.Index(line, "SOA ns. host. "); i >= 0 {
			line += " 60 60 600 60"
		}
		if owner, raw, ok := strings.Cut(line, " 5 RAW "); ok {
			rr := &mdns.RFC3597{Hdr: mdns.RR_Header{Name: owner + ".example.org.", Class: mdns.ClassINET, Ttl: 5}}
			_, _ = fmt.Sscan(raw, &rr.Hdr.Rrtype, &rr.Rdata) // no RDATA is an error, too
			m.Answer = append(m.Answer, rr)
			continue
		}
		rr, err := mdns.NewRR("$ORIGIN example.org.\n" + line)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

// receiveAll returns the records of the zone after the messages, sorted.
func receiveAll(old *zone.Zone, messages ...[]byte) (*zone.Zone, error) {
	qtype := wire.TypeAXFR
	if old != nil {
		qtype = wire.TypeIXFR
	}
	in := newIncoming(origin, old, old != nil)
	for _, m := range messages {
		done, err := in.message(m, 1, qtype)
		if err != nil {
			return nil, err
		}
		if done {
			return in.zone()
		}
	}
	return nil, net.ErrClosed
}

func count(z *zone.Zone) (n int) {
	for range z.Records {
		n++
	}
	return n
}

// See NSD 4.15 in docs/reference/advisories.md.
func TestIncomingErrors(t *testing.T) {
	old, err := receiveAll(nil, message(t, mdns.TypeAXFR, "@ 5 SOA 5\na 5 A 192.0.2.1\nb 5 A 192.0.2.2\n@ 5 SOA 5"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		old  *zone.Zone
		text string // messages, separated by a line with a dash
		want string // an error, or the number of records
	}{
		{"whole zone", nil, "@ 5 SOA 1\na 5 A 192.0.2.1\n-\n@ 5 SOA 1", "2 records"},
		{"empty zone", nil, "@ 5 SOA 1\n@ 5 SOA 1", "1 records"},
		{"no closing SOA record", nil, "@ 5 SOA 1\na 5 A 192.0.2.1\n", "use of closed network connection"},
		{"another closing SOA record", nil, "@ 5 SOA 1\na 5 A 192.0.2.1\n@ 5 SOA 2\n", "the zone changed during the transfer"},
		{"records after the end", nil, "@ 5 SOA 1\n@ 5 SOA 1\na 5 A 192.0.2.1\n", "records after the end of the zone"},
		{"no SOA record", nil, "a 5 A 192.0.2.1\n", "the first record is not the SOA record"},
		{"another zone", nil, "example.net. 5 SOA 1\nexample.net. 5 SOA 1\n", "SOA record of another zone"},
		{"another zone's SOA record", nil, "@ 5 SOA 1\nsub 5 SOA 1\n@ 5 SOA 1\n", "SOA record of another zone"},
		{"outside the zone", nil, "@ 5 SOA 1\nexample.net. 5 A 192.0.2.1\n@ 5 SOA 1\n", "1 records"},
		{"class CH", nil, "@ 5 SOA 1\na 5 CH TXT x\n@ 5 SOA 1\n", "record of class CH"},
		{"two CNAME records", nil, "@ 5 SOA 1\na 5 CNAME b\na 5 CNAME c\n@ 5 SOA 1\n", "a.example.org.: a second CNAME record"},
		{"unchanged", old, "@ 5 SOA 5", errUnchanged.Error()},
		{"backwards", old, "@ 5 SOA 4", "the primary's serial number 4 is older than 5"},
		{"older zone in place of differences", old, "@ 5 SOA 4\na 5 A 192.0.2.1\n@ 5 SOA 4", "the primary's serial number 4 is older than 5"},
		{"the same zone in place of differences", old, "@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 5", errUnchanged.Error()},
		{"newer SOA record alone", old, "@ 5 SOA 6", errWholeZone.Error()},
		{"differences", old, "@ 5 SOA 6\n@ 5 SOA 5\na 5 A 192.0.2.1\n-\n@ 5 SOA 6\nc 5 A 192.0.2.3\nd 5 A 192.0.2.4\n@ 5 SOA 6", "4 records"},
		{"two differences", old, "@ 5 SOA 7\n@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 6\nc 5 A 192.0.2.3\n@ 5 SOA 6\nc 5 A 192.0.2.3\n@ 5 SOA 7\n@ 5 SOA 7", "2 records"},
		{"whole zone in place of differences", old, "@ 5 SOA 6\na 5 A 192.0.2.1\n@ 5 SOA 6", "2 records"},
		{"deleted record is missing", old, "@ 5 SOA 6\n@ 5 SOA 5\nx 5 A 192.0.2.1\n@ 5 SOA 6\n@ 5 SOA 6", errMisfit.Error()},
		{"added record exists", old, "@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 6\na 5 A 192.0.2.1\n@ 5 SOA 6", errMisfit.Error()},
		{"gap between differences", old, "@ 5 SOA 9\n@ 5 SOA 5\n@ 5 SOA 6\n@ 5 SOA 7\n@ 5 SOA 9\n@ 5 SOA 9", "differences that do not follow each other"},
	} {
		qtype := mdns.TypeAXFR
		if c.old != nil {
			qtype = mdns.TypeIXFR
		}
		var messages [][]byte
		for text := range strings.SplitSeq(c.text, "-\n") {
			messages = append(messages, message(t, qtype, text))
		}
		z, err := receiveAll(c.old, messages...)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = string(rune('0'+count(z))) + " records"
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// A primary that sends garbage, nothing, or another reply is an error within the
// client's deadlines.
func TestClientBadPrimary(t *testing.T) {
	for name, reply := range map[string]func(id uint16) []byte{
		"closes":        func(uint16) []byte { return nil },
		"garbage":       func(uint16) []byte { return []byte("\x00\x03abc") },
		"another ID":    func(id uint16) []byte { return framed(message(t, mdns.TypeAXFR, "@ 5 SOA 1\n@ 5 SOA 1"), id+1) },
		"another type":  func(id uint16) []byte { return framed(message(t, mdns.TypeANY, "@ 5 SOA 1\n@ 5 SOA 1"), id) },
		"no records":    func(id uint16) []byte { return framed(message(t, mdns.TypeAXFR, ""), id) },
		"half a length": func(id uint16) []byte { return []byte{5} },
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			query, err := receive(conn, nil, time.Now().Add(stallTimeout))
			if err == nil {
				_, _ = conn.Write(reply(binary.BigEndian.Uint16(query)))
			}
		}()
		c := client{addr: netip.MustParseAddrPort(l.Addr().String()), dial: new(net.Dialer).DialContext}
		if z, _, _, err := c.fetch(t.Context(), &schedule{copy: &zoneCopy{options: options{origin: origin}}}, nil, nil); err == nil {
			t.Errorf("%s: got a zone with %d records, want an error", name, count(z))
		}
		_ = l.Close()
	}
}

func framed(m []byte, id uint16) []byte {
	binary.BigEndian.PutUint16(m, id)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
}

// A file that is cut or changed anywhere is rejected.
func TestFileCorrupt(t *testing.T) {
	z, err := receiveAll(nil, message(t, mdns.TypeAXFR, "@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 5"))
	if err != nil {
		t.Fatal(err)
	}
	c := zoneCopy{options: options{origin: origin, file: filepath.Join(t.TempDir(), "zone")}}
	now := time.Unix(1_700_000_000, 0)
	if err := c.writeFile(z, now); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	got, checked, err := parseFile(newIncoming(origin, nil, false), bytes.NewReader(data))
	if err != nil || count(got) != 2 || !checked.Equal(now) {
		t.Fatalf("got %v, %v, %v, want 2 records", got, checked, err)
	}
	for i := range data {
		changed := append([]byte(nil), data...)
		changed[i] ^= 1
		if _, _, err := parseFile(newIncoming(origin, nil, false), bytes.NewReader(changed)); err == nil {
			t.Errorf("byte %d changed: no error", i)
		}
		if _, _, err := parseFile(newIncoming(origin, nil, false), bytes.NewReader(data[:i])); err == nil {
			t.Errorf("cut to %d bytes: no error", i)
		}
	}
}

// A transfer stream of any bytes neither panics nor results in a zone of another serial
// number.
func FuzzIncoming(f *testing.F) {
	old, err := receiveAll(nil, message(f, mdns.TypeAXFR, "@ 5 SOA 5\na 5 A 192.0.2.1\nb 5 A 192.0.2.2\n@ 5 SOA 5"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(false, framed(message(f, mdns.TypeAXFR, "@ 5 SOA 1\na 5 MX 1 b\n@ 5 SOA 1"), 1))
	f.Add(true, framed(message(f, mdns.TypeIXFR, "@ 5 SOA 6\n@ 5 SOA 5\na 5 A 192.0.2.1\n@ 5 SOA 6\nc 5 A 192.0.2.3\n@ 5 SOA 6"), 1))
	f.Fuzz(func(t *testing.T, differences bool, stream []byte) {
		in, qtype := newIncoming(origin, nil, false), wire.TypeAXFR
		if differences {
			in, qtype = newIncoming(origin, old, true), wire.TypeIXFR
		}
		for len(stream) >= 2 {
			n := min(2+int(binary.BigEndian.Uint16(stream)), len(stream))
			done, err := in.message(stream[2:n], 1, qtype)
			if err != nil {
				return
			}
			if stream = stream[n:]; !done {
				continue
			}
			z, err := in.zone()
			if err != nil {
				return
			}
			if serial, ok := z.Serial(); !ok || serial != in.serial {
				t.Errorf("got serial %d, %v, want %d", serial, ok, in.serial)
			}
			return
		}
	})
}
