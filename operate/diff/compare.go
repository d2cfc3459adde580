package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/operate/query"
	"github.com/seamark/seamark/sys/order"
)

// A record is a record of an answer section, without its TTL.
type record struct {
	owner string // lower case
	rtype uint16
	data  string // lower case, except for TXT
}

// An answer contains the compared parts of a reply.
type answer struct {
	rcode   string
	records map[record]uint32 // their TTLs
	twice   bool              // a record occurs twice
	soa     *dns.SOA          // of the authority section
	aa      bool
	whole   bool // not truncated
	passing bool // of another server: its TTLs and flags say nothing about this one
}

func newAnswer(m *dns.Msg) answer {
	a := answer{
		rcode: query.RCode(m), records: make(map[record]uint32, len(m.Answer)), aa: m.Authoritative,
		whole: !m.Truncated,
	}
	for _, rr := range m.Answer {
		h := rr.Header()
		data := strings.TrimPrefix(rr.String(), h.String())
		if h.Rrtype != dns.TypeTXT {
			data = strings.ToLower(data)
		}
		if soa, ok := rr.(*dns.SOA); ok { // the serial is different on each server
			data = strings.Replace(data, " "+strconv.FormatUint(uint64(soa.Serial), 10)+" ", " SERIAL ", 1)

		}
		r := record{strings.ToLower(h.Name), h.Rrtype, data}
		_, known := a.records[r]
		a.twice = a.twice || known
		a.records[r] = h.Ttl
	}

	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			a.soa = soa
		}
	}
	return a
}

// isCut reports whether all records were left out because they did not fit.
func (a answer) isCut() bool { return !a.whole && len(a.records) == 0 }

// outcome describes the response code and whether there are records.
func (a answer) outcome() string {
	switch {
	case a.rcode == "NOERROR" && len(a.records) == 0:
		return "NODATA"
	case a.rcode == "NOERROR":
		return "records"
	case len(a.records) > 0:
		return a.rcode + " with records"
	}
	return a.rcode
}

// difference returns the cause of the difference between two answers; "" if they are the
// same. Order, additional records, serials and lower TTLs are not compared: a cache lowers
// TTLs.
func difference(want, got answer) string {
	// A truncated reply may have no record; the whole one is asked for over TCP.
	if want.rcode == got.rcode && (want.isCut() || got.isCut()) {
		return ""
	}
	if w, g := want.outcome(), got.outcome(); w != g {
		return g + " instead of " + w
	}

	missing, extra := want.without(got), got.without(want)
	switch {
	case len(missing)+len(extra) == 0:
	case !want.whole || !got.whole: // each server selects the records that fit
	default:
		return recordCause(missing, extra)
	}

	if got.twice && !want.twice {
		return "duplicate records"
	}
	if want.passing {
		return ""
	}

	for r, ttl := range want.records {
		if g, ok := got.records[r]; ok && g > ttl {
			return fmt.Sprintf("TTL %d instead of %d", g, ttl)
		}
	}

	if len(want.records) == 0 && want.soa != nil {
		switch {
		case got.soa == nil:
			return "no SOA record in a negative answer"
		case !strings.EqualFold(got.soa.Hdr.Name, want.soa.Hdr.Name):
			return "SOA record of another zone in a negative answer"
		}
		if w, g := negativeTTL(want.soa), negativeTTL(got.soa); g > w {
			return fmt.Sprintf("TTL %d instead of %d of a negative answer", g, w)
		}
	}

	if want.aa && !got.aa {
		return "no AA flag"
	}
	return ""
}

// negativeTTL returns the TTL of a negative answer: RFC 2308 §5.
func negativeTTL(soa *dns.SOA) uint32 { return min(soa.Hdr.Ttl, soa.Minttl) }

// without returns the records of a that b lacks, sorted.
func (a answer) without(b answer) []record {
	var rs []record
	for r := range a.records {
		if _, ok := b.records[r]; !ok {
			rs = append(rs, r)
		}
	}
	order.Slice(rs, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.rtype, b.rtype), cmp.Compare(a.data, b.data))
	})
	return rs
}

// recordCause describes the difference between two sets of records.
func recordCause(missing, extra []record) string {
	keys := func(rs []record, key func(record) string) map[string]bool {
		set := map[string]bool{}
		for _, r := range rs {
			set[key(r)] = true
		}
		return set
	}

	equal := func(f func(record) string) bool { return maps.Equal(keys(missing, f), keys(extra, f)) }

	srv := func(r record, fields ...int) string { // the owner name and some fields of an SRV record
		words := strings.Fields(r.data)
		if r.rtype != dns.TypeSRV || len(words) != 4 {
			return fmt.Sprint(r)
		}
		text := r.owner
		for _, f := range fields {
			text += " " + words[f]
		}
		return text
	}

	switch {
	case len(extra) == 0:
		return "records missing"
	case len(missing) == 0:
		return "more records"
	case equal(func(r record) string { return dns.TypeToString[r.rtype] + r.data }):
		return "other owner names"
	case equal(func(r record) string { return srv(r, 0, 2, 3) }):
		return "other SRV weights"
	case equal(func(r record) string { return srv(r, 2, 3) }):
		return "other SRV priorities"
	case equal(func(r record) string { return srv(r, 2) }):
		return "other SRV targets"
	case equal(func(r record) string { return srv(r, 3) }):
		return "other SRV ports"
	}
	return "other records"
}

// withoutTarget returns both answers without the part that follows from a CNAME record whose
// target is outside the zones: another server answers for the target.
func (z zoneList) withoutTarget(want, got answer) (w, g answer) {
	target := ""
	for r := range want.records {
		if r.rtype == dns.TypeCNAME && !z.contain(r.data) {
			target = r.data
		}
	}
	if target == "" {
		return want, got
	}
	want.rcode, want.soa, want.aa = "NOERROR", nil, false
	if len(want.without(got)) == 0 {
		for _, r := range got.without(want) {
			delete(got.records, r)
		}
		got.rcode = "NOERROR"
	}
	return want, got
}

// A zoneList has the zones that are answered from the cluster, and the reverse zones.
type zoneList []string

// contain reports whether a name is in one of the zones.
func (z zoneList) contain(name string) bool {
	return slices.ContainsFunc(z, func(zone string) bool { return dns.IsSubDomain(zone, name) })
}

// show returns a line with the response code and one for each record, at most ten.
func (a answer) show(records []record) []string {
	lines := []string{a.outcome()}
	if a.outcome() == "records" {
		lines[0] = "NOERROR"
	}
	for i, r := range records {
		if i == 10 {
			lines = append(lines, fmt.Sprintf("and %d more", len(records)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("%s %d %s %s", r.owner, a.records[r], dns.Type(r.rtype), r.data))
	}
	return lines
}
