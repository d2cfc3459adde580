// Package dnssec implements the dnssec directive: signatures for answers, made when they
// are needed.
//
// Setup (setup.go) reads the keys. On a query's way up CompleteDNS (dnssec.go) adds the
// NSEC record of a negative answer (denial.go), and signatures from the store (store.go).
// If one is missing, the query is parked, and Resolve makes it when the turn of the client
// has come (message.go).
package dnssec

import (
	"context"
	"math"
	"sync"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/signing"
)

// A Dnssec signs answers when they are sent: the dnssec directive. Its reference page is
// docs/reference/directives/dnssec.md.
type Dnssec struct {
	zones wire.ZoneMap[*signedZone]
	// zoneKeys sign all records but DNSKEY records, which keyKeys sign.
	zoneKeys, keyKeys []*signing.Key
	capacity          int
	metrics           *metrics.Registry

	*started
	hits, misses *metrics.Counter // of the chain that BindChain was called for
}

// A signedZone is a zone whose answers are signed.
type signedZone struct {
	name wire.Name
	// records are its DNSKEY records, in the form of an answer to a query for them.
	records []byte
	n       int // of records
}

// started has the state that exists once the plan has started. All chains share it.
type started struct {
	store   *store
	signers *slots.Pool
	drops   []func() // remove the gauges

	states sync.Pool // of *signingState
}

// zoneOf returns the zone whose keys sign the records of an owner, which is in lower
// case; nil if there is none. The parent signs DS records.
func (d *Dnssec) zoneOf(owner []byte, t wire.Type) *signedZone {
	if t == wire.TypeDS {
		if owner[0] == 0 {
			return nil
		}
		owner = owner[1+owner[0]:]
	}
	z, _ := d.zones.LongestOf(owner)
	return z
}

// ServeDNS answers queries for DNSKEY records, and refuses those for the type that only NSEC records have.
func (d *Dnssec) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type != wire.TypeDNSKEY && q.Type != typeNXName {
		return dns.Next
	}
	z, at := d.zones.Longest(&q.Request, 0)
	switch {
	case z != nil && q.Type == typeNXName: // RFC 9824 §3.5
		q.Fail(wire.FormErr)
		q.AddExtendedError(wire.EDEInvalidType, "")
		return dns.Done
	case at != 0 || q.Type != wire.TypeDNSKEY:
		return dns.Next
	}
	q.AA = true
	q.Answer.Append(wire.Answers, z.records, z.n)
	return d.CompleteDNS(q)
}

// CompleteDNS signs the answer, unless a signature has to be made.
func (d *Dnssec) CompleteDNS(q *dns.Query) dns.Verdict {
	if !q.DO || q.Answer.Empty() || q.TC || q.Type.IsTransfer() {
		return dns.Done
	}
	if q.RCode != wire.NoError && q.RCode != wire.NXDomain && q.RCode != wire.YXDomain {
		return dns.Done
	}

	// This server's handlers stop where an answer exceeds the limit, so that it lacks records. If only additional ones
	// do not fit, the client sees no TC. An upstream's answer is complete, and a cache may keep it.
	if q.ExceedsLimit() && !q.Cacheable {
		q.Answer.DeleteFunc(func(s wire.Section, _ wire.Record) bool { return s == wire.Additional })
		if q.ExceedsLimit() {
			return dns.Done
		}
	}
	if q.RCode != wire.YXDomain { // which has the DNAME record that makes too long a name
		d.deny(q)
	}
	if complete, _ := d.sign(context.Background(), q, false); !complete {
		return dns.Wait
	}
	return dns.Done
}

// Resolve signs the answer.
func (d *Dnssec) Resolve(ctx context.Context, q *dns.Query) error {
	_, err := d.sign(ctx, q, true)
	return err
}

// BindChain returns a copy of d that counts for c.
func (d *Dnssec) BindChain(c *dns.Chain) any {
	bound := *d
	bound.hits = d.metrics.Counter("coredns_dnssec_cache_hits_total",
		"Counter of RRsets whose signatures were kept.", "server", c.Server)
	bound.misses = d.metrics.Counter("coredns_dnssec_cache_misses_total",
		"Counter of RRsets that had to be signed.", "server", c.Server)

	entries := func() float64 {
		if d.store == nil {
			return 0 // the plan has not started
		}
		return float64(d.store.entries())
	}
	d.drops = append(d.drops, d.metrics.SharedGauge("coredns_dnssec_cache_entries",
		"Number of RRsets whose signatures are kept.", math.Max, entries, "server", c.Server, "type", "signature"))
	return &bound
}

// ExplainDNS implements [dns.Explainer].
func (d *Dnssec) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	if _, at := d.zones.Longest(&q.Request, 0); q.Type != wire.TypeDNSKEY || at != 0 {
		return nil
	}
	return []dns.Cause{{Text: "the zone is signed here, with the keys of the directive"}}
}
