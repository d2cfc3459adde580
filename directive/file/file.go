// Package file answers from zone files: the directive file. file.go is the
// handler, setup.go reads its options, load.go reads files and source.go follows
// their changes. What the answers are is package zone's.
package file

import (
	"context"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A File answers from zone files: the file directive.
//
//	file DBFILE [ZONES…] {
//	    reload DURATION
//	    reload_by_mtime
//	    fallthrough [ZONES…]
//	}
//
// It serves ZONES, or those of the server block, from the master file DBFILE
// (RFC 1035 §5) with authority. It may stand several times in a server block;
// a query is for the longest of all their zones that its name is in, and one
// for none of them is asked of the next directive. A relative DBFILE begins at
// the folder of the root directive.
//
// DBFILE may have $ORIGIN, $TTL, $INCLUDE and $GENERATE; a file that it
// includes is looked for in the folder of the one that includes it. Names that
// are not absolute end in the zone until there is an $ORIGIN. Types that have no
// mnemonic are written as RFC 3597 has it. A zone needs a SOA record. Records
// that are in none of the directive's zones are left out, with a warning. A
// CNAME beside other records of its name is a warning too, and all are served:
// the CNAME to those who ask for none of the others' types.
//
// Wildcards, delegations with their glue, DNAME, and names that exist only
// because of names below them are answered as RFC 1034, 4592, 6672 and 2308
// say. A CNAME is followed: inside the zone, and elsewhere by asking this server
// the further question, as its Corefile answers it; if nobody here answers that
// the CNAME is the answer. The addresses of the names in MX, SRV, NS, SVCB and
// HTTPS records come with them if they are in the zone. ANY gives every record
// of the name. AXFR and IXFR are refused.
//
// A zone that was signed is served with its signatures, and with the NSEC
// records that prove an answer, to clients that set DO. A zone signed with
// NSEC3 is an error.
//
// reload is how often the file and those that it includes are looked at: 1m
// unless given, 0 for never. With anything but 0 they are watched too, with
// their folders, so that most changes are seen at once. A zone is exchanged,
// whole, when its file has changed and the serial of its SOA is another one.
// With reload_by_mtime the serial does not count; neither does it for a file
// that was written within two seconds of when it was read, since that may have
// been half of it. A file with an error changes nothing: the last good zone is
// served, and the error is logged once:
//
//	[ERROR] plugin/file: zones/db.example.org:12: bad A A: "192.0.2.300"
//
// When the server starts, or its Corefile is reloaded, such a file is an error
// of the Corefile. seamark check finds it too.
//
// fallthrough asks the next directive for names that do not exist, within ZONES
// if there are any.
//
// upstream is accepted and does nothing.
//
// Metrics: seamark_file_reload_failed_total, by file: the changed files that
// could not be read.
//
//	example.org:1053 {
//	    file zones/db.example.org {
//	        reload 30s
//	    }
//	}
//
// Same as CoreDNS: syntax and options. Differs: a file that is missing when the
// server starts is an error, a zone may stand once in a server block, answers
// that are not referrals have no NS records in their authority section, the TTL
// of negative answers is bounded by the last number of the SOA, the TTL of what
// $GENERATE makes is that of $TTL, and files that changed are noticed at once.
type File struct {
	zones map[wire.Name]*served
	most  int // labels of the longest zone
}

// A served is one zone of a handler.
type served struct {
	*use
	index int // of the zone in its use
}

// now is the zone as its file has it.
func (s *served) now() *zone.Zone { return s.source.zones[s.index].Load() }

// ServeDNS answers what is in the handler's zones.
func (f *File) ServeDNS(q *dns.Query) dns.Verdict {
	s := f.zone(q)
	if s == nil {
		return dns.Next
	}
	if q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		q.Fail(wire.Refused)
		return dns.Done
	}
	found := s.now().Lookup(&q.Request, &q.Answer)
	if found.Missing && s.through.Through(q.Name()) {
		q.Answer.Clear()
		return dns.Next
	}
	q.RCode, q.AA = found.RCode, found.AA
	if found.Target == nil {
		return dns.Done
	}
	sub, ok := q.SubQuery(found.Target, q.Type)
	if !ok {
		return dns.Wait
	}
	q.FollowCNAME(sub)
	return dns.Done
}

// Resolve takes up the question for a CNAME's target that had to wait.
func (f *File) Resolve(ctx context.Context, q *dns.Query) error {
	q.FollowCNAME(q.ResumeSubQuery(ctx))
	return nil
}

// zone finds the longest zone that the question is in. The records of type DS
// at a zone's own name are its parent's (RFC 4035 §3.1.4.1), if that is here.
func (f *File) zone(q *dns.Query) (s *served) {
	name, labels := q.Name(), q.Labels()
	for i := max(0, labels-f.most); i <= labels; i++ {
		found := f.zones[wire.Name(name[q.LabelOffset(i):])]
		if found == nil {
			continue
		}
		if q.Type == wire.TypeDS && i == 0 {
			s = found
			continue
		}
		return found
	}
	return s
}
