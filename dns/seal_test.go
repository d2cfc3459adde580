package dns

import (
	"encoding/binary"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

func TestRejectedRequests(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{"zone": chain(serve(addresses(1))), "empty.zone": chain()})
	edit := func(f func(m *mdns.Msg)) *mdns.Msg {
		m := newQuery("a.zone", mdns.TypeA)
		f(m)
		return m
	}
	for _, c := range []struct {
		name  string
		m     *mdns.Msg
		rcode int // -1 if the packet is ignored
	}{
		{"ordinary", edit(func(m *mdns.Msg) {}), mdns.RcodeSuccess},
		{"a reply", edit(func(m *mdns.Msg) { m.Response = true }), -1},
		{"no question", edit(func(m *mdns.Msg) { m.Question = nil }), mdns.RcodeFormatError},
		{"two questions", edit(func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }), mdns.RcodeFormatError},
		{"NOTIFY without question", edit(func(m *mdns.Msg) { m.Opcode, m.Question = mdns.OpcodeNotify, nil }), mdns.RcodeFormatError},
		{"opcode NOTIFY", edit(func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }), mdns.RcodeNotImplemented},
		{"opcode STATUS without question", edit(func(m *mdns.Msg) { m.Opcode, m.Question = mdns.OpcodeStatus, nil }), mdns.RcodeNotImplemented},
		{"class CH", edit(func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS }), mdns.RcodeRefused},
		{"class ANY", edit(func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassANY }), mdns.RcodeRefused},
		{"name in no zone", newQuery("a.other", mdns.TypeA), mdns.RcodeRefused},
		{"empty server block", newQuery("a.empty.zone", mdns.TypeA), mdns.RcodeRefused},
		{"EDNS version 1", edit(func(m *mdns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), mdns.RcodeBadVers},
	} {
		outcome, reply := r.ask(c.m)
		switch {
		case c.rcode < 0 && outcome != Ignored:
			t.Errorf("%s: got outcome %v, reply %v; want %v", c.name, outcome, reply, Ignored)
		case c.rcode < 0:
		case outcome != Answered || reply.Rcode != c.rcode:
			t.Errorf("%s: got %v, want %s", c.name, reply, mdns.RcodeToString[c.rcode])
		case reply.Id != c.m.Id || !reply.Response || reply.RecursionDesired != c.m.RecursionDesired || reply.Opcode != c.m.Opcode:
			t.Errorf("%s: got header %v, want the ID, RD and opcode of %v", c.name, reply.MsgHdr, c.m.MsgHdr)
		case c.rcode != mdns.RcodeSuccess && len(reply.Answer) > 0:
			t.Errorf("%s: got records in an error reply, want none: %v", c.name, reply)
		}
	}
}

// A reply has an OPT record only if the request has one, copies DO, and echoes no
// options (RFC 6891).
func TestReplyOPT(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(addresses(1)))})
	if _, reply := r.ask(newQuery("a.zone", mdns.TypeA)); reply.IsEdns0() != nil {
		t.Errorf("request without OPT: got %v, want no OPT", reply)
	}
	for _, do := range []bool{false, true} {
		m := newQuery("a.zone", mdns.TypeA)
		m.SetEdns0(4096, do)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_NSID{Code: mdns.EDNS0NSID}, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")})
		_, reply := r.ask(m)
		opt := reply.IsEdns0()
		if opt == nil || opt.Do() != do || opt.UDPSize() != 1232 || opt.Version() != 0 || len(opt.Option) != 0 {
			t.Errorf("DO %v: got OPT %v, want size 1232, version 0, the same DO and no options", do, opt)
		}
	}
}

// An answer that is too large for TCP is truncated as over UDP. kube-dns answers
// SERVFAIL.
func TestAnswerTooLargeForTCP(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(addresses(5000)))})
	packet, err := newQuery("a.zone", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	_, reply := r.askBytes(packet, TCP)
	if reply.Rcode != mdns.RcodeSuccess || !reply.Truncated || len(reply.Answer) < 4000 {
		t.Errorf("5000 addresses: got %s, TC %v, %d answers; want NOERROR, true, at least 4000", mdns.RcodeToString[reply.Rcode], reply.Truncated, len(reply.Answer))
	}
}

