package dns

import (
	"encoding/binary"
	"testing"

	mdns "github.com/miekg/dns"
)

func TestRefusals(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{"zone": chain(serve(addresses(1))), "empty.zone": chain()})
	edit := func(f func(m *mdns.Msg)) *mdns.Msg {
		m := question("a.zone", mdns.TypeA)
		f(m)
		return m
	}
	for _, c := range []struct {
		name  string
		m     *mdns.Msg
		rcode int // -1: silence
	}{
		{"ordinary", edit(func(m *mdns.Msg) {}), mdns.RcodeSuccess},
		{"a reply", edit(func(m *mdns.Msg) { m.Response = true }), -1},
		{"no question", edit(func(m *mdns.Msg) { m.Question = nil }), -1},
		{"two questions", edit(func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }), mdns.RcodeFormatError},
		{"opcode NOTIFY", edit(func(m *mdns.Msg) { m.Opcode = mdns.OpcodeNotify }), mdns.RcodeNotImplemented},
		{"opcode STATUS without question", edit(func(m *mdns.Msg) { m.Opcode, m.Question = mdns.OpcodeStatus, nil }), mdns.RcodeNotImplemented},
		{"class CH", edit(func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS }), mdns.RcodeRefused},
		{"class ANY", edit(func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassANY }), mdns.RcodeRefused},
		{"nobody's zone", question("a.other", mdns.TypeA), mdns.RcodeRefused},
		{"a zone whose block is empty", question("a.empty.zone", mdns.TypeA), mdns.RcodeRefused},
		{"EDNS version 1", edit(func(m *mdns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), mdns.RcodeBadVers},
	} {
		outcome, reply := r.ask(c.m)
		switch {
		case c.rcode < 0 && outcome != Ignored:
			t.Errorf("%s: got %v, want silence", c.name, reply)
		case c.rcode < 0:
		case outcome != Answered || reply.Rcode != c.rcode:
			t.Errorf("%s: got %v, want %s", c.name, reply, mdns.RcodeToString[c.rcode])
		case reply.Id != c.m.Id || !reply.Response || reply.RecursionDesired != c.m.RecursionDesired || reply.Opcode != c.m.Opcode:
			t.Errorf("%s: header does not match the question's: %v", c.name, reply)
		case c.rcode != mdns.RcodeSuccess && len(reply.Answer) > 0:
			t.Errorf("%s: records in a refusal: %v", c.name, reply)
		}
	}
}

// EDNS: our OPT only to who sent one, DO copied, no option echoed (RFC 6891).
func TestOPT(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(addresses(1)))})
	if _, reply := r.ask(question("a.zone", mdns.TypeA)); reply.IsEdns0() != nil {
		t.Error("an OPT to a client that sent none")
	}
	for _, do := range []bool{false, true} {
		m := question("a.zone", mdns.TypeA)
		m.SetEdns0(4096, do)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_NSID{Code: mdns.EDNS0NSID}, &mdns.EDNS0_LOCAL{Code: 65001, Data: []byte("x")})
		_, reply := r.ask(m)
		opt := reply.IsEdns0()
		if opt == nil || opt.Do() != do || opt.UDPSize() != 1232 || opt.Version() != 0 || len(opt.Option) != 0 {
			t.Errorf("DO %v: got OPT %v", do, opt)
		}
	}
}

// What is too large for TCP, too, is cut as over UDP. kube-dns says SERVFAIL.
func TestTooLargeForTCP(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(addresses(5000)))})
	packet, err := question("a.zone", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	_, reply := r.askBytes(packet, TCP)
	if reply.Rcode != mdns.RcodeSuccess || !reply.Truncated || len(reply.Answer) < 4000 {
		t.Errorf("%s, TC %v, %d answers", mdns.RcodeToString[reply.Rcode], reply.Truncated, len(reply.Answer))
	}
}

// Sizes: the client's over UDP, from 512 to 4096; all of it over TCP. TC only
// if an answer had to go.
func TestSizes(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(addresses(300)))})
	for _, c := range []struct {
		size, want int
		proto      Proto
		tc         bool
	}{
		{0, 512, UDP, true}, {100, 512, UDP, true}, {512, 512, UDP, true}, {1232, 1232, UDP, true},
		{4096, 4096, UDP, true}, {65535, 4096, UDP, true}, {0, 65535, TCP, false},
	} {
		m := question("a.zone", mdns.TypeA)
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
			t.Errorf("%v with size %d: %d bytes, %d answers, TC %v", c.proto, c.size, size, len(reply.Answer), reply.Truncated)
		}
		if (reply.IsEdns0() != nil) != (c.size > 0) {
			t.Errorf("%v with size %d: the OPT was lost", c.proto, c.size)
		}
	}
}

// The longest zone wins; its parent answers for its DS.
func TestMux(t *testing.T) {
	named := func(n int) *Chain { return chain(serve(addresses(n))) }
	r := newRig(t, 1, map[string]*Chain{".": named(1), "local": named(2), "cluster.local": named(3), "a.b.c.d.e.example": named(4)})
	for _, c := range []struct {
		name  string
		qtype uint16
		want  int
	}{
		{".", mdns.TypeA, 1}, {"example", mdns.TypeA, 1}, {"xlocal", mdns.TypeA, 1}, {"local", mdns.TypeA, 2},
		{"x.LOCAL", mdns.TypeA, 2}, {"xcluster.local", mdns.TypeA, 2}, {"cluster.local", mdns.TypeA, 3},
		{"a.b.c.svc.Cluster.Local", mdns.TypeA, 3}, {"z.a.b.c.d.e.example", mdns.TypeA, 4}, {"b.c.d.e.example", mdns.TypeA, 1},
		{"cluster.local", mdns.TypeDS, 2}, {"x.cluster.local", mdns.TypeDS, 3}, {".", mdns.TypeDS, 1},
	} {
		if _, reply := r.ask(question(c.name, c.qtype)); len(reply.Answer) != c.want {
			t.Errorf("%s %s: chain %d, want %d", c.name, mdns.TypeToString[c.qtype], len(reply.Answer), c.want)
		}
	}
	if err := r.mux.Route("\x05local\x00", named(1)); err == nil {
		t.Error("a zone can be routed twice")
	}
}

// A large message is compressed, and stays where its memory begins.
func TestSealedMessageStaysInPlace(t *testing.T) {
	r := newRig(t, 1, map[string]*Chain{".": chain(serve(addresses(100)))})
	m := question("a.zone", mdns.TypeA)
	m.SetEdns0(4096, false)
	packet, _ := m.Pack()
	q := NewQuery(r)
	lent := make([]byte, 0, 1<<17)
	q.Reset(append(q.Buffer(len(packet))[:0], packet...), UDP, q.Start)
	r.port.Serve(q, lent)
	if &q.Reply()[0] != &lent[:1][0] {
		t.Error("the reply is not at the beginning of the lent memory")
	}
	if id := binary.BigEndian.Uint16(lent[:2]); id != m.Id {
		t.Errorf("id %d, want %d", id, m.Id)
	}
}
