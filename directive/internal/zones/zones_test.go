package zones

import (
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/zonefile"
)

// A handler answers from a zone and keeps what Answer has set for other directives.
type handler struct {
	zone    *zone.Zone
	through config.Fallthrough
	verdict dns.Verdict
	atCut   bool
}

func (h *handler) ServeDNS(q *dns.Query) dns.Verdict {
	h.verdict = Answer(q, h.zone, nil, &h.through)
	h.atCut = q.AtCut
	return h.verdict
}

func TestAnswer(t *testing.T) {
	origin := chaintest.Name("example.org.")
	b := zone.NewBuilder(origin)
	add := func(r zonefile.Record) error { return b.Add(r.Spelled, r.Type, r.TTL, r.RData) }
	text := "@ SOA ns hostmaster 1 7200 1800 86400 5\n@ NS ns\nns A 192.0.2.1\nsub NS ns.sub\nns.sub A 192.0.2.2\n"
	if err := zonefile.ReadText("db", text, origin, 5, 0, add); err != nil {
		t.Fatal(err)
	}
	z := b.Zone()
	for _, tc := range []struct {
		name, qtype string
		through     bool
		verdict     dns.Verdict
		rcode       wire.RCode
		atCut       bool
	}{
		{"ns.example.org.", "A", false, dns.Done, wire.NoError, false},
		{"no.example.org.", "A", false, dns.Done, wire.NXDomain, false},
		{"no.example.org.", "A", true, dns.Next, wire.ServFail, false}, // at the end of the chain
		{"ns.example.org.", "AAAA", true, dns.Done, wire.NoError, false},
		{"sub.example.org.", "DS", false, dns.Done, wire.NoError, true}, // dnssec denies it with other types
		{"ns.example.org.", "DS", false, dns.Done, wire.NoError, false},
	} {
		h := &handler{zone: z, through: config.Fallthrough{On: tc.through}}
		s := chaintest.NewServer(t, map[string]*dns.Chain{"example.org.": chaintest.NewChain("file", h)})
		reply := s.Ask(chaintest.Query(tc.name, tc.qtype), dns.UDP)
		if h.verdict != tc.verdict || wire.RCode(reply.Rcode) != tc.rcode || h.atCut != tc.atCut {
			t.Errorf("%s %s, fallthrough %v: got verdict %v, %v, at a cut %v; want %v, %v, %v", tc.name, tc.qtype,
				tc.through, h.verdict, wire.RCode(reply.Rcode), h.atCut, tc.verdict, tc.rcode, tc.atCut)
		}
	}
}
