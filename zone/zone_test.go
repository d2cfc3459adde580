package zone_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/zonefile"
)

// read returns a zone with the records of a zone file. skip, unless it is nil, is
// called for records that cannot be added.
func read(t testing.TB, origin, text string, skip func(zonefile.Record, error)) *zone.Zone {
	t.Helper()
	name, err := wire.ParseName(origin)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := zone.NewBuilder(name)
	_, err = zonefile.Read(file, name, func(r zonefile.Record) error {
		err := b.Add(r.Spelled, r.Type, r.TTL, r.RData)
		if errors.Is(err, zone.ErrCNAMEConflict) {
			return nil
		}
		if err != nil && skip != nil {
			skip(r, err)
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s\nerror %v", text, err)
	}
	return b.Zone()
}

// A reply is the result of a Lookup, with the answer as a message.
type reply struct {
	*dns.Msg
	zone.Result
}

// ask looks up a name in z.
func ask(t testing.TB, z *zone.Zone, name string, qtype uint16, do bool) reply {
	t.Helper()
	owner, err := wire.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	var r wire.Request
	packet := wire.AppendRequest(nil, 0, 0, []byte(owner), wire.Type(qtype))
	if fault := r.Parse(packet); fault != wire.NoFault {
		t.Fatalf("%s %s: got fault %v, want a valid query", name, dns.Type(qtype), fault)
	}
	r.DO = do
	var a wire.Answer
	a.Reset(make([]byte, 0, 4096), r.Question(packet))
	found := z.Lookup(&r, &a, zone.Scope{})
	found.Target = slices.Clone(found.Target)
	wire.PutHeader(a.Buf, 0, wire.FlagQR|uint16(found.RCode), 1, a.Count, 0)
	m := new(dns.Msg)
	if err := m.Unpack(a.Buf); err != nil {
		t.Fatalf("%s %s: got error %v, want a message\n%x", name, dns.Type(qtype), err, a.Buf)
	}
	return reply{m, found}
}

// text returns a reply as text, with the records of each section sorted.
func (r reply) text() string {
	target := ""
	if r.Target != nil {
		target = wire.Name(r.Target).String()
	}
	return show(int(r.RCode), r.AA, r.Missing, target, r.Answer, r.Ns, r.Extra)
}

func show(code int, aa, missing bool, target string, sections ...[]dns.RR) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s aa=%v missing=%v target=%s\n", dns.RcodeToString[code], aa, missing, target)
	for i, rrs := range sections {
		var lines []string
		for _, rr := range rrs {
			lines = append(lines, rr.String())
		}
		slices.Sort(lines)
		fmt.Fprintf(&b, "%d: %s\n", i, strings.Join(lines, "\n   "))
	}
	return b.String()
}

// A naive zone is a list of records. It is searched label by label from the apex
// down, as RFC 1034 §4.3.2 describes.
type naive struct {
	origin string
	rrs    []dns.RR
}

func (n *naive) at(name string, t uint16) (found []dns.RR) {
	for _, rr := range n.rrs {
		if rr.Header().Name == name && (rr.Header().Rrtype == t || t == dns.TypeANY) {
			found = append(found, rr)
		}
	}
	return found
}

func (n *naive) exists(name string) bool {
	return slices.ContainsFunc(n.rrs, func(rr dns.RR) bool { return dns.IsSubDomain(name, rr.Header().Name) })
}

func (n *naive) cut(name string) bool {
	return name != n.origin && !strings.HasPrefix(name, "*.") && len(n.at(name, dns.TypeNS)) > 0
}

// authoritative reports whether name is neither at or below a delegation nor below a
// DNAME record.
func (n *naive) authoritative(name string) bool {
	if n.cut(name) {
		return false
	}
	for up := name; up != n.origin; {
		up = up[strings.Index(up, ".")+1:]
		if n.cut(up) || len(n.at(up, dns.TypeDNAME)) > 0 {
			return false
		}
	}
	return true
}

func (n *naive) negative() []dns.RR {
	soa := dns.Copy(n.at(n.origin, dns.TypeSOA)[0]).(*dns.SOA)
	soa.Hdr.Ttl = min(soa.Hdr.Ttl, soa.Minttl)
	return []dns.RR{soa}
}

// renamed returns copies with another owner name.
func renamed(rrs []dns.RR, owner string) (out []dns.RR) {
	for _, rr := range rrs {
		rr = dns.Copy(rr)
		rr.Header().Name = owner
		out = append(out, rr)
	}
	return out
}

func (n *naive) additional(rrs []dns.RR) (out []dns.RR) {
	seen := map[string]bool{}
	for _, rr := range rrs {
		target := ""
		switch rr := rr.(type) {
		case *dns.NS:
			target = rr.Ns
		case *dns.MX:
			target = rr.Mx
			if dns.IsSubDomain(n.origin, target) && !n.authoritative(target) {
				continue
			}
		}
		if !seen[target] {
			seen[target] = true
			out = append(append(out, n.at(target, dns.TypeA)...), n.at(target, dns.TypeAAAA)...)
		}
	}
	return out
}

func (n *naive) ask(qname string, qtype uint16) string {
	var answer []dns.RR
	asked := map[string]bool{}
	for name := qname; ; {
		if asked[name] {
			return show(dns.RcodeServerFailure, true, false, "", answer, nil, nil)
		}
		asked[name] = true
		if !dns.IsSubDomain(n.origin, name) {
			return show(dns.RcodeSuccess, true, false, name, answer, nil, nil)
		}
		labels := dns.SplitDomainName(name)
		at := n.origin
		var found []dns.RR // the records of the name, or of the wildcard that applies
		for depth := len(labels) - dns.CountLabel(n.origin); ; depth-- {
			if n.cut(at) && !(at == name && qtype == dns.TypeDS) {
				if len(answer) > 0 {
					return show(dns.RcodeSuccess, true, false, name, answer, nil, nil)
				}
				ns := n.at(at, dns.TypeNS)
				return show(dns.RcodeSuccess, false, false, "", nil, ns, n.additional(ns))
			}
			if at == name {
				found = n.at(name, dns.TypeANY)
				break
			}
			if d := n.at(at, dns.TypeDNAME); len(d) > 0 {
				to := strings.TrimSuffix(name, at) + d[0].(*dns.DNAME).Target
				c := &dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: 1, Ttl: d[0].Header().Ttl}, Target: to}
				if !slices.Contains(answer, d[0]) {
					answer = append(answer, d[0])
				}
				if len(to) > 254 {
					return show(dns.RcodeYXDomain, true, false, "", answer, nil, nil)
				}
				answer = append(answer, c)
				if qtype == dns.TypeCNAME || qtype == dns.TypeANY {
					return show(dns.RcodeSuccess, true, false, "", answer, nil, nil)
				}
				found = []dns.RR{c}
				break
			}
			if next := strings.Join(labels[depth-1:], ".") + "."; n.exists(next) {
				at = next
				continue
			}
			if n.exists("*." + at) {
				found = renamed(n.at("*."+at, dns.TypeANY), name)
				break
			}
			return show(dns.RcodeNameError, true, len(answer) == 0, "", answer, n.negative(), nil)
		}
		next := ""
		var matching []dns.RR
		for _, rr := range found {
			if qtype == dns.TypeANY || rr.Header().Rrtype == qtype {
				matching = append(matching, rr)
			}
		}
		for _, rr := range found {
			if c, ok := rr.(*dns.CNAME); ok && len(matching) == 0 {
				next = c.Target
				if !slices.Contains(answer, rr) {
					answer = append(answer, rr)
				}
			}
		}
		if next == "" {
			if len(matching) == 0 {
				return show(dns.RcodeSuccess, true, false, "", answer, n.negative(), nil)
			}
			extra := n.additional(matching)
			if qtype == dns.TypeANY {
				extra = nil
			}
			return show(dns.RcodeSuccess, true, false, "", append(answer, matching...), nil, extra)
		}
		name = next
	}
}

