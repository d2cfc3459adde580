package dynupdate_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

var (
	coredns = flag.String("coredns", "", "the path of CoreDNS's program, which receives the same updates")
	zones   = flag.Int("zones", 60, "the number of zones that are compared with CoreDNS's")
	first   = flag.Uint64("seed", 1, "the seed of the random updates")
)

// relativeSeed is the zone file of the zones that are compared.
const relativeSeed = `$TTL 60
@ SOA ns hostmaster 10 3600 600 86400 30
@ NS ns
@ NS ns2
ns A 192.0.2.53
ns2 A 192.0.2.54
a A 192.0.2.1
a A 192.0.2.2
a TXT "one"
m MX 10 Mail
alias CNAME a
*.wild TXT "wild"
sub NS ns.sub
ns.sub A 192.0.2.55
`

// A peer is one of the two servers.
type peer struct {
	t    *testing.T
	addr string
}

// startPeer starts a server with zones z0.test, z1.test and so on.
func startPeer(t *testing.T, command func(dir string) *exec.Cmd) *peer {
	t.Helper()
	dir, port := t.TempDir(), freeport.Reserve(t)
	var text strings.Builder
	for i := range *zones {
		fmt.Fprintf(&text, "z%d.test:%s {\n bind 127.0.0.1\n tsig {\n  secret key. %s\n  secret narrow. %[3]s\n  secret other. %[3]s\n }\n"+
			" dynupdate {\n  file seed\n  allow key. * *\n  allow narrow. a.z%[1]d.test A\n }\n transfer {\n  to *\n }\n}\n", i, port, secret)
	}
	for name, text := range map[string]string{"Corefile": text.String(), "seed": relativeSeed} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	c := command(dir)
	c.Dir, c.Stderr = dir, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	p := &peer{t, net.JoinHostPort("127.0.0.1", port)}
	chaintest.Eventually(t, "the server answers", func() bool {
		_, err := mdns.Exchange(new(mdns.Msg).SetQuestion("z0.test.", mdns.TypeSOA), p.addr)
		return err == nil
	})
	return p
}

// send sends an update, signed by key unless that is "", and returns the response code.
func (p *peer) send(m *mdns.Msg, key string) string {
	p.t.Helper()
	c := &mdns.Client{Net: "tcp", Timeout: patience}
	m = m.Copy()
	if key != "" {
		c.TsigSecret = map[string]string{key: secret}
		m.SetTsig(key, mdns.HmacSHA256, 300, time.Now().Unix())
	}
	r, _, err := c.Exchange(m, p.addr)
	if r == nil {
		p.t.Fatalf("%v\n%v", err, m)
	}
	return fmt.Sprintf("%s aa=%v signed=%v", mdns.RcodeToString[r.Rcode], r.Authoritative, r.IsTsig() != nil)
}

