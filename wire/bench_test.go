package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// srvAnswer sets a to an SRV answer with the addresses of n endpoints.
func srvAnswer(a *Answer, buf, q, srvs, addrs []byte, n int) {
	a.Reset(buf, q)
	a.Append(Answers, srvs, n)
	a.Append(Additional, addrs, n)
}

func srvRecords(t testing.TB, n int) (srvs, addrs []byte) {
	web := QuestionPointer(len("\x05_http\x04_tcp"))
	for i := range n {
		label := fmt.Sprintf("10-0-0-%d", i)
		target := onWire(t, label+".web.shop.svc.cluster.local.")
		srvs = append(AppendRecordHeader(srvs, OwnerIsQuestion, TypeSRV, 5, 6+len(target)), 0, 0, 0, 1, 0, 80)
		srvs = append(srvs, target...)
		addrs = AppendAddress(addrs, append(AppendLabel(nil, label), web[:]...), 5, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	return srvs, addrs
}

// Parsing a request and building an answer in lent memory allocate nothing.
func TestAllocations(t *testing.T) {
	none := func(what string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times, want 0", what, n)
		}
	}
	var r Request
	for what, p := range map[string]packet{
		"ordinary":            header(1, 0, 0, 0).add(localA),
		"EDNS":                header(1, 0, 0, 1).add(localA + nsid),
		"long":                header(1, 0, 0, 0).add(strings.Repeat("\x01a", 127) + "\x00\x00\x01\x00\x01"),
		"malformed":           header(1, 0, 0, 1).add(localA),
		"unreadable":          header(1, 0, 0, 0).add("\xC0\x0C\x00\x01\x00\x01"),
		"records of each set": header(1, 1, 1, 1).add(localA + recordA + soa + opt),
	} {
		none("Parse, "+what, func() { r.Parse(p) })
	}

	q := question(t, "_http._tcp.web.shop.svc.cluster.local.")
	srvs, addrs := srvRecords(t, 40)
	lent, spare := make([]byte, 0, 8192), make([]byte, 0, 8192)
	var a Answer
	none("Reset, Append, Compress, Truncate", func() {
		srvAnswer(&a, lent, q, srvs, addrs, 40)
		a.Compress(spare, MaxMessage)
		if !a.Truncate(1232) {
			t.Fatal("Truncate: got false, want true")
		}
		PutHeader(a.Buf, 1, FlagQR|FlagTC, 1, a.Count, 0)
	})
	none("Truncate of an RRset", func() {
		srvAnswer(&a, lent, q, srvs, addrs, 40)
		if a.Truncate(len(a.Buf)-1) || a.Count[Additional] != 39 {
			t.Fatalf("Truncate: got %d additional records, want 39", a.Count[Additional])
		}
	})
	up := message(t, true, "www.example.org.", everyType())
	none("AppendRecord", func() {
		a.Reset(lent, up[HeaderLen:HeaderLen+21])
		for off := HeaderLen + 21; off < len(up); {
			next, err := a.AppendRecord(Answers, up, off)
			if err != nil {
				t.Fatal(err)
			}
			off = next
		}
	})
	bad := append(bytes.Clone(up[:HeaderLen+21]), "\xC0\x0C\x00\x02\x00\x01\x00\x00\x00\x00\x00\x02\xC0\xFF"...)
	none("AppendRecord, malformed", func() {
		a.Reset(lent, bad[HeaderLen:HeaderLen+21])
		if _, err := a.AppendRecord(Answers, bad, HeaderLen+21); err == nil {
			t.Fatal("AppendRecord of a malformed record: got no error")
		}
	})
	none("records and requests", func() {
		b := AppendRequest(lent, 1, FlagRD, q[:len(q)-4], TypeA)
		b = AppendAddress(b, OwnerIsQuestion, 5, netip.AddrFrom4([4]byte{10, 0, 0, 1}))
		b, _, _ = expand(b, up, HeaderLen)
		AppendText(b, q[:len(q)-4])
	})
}

func BenchmarkParse(b *testing.B) {
	for _, bb := range []struct {
		what   string
		packet packet
	}{
		{"plain", header(1, 0, 0, 0).add("\x03web\x04shop\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01")},
		{"edns", header(1, 0, 0, 1).add("\x03web\x04shop\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01" + opt)},
		{"cookie", header(1, 0, 0, 1).add("\x03web\x04shop\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01" + opt[:10] + "\x0C\x00\x0A\x00\x08ABCDEFGH")},
		{"127labels", header(1, 0, 0, 0).add(strings.Repeat("\x01a", 127) + "\x00\x00\x01\x00\x01")},
	} {
		b.Run(bb.what, func(b *testing.B) {
			var r Request
			b.ReportAllocs()
			for b.Loop() {
				r.Parse(bb.packet)
			}
		})
	}
}

// The most frequent answer: one address.
func BenchmarkAnswer(b *testing.B) {
	q := question(b, "web.shop.svc.cluster.local.")
	record := AppendAddress(nil, OwnerIsQuestion, 5, netip.AddrFrom4([4]byte{10, 96, 0, 1}))
	lent := make([]byte, 0, 512)
	var a Answer
	b.ReportAllocs()
	for b.Loop() {
		a.Reset(lent, q)
		a.Append(Answers, record, 1)
		a.Truncate(512)
		PutHeader(a.Buf, 1, FlagQR, 1, a.Count, 0)
	}
}

func BenchmarkCompress(b *testing.B) {
	lent, spare := make([]byte, 0, MaxMessage), make([]byte, 0, MaxMessage)
	run := func(what string, q, answers, additional []byte, n int) {
		b.Run(what, func(b *testing.B) {
			var a Answer
			b.ReportAllocs()
			for b.Loop() {
				a.Reset(lent, q)
				a.Append(Answers, answers, n)
				a.Append(Additional, additional, n)
				a.Compress(spare, MaxMessage)
			}
		})
	}
	q := question(b, "_http._tcp.web.shop.svc.cluster.local.")
	one := AppendAddress(nil, OwnerIsQuestion, 5, netip.AddrFrom4([4]byte{10, 0, 0, 1}))
	run("60xA", q, bytes.Repeat(one, 60), nil, 60)
	srvs, addrs := srvRecords(b, 10)
	run("10xSRV+A", q, srvs, addrs, 10)
	srvs, addrs = srvRecords(b, 250)
	run("250xSRV+A", q, srvs, addrs, 250)

	// The worst case: the table is full, so each of the 127 suffixes of every
	// other name is looked up and not found.
	var hostile []byte
	for i := range 250 {
		name := strings.Repeat(fmt.Sprintf("\x01%c", 'a'+i%26), 125) + fmt.Sprintf("\x02%02x\x00", i)
		hostile = AppendAddress(hostile, name, 5, netip.AddrFrom4([4]byte{10, 0, 0, 1}))
	}
	run("64KBhostile", question(b, "."), hostile, nil, 250)
}

func BenchmarkTruncate(b *testing.B) {
	q := question(b, "_http._tcp.web.shop.svc.cluster.local.")
	srvs, addrs := srvRecords(b, 20)
	lent := make([]byte, 0, 8192)
	var a Answer
	b.ReportAllocs()
	for b.Loop() {
		srvAnswer(&a, lent, q, srvs, addrs, 20)
		a.Truncate(1232)
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	up := message(b, true, "www.example.org.", []string{
		"www.example.org. 300 IN CNAME web.example.org.", "web.example.org. 300 IN A 192.0.2.1"})
	lent := make([]byte, 0, 1024)
	var a Answer
	b.ReportAllocs()
	for b.Loop() {
		a.Reset(lent, up[HeaderLen:HeaderLen+21])
		next, _ := a.AppendRecord(Answers, up, HeaderLen+21)
		a.AppendRecord(Answers, up, next)
	}
}