// random returns a zone file with few different names, so that records interact.
func random(rng *rand.Rand) string {
	name := func() string {
		labels := []string{"a", "b", "c", "*"}
		n := rng.IntN(4)
		s := ""
		for range n {
			s += labels[rng.IntN(len(labels))] + "."
		}
		return s + "z."
	}
	var b strings.Builder
	b.WriteString("$TTL 60\nz. SOA a. b. 1 2 3 4 30\n")
	for range 2 + rng.IntN(12) {
		owner := name()
		target := name()
		if rng.IntN(8) == 0 {
			target = "elsewhere."
		}
		switch rng.IntN(12) {
		case 0, 1, 2:
			fmt.Fprintf(&b, "%s A 192.0.2.%d\n", owner, rng.IntN(4))
		case 3:
			fmt.Fprintf(&b, "%s AAAA 2001:db8::%d\n", owner, rng.IntN(4))
		case 4, 5:
			fmt.Fprintf(&b, "%s MX 1 %s\n", owner, target)
		case 6, 7, 8:
			fmt.Fprintf(&b, "%s CNAME %s\n", owner, target)
		case 9:
			if !strings.HasPrefix(owner, "*.") {
				fmt.Fprintf(&b, "%s DNAME %s\n", owner, target)
			}
		case 10:
			fmt.Fprintf(&b, "%s NS %s\n", owner, target)
			if rng.IntN(2) == 0 {
				fmt.Fprintf(&b, "%s DS 1 13 2 %064d\n", owner, 0)
			}
		case 11:
			fmt.Fprintf(&b, "%s TXT %q\n", owner, "x")
		}
	}
	return b.String()
}

// every calls f with each name of up to four labels in z., and with every type
// that random zones have.
func every(f func(name string, t uint16)) {
	names := []string{"z."}
	for i := 0; i < len(names) && strings.Count(names[i], ".") < 5; i++ {
		for _, label := range []string{"a", "b", "c", "*", "no"} {
			names = append(names, label+"."+names[i])
		}
	}
	for _, name := range names {
		for _, t := range []uint16{dns.TypeA, dns.TypeMX, dns.TypeCNAME, dns.TypeDS, dns.TypeNS, dns.TypeANY, dns.TypeDNAME} {
			f(name, t)
		}
	}
}