// records returns the records of a zone, in lower case.
func (p *peer) records(zone string) []string {
	p.t.Helper()
	var lines []string
	envelopes, err := new(mdns.Transfer).In(new(mdns.Msg).SetAxfr(zone), p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	for e := range envelopes {
		if e.Error != nil {
			p.t.Fatal(zone, e.Error)
		}
		for _, rr := range e.RR {
			lines = append(lines, strings.ToLower(rr.String()))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// randomRecord returns a record of a prerequisite or a change.
func randomRecord(r *rand.Rand, zone string, isChange bool) mdns.RR {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	name := pick("a", "a", "a", "A", "alias", "m", "x", "x", "y.x", "*.wild", "wild", "sub", "ns.sub", "ns2", "@", "@")
	if name == "@" {
		name = zone
	} else {
		name += "." + zone
	}
	if r.IntN(40) == 0 {
		name = "other.example."
	}
	data := pick("A 192.0.2.1", "A 192.0.2.2", "A 192.0.2.9", "A 192.0.2.9", "AAAA 2001:db8::1", `TXT "one"`, `TXT "two" "three"`,
		"CNAME a."+zone, "CNAME b."+zone, "NS ns."+zone, "NS NS2."+zone, "NS new."+zone, "MX 10 mail."+zone, "MX 20 mail."+zone,
		"SRV 0 0 80 a."+zone, "PTR a."+zone, "SOA ns hostmaster "+pick("0", "9", "10", "11", "20", "4294967295")+" 1 2 3 4",
		"CAA 0 issue \"ca.example\"")
	if r.IntN(25) == 0 {
		data = pick("DS 1 8 2 "+strings.Repeat("0a", 32), "CDS 0 0 0 00", "ZONEMD 1 1 1 "+strings.Repeat("0a", 48))
	}
	rr, err := mdns.NewRR(name + " 60 " + data)
	if err != nil {
		panic(err)
	}

	h := rr.Header()
	empty := &mdns.ANY{Hdr: *h}
	switch kind := r.IntN(20); {
	case isChange && kind < 8: // an addition
		return rr
	case isChange && kind < 12, !isChange && kind < 8: // a deletion, or a record that must exist
		h.Ttl = 0
		if isChange {
			h.Class = mdns.ClassNONE
		}
		return rr
	case kind < 18: // of an RRset or a name
		empty.Hdr.Ttl, empty.Hdr.Class = 0, mdns.ClassANY
		if !isChange && r.IntN(2) == 0 {
			empty.Hdr.Class = mdns.ClassNONE
		}
		if r.IntN(3) == 0 {
			empty.Hdr.Rrtype = mdns.TypeANY
		}
		return empty
	}

	// What the RFC excludes. A TSIG or OPT record here is FORMERR before the update is read.
	switch r.IntN(4) {
	case 0:
		h.Class = mdns.ClassANY
		h.Ttl = 0
		return rr
	case 1:
		h.Class = mdns.ClassNONE
		return rr
	case 2:
		empty.Hdr.Class, empty.Hdr.Ttl = mdns.ClassANY, 60
		return empty
	}
	empty.Hdr.Class, empty.Hdr.Ttl, empty.Hdr.Rrtype = mdns.ClassANY, 0, []uint16{mdns.TypeAXFR, mdns.TypeMAILB, mdns.TypeNone}[r.IntN(3)]
	return empty
}

// The same updates have the same response codes and results as in CoreDNS.
func TestCoreDNS(t *testing.T) {
	if *coredns == "" {
		t.Skip("it needs -coredns: make test-coredns")
	}
	own := startPeer(t, func(dir string) *exec.Cmd { return program.Command(t, dir, "-conf", "Corefile") })
	theirs := startPeer(t, func(string) *exec.Cmd { return exec.CommandContext(t.Context(), *coredns, "-conf", "Corefile") })

	seen := map[string]int{}
	for i := range *zones {
		r := rand.New(rand.NewPCG(*first, uint64(i)))
		zone := fmt.Sprintf("z%d.test.", i)
		for range 20 {
			m := new(mdns.Msg).SetUpdate(zone)
			if r.IntN(3) == 0 {
				for range 1 + r.IntN(2) {
					m.Answer = append(m.Answer, randomRecord(r, zone, false))
				}
			}
			for range r.IntN(4) {
				m.Ns = append(m.Ns, randomRecord(r, zone, true))
			}
			key := []string{"key.", "key.", "key.", "key.", "key.", "key.", "narrow.", "narrow.", "other.", ""}[r.IntN(10)]

			got, want := own.send(m, key), theirs.send(m, key)
			seen[want]++
			after, expected := own.records(zone), theirs.records(zone)
			if got != want || !slices.Equal(after, expected) {
				t.Errorf("%s, seed %d: signed with %q\n%v\ngot %s and the records\n%s\nCoreDNS: %s\n%s", zone, *first, key, m, got,
					strings.Join(except(after, expected), "\n"), want, strings.Join(except(expected, after), "\n"))
				break // from here on the zones may differ
			}
		}
	}
	t.Logf("replies of CoreDNS: %v", seen)
	if len(seen) < 8 {
		t.Errorf("got %d different replies, want at least 8: the updates are not what they should be", len(seen))
	}
}

// except returns the lines that are not in others.
func except(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return slices.Contains(others, l) })
}
