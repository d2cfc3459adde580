package records

import (
	"context"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers from records in the Corefile: the records directive.
//
//	records [ZONES...] {
//	    NAME [TTL] [IN] TYPE RDATA...   # one record a line
//	    ttl SECONDS                     # for records without a TTL, 0 to 2147483647; default 3600
//	}
//
// Write each record as in a zone file, on one line. Use any type that has a text
// form (A, AAAA, CNAME, MX, SRV, TXT, PTR, NS, NAPTR, CAA, SOA, HTTPS and so on),
// or TYPE65280 "\#" 2 0a0b for other types. DNAME records are an error. All names
// are absolute, with or without a final dot; write the whole reverse name for a PTR
// record.
//
// RDATA consists of words of the Corefile. Put a word with spaces or # in quotes,
// and write \" for a quote inside it. \\ and \DDD mean the same as in zone files;
// semicolons and parentheses have no special meaning.
//
// All names must be in ZONES, or in the zones of the server block if you give none.
// You can use records several times in a server block: the records are merged, and
// duplicates are ignored. All records of one name and type get the smallest of their
// TTLs. A name with a CNAME record can have no other records.
//
// A wildcard such as *.example.org applies to every name below example.org, at any
// depth, that has no records; it does not apply to example.org itself. If several
// wildcards match, the longest applies. Unlike in a zone (RFC 4592), a name with
// records does not exclude the names below it from the wildcard: if you also give a
// record for a.example.org, then *.example.org still applies to b.a.example.org.
//
// A query for a name that has records, but none of the query type, is answered with
// NOERROR and no records. Resolvers do not cache that answer, because it has no SOA
// record. Queries for all other names, even if records below them exist, go to the
// next directive.
//
// The server resolves the target of a CNAME record as if a client had sent a query for it,
// unless the query type is CNAME or ANY. The records and the response code of that
// answer become part of the reply. If no server block has the target, the CNAME
// record is the answer. The addresses of the targets of MX, SRV, NS, SVCB and HTTPS
// records are added if records has them.
//
//	.:1053 {
//	    records {
//	        db.example.org          A     10.0.0.1
//	        db.example.org          AAAA  fd00::1
//	        www.example.org   60    CNAME web.example.net
//	        *.apps.example.org      A     10.0.0.2
//	        example.org             MX    10 mail.example.org
//	        _ldap._tcp.example.org  SRV   0 100 389 db.example.org
//	        example.org             TXT   "v=spf1 mx -all"
//	        1.0.0.10.in-addr.arpa   PTR   db.example.org
//	        ttl 300
//	    }
//	    whoami
//	}
//
// To serve a whole zone, add screen with local. Other names in the zone then do not
// exist, and queries for them are not forwarded:
//
//	corp.example:1053 {
//	    records {
//	        printer.corp.example A 10.0.0.7
//	    }
//	    screen {
//	        local corp.example
//	    }
//	}
//
// Ours: CoreDNS has no such directive built in. The external plugin of the same name
// serves whole zones, with a SOA record and @; this directive adds records to those
// of other directives.
type Handler struct {
	table table
}

// ServeDNS answers the names that have records.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		return dns.Next // records are not a zone
	}
	n := h.table.find(q)
	if n == nil {
		return dns.Next
	}
	q.AA = true
	if n.target == nil || q.Type == wire.TypeCNAME || q.Type == wire.TypeANY {
		n.answer(q)
		return dns.Done
	}
	n.sets[0].put(q, wire.Answers, []byte(wire.OwnerIsQuestion))
	sub, ok := q.SubQuery(n.target, q.Type)
	if !ok {
		return dns.Wait
	}
	q.FollowCNAME(sub)
	return dns.Done
}

// Resolve waits for the answer to the sub-query for a CNAME target.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	q.FollowCNAME(q.ResumeSubQuery(ctx))
	return nil
}

// NameExists reports whether a name below the query name has records. The query
// name then exists too (RFC 8020).
func (h *Handler) NameExists(q *dns.Query) bool {
	_, ok := h.table.ancestors[string(q.Name())]
	return ok
}

// answer writes the records of the query type, and the addresses of their targets.
func (n *node) answer(q *dns.Query) {
	for i := range n.sets {
		if s := &n.sets[i]; s.t == q.Type || q.Type == wire.TypeANY {
			s.put(q, wire.Answers, []byte(wire.OwnerIsQuestion))
		}
	}
	for i := range n.sets {
		if s := &n.sets[i]; s.t == q.Type {
			s.putTargets(q)
		}
	}
}

// putTargets writes the addresses of the targets of s.
func (r *rrset) putTargets(q *dns.Query) {
	var room [wire.MaxName]byte
	for _, t := range r.targets {
		if q.ExceedsLimit() {
			return
		}
		owner := q.Answer.AppendOwner(room[:0], t.name)
		for i := range t.node.sets {
			if a := &t.node.sets[i]; a.hasAddresses() {
				a.put(q, wire.Additional, owner)
			}
		}
	}
}

// put writes the records of s with the owner name owner, which is in the form of
// an Answer. It stops when the answer exceeds the size limit of the reply.
func (r *rrset) put(q *dns.Query, section wire.Section, owner []byte) {
	a := &q.Answer
	for _, rdata := range r.rdata {
		if q.ExceedsLimit() {
			return
		}
		a.Buf = append(wire.AppendRecordHeader(a.Buf, owner, r.t, r.ttl, len(rdata)), rdata...)
		a.Append(section, nil, 1)
	}
}