// Lookup in random zones returns the same as the naive zone.
func TestZoneAgainstNaive(t *testing.T) {
	rounds := race.Fewer(40)
	if testing.Short() {
		rounds = 3
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		text := random(rng)
		n := &naive{origin: "z."}
		z := read(t, "z.", text, func(r zonefile.Record, err error) {
			if !strings.Contains(err.Error(), "a second CNAME") && !strings.Contains(err.Error(), "a second DNAME") {
				t.Errorf("seed %d: Add %s %s: got error %v, want none", seed, r.Owner, r.Type, err)
			}
		})
		n.rrs = keep(t, text)
		bad := 0
		every(func(name string, qtype uint16) {
			if bad > 2 || strings.Count(name, ".") > 4 && rng.IntN(8) > 0 {
				return
			}
			got, want := ask(t, z, name, qtype, false).text(), n.ask(name, qtype)
			if got != want && !long(want) {
				bad++
				t.Errorf("seed %d: %s %s\n%s\ngot\n%swant\n%s", seed, name, dns.Type(qtype), text, got, want)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// long reports whether a chain has more CNAME records than Lookup follows.
func long(text string) bool { return strings.Count(text, "\tCNAME\t") > 7 }

// keep returns the records that a zone accepts: the first of conflicting records, and
// of duplicates.
func keep(t *testing.T, text string) (kept []dns.RR) {
	p := dns.NewZoneParser(strings.NewReader(text), ".", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		h := rr.Header()
		clash := false
		for _, k := range kept {
			if k.Header().Name != h.Name {
				continue
			}
			one := h.Rrtype == dns.TypeCNAME || h.Rrtype == dns.TypeDNAME
			clash = clash || one && k.Header().Rrtype == h.Rrtype || dns.IsDuplicate(k, rr)
		}
		if !clash {
			kept = append(kept, rr)
		}
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	return kept
}

// largeZone returns a zone like that of a cluster, with 15 endpoints for each Service.
func largeZone(tb testing.TB, services int) *zone.Zone {
	tb.Helper()
	const origin = "\x07cluster\x05local\x00"
	b := zone.NewBuilder(origin)
	add := func(owner string, t wire.Type, rdata string) {
		if err := b.Add(owner, t, 5, rdata); err != nil {
			tb.Fatal(err)
		}
	}
	add(origin, wire.TypeSOA, "\x02ns"+origin+"\x00"+strings.Repeat("\x00\x00\x00\x05", 5))
	for i := range services {
		service := fmt.Sprintf("\x07svc%04d\x05ns%03d\x03svc", i, i%100) + origin
		for j := range 15 {
			addr := string([]byte{10, byte(i >> 8), byte(i), byte(j)})
			endpoint := fmt.Sprintf("\x0910-00-%03d", j) + service
			add(service, wire.TypeA, addr)
			add(endpoint, wire.TypeA, addr)
			add("\x05_http\x04_tcp"+service, wire.TypeSRV, "\x00\x00\x00\x64\x1f\x90"+endpoint)
		}
	}
	return b.Zone()
}

func BenchmarkLookupLarge(b *testing.B) {
	const services = 4000
	z := largeZone(b, services)
	for _, c := range []struct {
		name, format string
		t            wire.Type
	}{
		{"address", "svc%04d.ns%03d.svc.cluster.local.", wire.TypeA},
		{"endpoint", "10-00-007.svc%04d.ns%03d.svc.cluster.local.", wire.TypeA},
		{"SRV", "_http._tcp.svc%04d.ns%03d.svc.cluster.local.", wire.TypeSRV},
		{"NXDOMAIN", "no.svc%04d.ns%03d.svc.cluster.local.", wire.TypeA},
		{"NODATA", "svc%04d.ns%03d.svc.cluster.local.", wire.TypeAAAA},
	} {
		b.Run(c.name, func(b *testing.B) {
			var packets [][]byte
			for i := range services {
				i = i * 7 % services
				owner, err := wire.ParseName(fmt.Sprintf(c.format, i, i%100))
				if err != nil {
					b.Fatal(err)
				}
				packets = append(packets, wire.AppendRequest(nil, 0, 0, []byte(owner), c.t))
			}
			var r wire.Request
			var a wire.Answer
			buf := make([]byte, 0, 8192)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				packet := packets[i%len(packets)]
				r.Parse(packet)
				a.Reset(buf, r.Question(packet))
				z.Lookup(&r, &a, zone.Scope{Server: noLimit{}})
			}
		})
	}
}

// noLimit is a server without other zones.
type noLimit struct{}

func (noLimit) ExceedsLimit() bool                   { return false }
func (noLimit) HasLongerZone(wire.Name, []byte) bool { return false }