// Over UDP a reply has at most the client's size, from 512 to 4096 bytes; over
// TCP it is complete. It has TC only if answer records were removed.
func TestReplySizes(t *testing.T) {
	limit := func(size uint16) serve {
		return func(q *Query) Verdict {
			if q.Proto == UDP {
				q.ReplyLimit = int(size)
			}
			return Next
		}
	}
	r := newRig(t, 1, map[string]*Chain{
		".":    chain(addresses(300)),
		"more": chain(limit(4096), addresses(300)),
		"less": chain(limit(600), addresses(300)),
	})
	for _, c := range []struct {
		zone       string
		size, want int
		proto      Proto
		tc         bool
	}{
		{"zone", 0, 512, UDP, true}, {"zone", 100, 512, UDP, true}, {"zone", 512, 512, UDP, true}, {"zone", 1232, 1232, UDP, true},
		{"zone", 4096, 1232, UDP, true}, {"zone", 65535, 1232, UDP, true}, {"zone", 0, 65535, TCP, false},
		{"more", 0, 512, UDP, true}, {"more", 4096, 4096, UDP, true}, {"more", 65535, 4096, UDP, true},
		{"less", 0, 512, UDP, true}, {"less", 4096, 600, UDP, true}, {"less", 0, 65535, TCP, false},
	} {
		m := newQuery("a."+c.zone, mdns.TypeA)
		if c.size > 0 {
			m.SetEdns0(uint16(c.size), false)
		}
		packet, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		_, reply := r.askBytes(packet, c.proto)
		size := reply.Len()
		if reply.Compress = true; reply.Len() < size {
			size = reply.Len()
		}
		if size > c.want || reply.Truncated != c.tc || c.tc && size < c.want-16 || !c.tc && len(reply.Answer) != 300 {
			t.Errorf("%s, %v with size %d: got %d bytes, %d answers, TC %v; want at most %d bytes, TC %v", c.zone, c.proto, c.size, size, len(reply.Answer), reply.Truncated, c.want, c.tc)
		}
		if (reply.IsEdns0() != nil) != (c.size > 0) {
			t.Errorf("%v with size %d: got OPT %v, want OPT %v", c.proto, c.size, reply.IsEdns0() != nil, c.size > 0)
		}
	}
}

// A large message is compressed, and starts at the beginning of the lent memory.
func TestSealLargeMessageInLentMemory(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(addresses(100)))})
	m := newQuery("a.zone", mdns.TypeA)
	m.SetEdns0(4096, false)
	packet, _ := m.Pack()
	q := NewQuery(r)
	lent := make([]byte, 0, 1<<17)
	q.Reset(packet, UDP, q.Start)
	r.port.Serve(q, lent)
	if &q.Reply()[0] != &lent[:1][0] {
		t.Errorf("the reply is at %p, want %p, the beginning of the lent memory", &q.Reply()[0], &lent[:1][0])
	}
	if id := binary.BigEndian.Uint16(lent[:2]); id != m.Id {
		t.Errorf("got ID %d, want %d", id, m.Id)
	}
}

// A padded query over an encrypted transport gets a padded reply, and one with the option
// keepalive the idle timeout. Other queries get neither.
func TestConnectionOptions(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(addresses(3)))})
	for _, c := range []struct {
		name           string
		encrypted, pad bool
		keepalive      bool
		idle           time.Duration
		wantPad        bool
		wantTimeout    uint16
	}{
		{name: "padded", encrypted: true, pad: true, wantPad: true},
		{name: "padded, without encryption", pad: true},
		{name: "not padded", encrypted: true},
		{name: "padded, keepalive", encrypted: true, pad: true, keepalive: true, idle: 10 * time.Second, wantPad: true, wantTimeout: 100},
		{name: "keepalive", keepalive: true, idle: 2 * time.Hour, wantTimeout: 65535},
		{name: "keepalive, without connection", keepalive: true},
	} {
		m := newQuery("a.zone", mdns.TypeA)
		m.SetEdns0(1232, false)
		opt := m.IsEdns0()
		if c.pad {
			opt.Option = append(opt.Option, &mdns.EDNS0_PADDING{Padding: make([]byte, 20)})
		}
		if c.keepalive {
			opt.Option = append(opt.Option, &mdns.EDNS0_TCP_KEEPALIVE{Code: mdns.EDNS0TCPKEEPALIVE})
		}
		packet, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		q := NewQuery(r)
		q.Reset(packet, TCP, time.Now())
		q.Encrypted, q.IdleTimeout = c.encrypted, c.idle
		if r.port.Serve(q, make([]byte, 0, 1<<17)) != Answered {
			t.Fatalf("%s: got no answer", c.name)
		}
		padded, timeout := false, uint16(0)
		for _, o := range unpack(t, q.Reply()).IsEdns0().Option {
			switch o := o.(type) {
			case *mdns.EDNS0_PADDING:
				padded = true
			case *mdns.EDNS0_TCP_KEEPALIVE:
				timeout = o.Timeout
			}
		}
		if size := len(q.Reply()); padded != c.wantPad || padded && size%468 != 0 || timeout != c.wantTimeout {
			t.Errorf("%s: got %d bytes, padding %v, timeout %d; want padding %v to 468 bytes, timeout %d", c.name, size, padded, timeout, c.wantPad, c.wantTimeout)
		}
		q.Observe(time.Now())
	}

	// The reply to a padded query takes no more allocations than another.
	padded := newQuery("a.zone", mdns.TypeA).SetEdns0(1232, false)
	opt := padded.IsEdns0()
	opt.Option = append(opt.Option, &mdns.EDNS0_PADDING{Padding: make([]byte, 20)})
	packet, err := padded.Pack()
	if err != nil {
		t.Fatal(err)
	}
	q, lent, now := NewQuery(r), make([]byte, 0, 1<<17), time.Now()
	allocations := func(encrypted bool) float64 {
		return testing.AllocsPerRun(100, func() {
			q.Reset(packet, TCP, now)
			q.Encrypted = encrypted
			r.port.Serve(q, lent)
			q.Observe(now)
		})
	}
	if with, without := allocations(true), allocations(false); with > without {
		t.Errorf("a padded reply takes %v allocations, want %v as without padding", with, without)
	}

	for size := range 2000 {
		if n := paddingOf(size); n < 4 || n > 471 || (size+n)%468 != 0 {
			t.Errorf("paddingOf(%d) = %d, want 4..471 bytes that complete a block", size, n)
		}
	}
	if n := paddingOf(65530); n != 0 {
		t.Errorf("paddingOf(65530) = %d, want 0", n)
	}
}

