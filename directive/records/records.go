package records

import (
	"context"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Handler answers from records that are written into the Corefile: the records
// directive.
//
//	records [ZONES...] {
//	    NAME [TTL] [IN] TYPE RDATA...   # one record; as many as you like
//	    ttl SECONDS                     # of records without one, 0 to 2147483647; 3600
//	}
//
// A record is written as in a zone file, on one line, with every type that has a
// text form: A, AAAA, CNAME, MX, SRV, TXT, PTR, NS, NAPTR, CAA, SOA, HTTPS and so
// on, or TYPE65280 "\#" 2 0a0b. All names are absolute, with a dot at the end or
// without. RDATA is words of the Corefile: one with spaces or # stands in quotes, a
// quote inside is \" there, and \\ and \DDD mean what they do in zone files, while a
// semicolon and parentheses mean nothing but themselves. DNAME records, which would
// be about other names, are refused. PTR records have the whole reverse name.
//
// All names are in ZONES, which are the block's own unless given; another one is
// an error. records may be given several times: the records add up. What is said
// twice counts once. Records of one name and type have the least TTL among
// theirs. A CNAME record has no other record beside it.
//
// A name such as *.example.org stands for every name below example.org, at any
// depth, that has no records of its own, and not for example.org itself; where
// several do, the longest counts. This is not the rule of zones (RFC 4592), in
// which a name that exists hides the wildcards above it from the names below: what
// is written here need not be all that there is of a zone. So beside a record for
// a.example.org the names below that still have those of *.example.org.
//
// A name that has records, but none of the type, is answered NOERROR without any,
// and without a SOA record, so that no resolver keeps that. A CNAME record is
// followed, unless the question is for CNAME or ANY: the target is asked of this
// server, and its records and its response code become part of the answer. Where no
// server block has the target, the CNAME record is the answer. The addresses of the
// targets of MX, SRV, NS, SVCB and HTTPS records come along, if they stand here. All
// other names, those above names with records as well, are asked of the next
// handler.
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
// All that there is of a zone: its other names do not exist, and nobody else is
// asked for them.
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
// Ours: CoreDNS has none like it built in. The one of this name that others have
// written for it is for whole zones, with a SOA record and @; here it is in addition
// to what the other directives know.
type Handler struct {
	table table
}

// ServeDNS answers the names that have records.
func (h *Handler) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		return dns.Next // there is no zone
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
	n.sets[0].put(&q.Answer, wire.Answers, []byte(wire.OwnerIsQuestion))
	sub, ok := q.SubQuery(n.target, q.Type)
	if !ok {
		return dns.Wait
	}
	q.FollowCNAME(sub)
	return dns.Done
}

// Resolve takes up the question for a CNAME's target that had to wait.
func (h *Handler) Resolve(ctx context.Context, q *dns.Query) error {
	q.FollowCNAME(q.ResumeSubQuery(ctx))
	return nil
}

// NameExists reports whether a name below q's has records: q's own name then
// exists too (RFC 8020).
func (h *Handler) NameExists(q *dns.Query) bool {
	_, above := h.table.above[string(q.Name())]
	return above
}

// answer writes the records of the type asked for, and the addresses that go
// with them.
func (n *node) answer(q *dns.Query) {
	for i := range n.sets {
		if s := &n.sets[i]; s.t == q.Type || q.Type == wire.TypeANY {
			s.put(&q.Answer, wire.Answers, []byte(wire.OwnerIsQuestion))
		}
	}
	for i := range n.sets {
		if s := &n.sets[i]; s.t == q.Type {
			s.targets(q)
		}
	}
}

// targets writes the addresses of the names that the records of s lead to.
func (s *set) targets(q *dns.Query) {
	var room [wire.MaxName]byte
	for _, to := range s.to {
		owner := q.Answer.AppendOwner(room[:0], to.name)
		for i := range to.node.sets {
			if a := &to.node.sets[i]; a.address() && !q.ExceedsLimit() {
				a.put(&q.Answer, wire.Additional, owner)
			}
		}
	}
}

// put writes the records of s under an owner in the answer's form.
func (s *set) put(a *wire.Answer, section wire.Section, owner []byte) {
	for _, rdata := range s.rdata {
		a.Buf = append(wire.AppendRecordHeader(a.Buf, owner, s.t, s.ttl, len(rdata)), rdata...)
		a.Append(section, nil, 1)
	}
}
