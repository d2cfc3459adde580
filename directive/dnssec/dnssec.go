// Package dnssec implements the dnssec directive: signatures for answers, made when they
// are needed.
//
// Setup (setup.go) reads the keys. On a query's way up CompleteDNS (dnssec.go) adds the
// NSEC record of a negative answer (denial.go), and signatures from the store (store.go).
// If one is missing, the query is parked, and Resolve makes it when the turn of the client
// has come (turns.go, message.go).
package dnssec

import (
	"context"
	"sync"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/signing"
)

// A Dnssec signs answers when they are sent: the dnssec directive.
//
//	dnssec [ZONES...] {
//	    key file KEY...
//	    cache_capacity CAPACITY
//	}
//
// Use it to let resolvers validate the answers of kubernetes, file, hosts and the other
// directives below it. Answers for names in ZONES are signed, for clients that set DO;
// the default is the zones of the server block. Other answers, and replies to clients
// that do not set DO, are unchanged. You can give dnssec once in a server block. RRsets
// that have signatures, such as RRsets of a signed zone file, do not get others.
//
// Make a key, name its files in key, and publish the DS record at the parent zone, or
// configure it as a trust anchor in the resolvers:
//
//	$ dnssec-keygen -a ECDSAP256SHA256 -f KSK cluster.local
//	$ dnssec-dsfromkey Kcluster.local.+013+54969.key
//
// KEY is the path of the key pair, without an extension or with .key or .private. A
// relative path is relative to the directory of the root directive. You can give key
// several times. The algorithms are ECDSA P-256 and P-384, Ed25519 and RSA; ECDSA P-256
// is the best choice, since RSA signatures are large and take longer to make. If
// there are keys with and without the SEP flag, those with it (KSK) sign the DNSKEY records,
// and the others (ZSK) everything else. Otherwise each key signs everything. All keys are
// used for all ZONES. The name of a key must be in one of them. The files are read when
// the server starts and when it reloads its Corefile.
//
// dnssec answers queries for the DNSKEY records of ZONES. It signs the DS records of a
// delegation, or proves that there are none. NXDOMAIN becomes NOERROR, with an NSEC
// record that proves that the name has no records of the type (RFC 9824, "black lies"): it
// reveals no other name, and no signature is made before there is a query for the name.
// An answer without records needs a SOA record to be signed. NSEC3 is not supported. The
// original TTL in signatures is 3600, so validating resolvers keep no record for longer.
//
// Signatures are valid for eight days, from three hours ago. They are kept, and made again
// two days before they expire. cache_capacity is the number of RRsets whose signatures
// are kept: the default is 10000, and half of them are for denials, so that queries for random
// names do not displace others. They need at most 700 bytes each. A signature that is not
// kept is made while the query waits. At most half of the processors make signatures,
// clients take turns, and a client for which 128 queries wait gets SERVFAIL. Answers whose
// signatures are kept are sent at once.
//
// Directives above dnssec see the signed answers. Do not change names in them with
// rewrite, and do not add records with autopath for clients that validate.
//
// Metrics, by server:
//
//	coredns_dnssec_cache_entries{type="signature"}
//	coredns_dnssec_cache_hits_total
//	coredns_dnssec_cache_misses_total
//
// This server answers from a folder of manifests, signs the answers, and needs the files
// Kcluster.local.+013+54969.key and Kcluster.local.+013+54969.private:
//
//	cluster.local:1053 {
//	    dnssec {
//	        key file keys/Kcluster.local.+013+54969
//	    }
//	    kubernetes {
//	        manifests examples
//	    }
//	}
//
// Same as CoreDNS: syntax, signatures and NSEC records. Differs: key
// aws_secretsmanager is not supported, mount the secret as files; the target of a CNAME
// record that has no records is denied, too; NSEC records of names that do not exist have the
// types of RFC 9824, and the others more types; only delegations are proved to be
// unsigned; NS records of delegations and glue are not signed; dnssec without a key is an
// error.
type Dnssec struct {
	zones map[wire.Name]*signedZone
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
	store *store
	turns *turns
	drops []func() // remove the gauges

	states sync.Pool // of *signingState
}

// zoneOf returns the zone whose keys sign the records of an owner, which is in lower
// case; nil if there is none. The parent signs DS records.
func (d *Dnssec) zoneOf(owner []byte, t wire.Type) *signedZone {
	for i := 0; ; i += int(owner[i]) + 1 {
		if z := d.zones[wire.Name(owner[i:])]; z != nil && (i > 0 || t != wire.TypeDS) {
			return z
		}
		if owner[i] == 0 {
			return nil
		}
	}
}

// ServeDNS answers queries for DNSKEY records.
func (d *Dnssec) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type != wire.TypeDNSKEY {
		return dns.Next
	}
	z := d.zones[wire.Name(q.Name())]
	if z == nil {
		return dns.Next
	}
	q.AA = true
	q.Answer.Append(wire.Answers, z.records, z.n)
	return d.CompleteDNS(q)
}

// CompleteDNS signs the answer, unless a signature has to be made.
func (d *Dnssec) CompleteDNS(q *dns.Query) dns.Verdict {
	// An answer that exceeds the limit, or came in truncated, lacks records.
	if !q.DO || q.Answer.Empty() || q.TC || q.RCode != wire.NoError && q.RCode != wire.NXDomain ||
		q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR || q.ExceedsLimit() {
		return dns.Done
	}
	d.deny(q)
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
	bound.hits = d.metrics.Counter("coredns_dnssec_cache_hits_total", "Counter of RRsets whose signatures were kept.", "server", c.Server)
	bound.misses = d.metrics.Counter("coredns_dnssec_cache_misses_total", "Counter of RRsets that had to be signed.", "server", c.Server)
	d.drops = append(d.drops, d.metrics.TemporaryGauge("coredns_dnssec_cache_entries", "Number of RRsets whose signatures are kept.",
		func() float64 {
			if d.store == nil {
				return 0 // the plan has not started
			}
			return float64(d.store.entries())
		}, "server", c.Server, "type", "signature"))
	return &bound
}

// ExplainDNS implements [dns.Explainer].
func (d *Dnssec) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	if q.Type != wire.TypeDNSKEY || d.zones[wire.Name(q.Name())] == nil {
		return nil
	}
	return []dns.Cause{{Text: "the zone is signed here, with the keys of the directive"}}
}