// CVE-2026-42944: options that a query repeats are answered once. The reply to a padded and signed
// query is as large as a message may be, and no larger.
func TestConnectionOptionsRepeated(t *testing.T) {
	records := 0
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(func(q *Query) Verdict {
		q.Signature = &Signature{Size: 200, Append: func(message []byte) []byte { return append(message, make([]byte, 200)...) }}
		return addresses(records)(q)
	}))})
	m := newQuery("a.zone", mdns.TypeA)
	m.SetEdns0(1232, false)
	opt := m.IsEdns0()
	for range 4000 {
		opt.Option = append(opt.Option, &mdns.EDNS0_TCP_KEEPALIVE{Code: mdns.EDNS0TCPKEEPALIVE}, &mdns.EDNS0_PADDING{Padding: make([]byte, 2)})
	}
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}

	for _, records = range []int{1, 4050, 4060, 4065, 4070, 4075, 4080, 4085, 4090, 4200} {
		q := NewQuery(r)
		q.Reset(packet, TCP, time.Now())
		q.Encrypted, q.IdleTimeout = true, time.Second
		if r.port.Serve(q, make([]byte, 0, 1<<18)) != Answered {
			t.Fatalf("%d records: got no answer", records)
		}
		size := len(q.Reply())
		if size > wire.MaxMessage {
			t.Errorf("%d records: got a reply of %d bytes, want at most %d", records, size, wire.MaxMessage)
		}
		counts := map[uint16]int{}
		for _, o := range unpack(t, q.Reply()[:size-200]).IsEdns0().Option {
			counts[o.Option()]++
		}
		if counts[wire.OptionKeepalive] > 1 || counts[wire.OptionPadding] > 1 || records == 1 && len(counts) != 2 {
			t.Errorf("%d records: got %v options by code, want at most one of each", records, counts)
		}
		q.Observe(time.Now())
	}
}

// A code above 15 needs an OPT record. A client without EDNS gets SERVFAIL, not the lower bits.
func TestExtendedRCodeWithoutEDNS(t *testing.T) {
	for code, want := range map[wire.RCode]int{0: 0, 3: 3, 15: 15, 16: 2, 17: 2, 23: 2, 32: 2, 4095: 2} {
		r := newRig(t, 1, map[string]*Chain{".": chain(serve(func(q *Query) Verdict { q.RCode = code; return Done }))})
		m := newQuery("a.zone", mdns.TypeA)
		if _, reply := r.ask(m); reply.Rcode != want {
			t.Errorf("code %d without EDNS: got %d, want %d", code, reply.Rcode, want)
		}

		m.SetEdns0(1232, false)
		if _, reply := r.ask(m); reply.Rcode != int(code) {
			t.Errorf("code %d with EDNS: got %d, want %d", code, reply.Rcode, code)
		}
	}
}
