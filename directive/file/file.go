// Package file implements the file directive: authoritative answers from zone
// files.
//
// Setup reads the options (setup.go) and the zone files (load.go), so that seamark
// check finds their errors. A source (source.go) serves a file's zones and
// replaces them when the file changes. File (file.go) selects the zone for a
// query; package zone computes the answer. Auto (auto.go) does the same for the files
// of a directory.
//
// The directive sign is here, too, as it reads the same files: sign.go has its options, and
// a signer (signer.go) writes a zone's signed file whenever that is due.
package file

import (
	"context"
	"maps"
	"slices"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A File answers authoritatively from zone files: the file directive.
//
//	file DBFILE [ZONES...] {
//	    reload DURATION
//	    reload_by_mtime
//	    fallthrough [ZONES...]
//	}
//
// Name the zone file in DBFILE, in the master file format of RFC 1035 §5. Its
// records are served for ZONES, or for the zones of the server block if you give
// none. You can use file several times in a server block, but only once for each
// zone. A query is answered from the longest zone that contains its name; a query
// for a name outside all zones goes to the next directive. A relative DBFILE is
// relative to the directory of the root directive.
//
// Write the file as for any other name server:
//
//   - $ORIGIN, $TTL, $INCLUDE and $GENERATE work. A relative path after $INCLUDE is
//     relative to the file that contains it.
//   - Relative names are completed with the zone until there is an $ORIGIN.
//   - Write types without a mnemonic as in RFC 3597 (TYPE65280 \# 2 0a0b).
//   - The file needs a SOA record. If the zone's own name has none, the first SOA
//     record in the file is served at the zone's name, and a warning is logged.
//   - Records outside ZONES are ignored with a warning.
//   - A CNAME record beside other records of the same name is logged as a warning.
//     All of them are served; the CNAME record answers queries for the types that
//     the name does not have.
//
// Wildcards, empty non-terminals, delegations with glue, and DNAME records work as
// in RFC 1034, 2308, 4592 and 6672. The addresses of names in MX, SRV, NS, SVCB and
// HTTPS records are added if they are in the zone. ANY returns all records of the
// name. AXFR and IXFR are refused unless the server block has the directive transfer.
//
// The target of a CNAME record is looked up in the same zone if the zone has the
// name. Otherwise, and if a server block or a file directive has a longer zone with
// the target, the server resolves the target as if a client had sent a query for it, so
// all directives apply. If the server does not serve the target, the CNAME record
// is the answer, and the client's resolver continues from there. A loop of CNAME
// or DNAME records is answered with SERVFAIL.
//
// If the zone is signed, clients that set DO receive the signatures, and the NSEC or NSEC3
// records that prove the answer, also with opt-out. NSEC3 needs the NSEC3PARAM record of
// its chain, SHA-1, and at most 150 iterations. Expired signatures are logged as a warning
// when the file is read. For a zone that is not signed, see the directive dnssec.
//
// reload sets how often the file and the files that it includes are checked for
// changes: the default is 1m, and 0 turns it off. Unless it is 0, they are watched
// as well, so that most changes take effect at once. A zone is replaced as a whole
// when its file has changed and its SOA record has another serial number. With
// reload_by_mtime the serial number does not matter. Neither does it for a file
// that was written within two seconds of being read, because it may have been
// incomplete. If the changed file has an error, the previous zone is served, and
// the error is logged once:
//
//	[ERROR] file: Failed to reload zone file file=zones/db.example.org error="zones/db.example.org:12: bad A A: \"192.0.2.300\""
//
// When the server starts or reloads its Corefile, an error in a zone file, or a
// missing zone file, is an error in the Corefile. seamark check reports it too.
//
// fallthrough passes queries for names that do not exist to the next directive:
// the zones in its ZONES, or all of them if it has none.
//
// upstream is accepted for compatibility and has no effect.
//
// Metrics: seamark_file_reload_failed_total counts the changed files that could not
// be read, by file.
//
//	example.org:1053 {
//	    file zones/db.example.org {
//	        reload 30s
//	    }
//	}
//
// Same as CoreDNS: syntax and options. Differences: a zone file that is missing
// when the server starts is an error; a zone can be given once in a server block;
// only referrals have NS records in the authority section; the TTL of negative
// answers is limited by the MINIMUM field of the SOA record; $TTL applies to records
// that $GENERATE makes; changes of files take effect at once; a CNAME loop is
// SERVFAIL; a CNAME target that the zone does not have is resolved by the server; a
// SOA record of another name is served at the zone's name; zones signed with NSEC3 work.
type File struct {
	zones   map[wire.Name]*served
	origins map[wire.Name]struct{} // the keys of zones
	most    int                    // labels of the longest zone
}

func newFile() *File {
	return &File{zones: map[wire.Name]*served{}, origins: map[wire.Name]struct{}{}}
}

func (f *File) add(origin wire.Name, s *served) {
	f.zones[origin], f.origins[origin] = s, struct{}{}
	f.most = max(f.most, origin.Labels())
}

// A served is one zone of a File.
type served struct {
	*use
	index int // in use.origins
}

// zone returns the current version of the zone.
func (s *served) zone() *zone.Zone { return s.source.zones[s.index].Load() }

// findZone returns the length of the longest zone that contains a name, or 0.
func (f *File) findZone(name []byte) int {
	for ; ; name = name[1+name[0]:] {
		if f.zones[wire.Name(name)] != nil {
			return len(name)
		}
		if name[0] == 0 {
			return 0
		}
	}
}

// AuthoritativeZones returns f's zones.
func (f *File) AuthoritativeZones() []wire.Name { return slices.Collect(maps.Keys(f.zones)) }

// ServeDNS answers queries for names in f's zones.
func (f *File) ServeDNS(q *dns.Query) dns.Verdict {
	s := f.find(q)
	if s == nil {
		return dns.Next
	}
	if q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		q.Fail(wire.Refused)
		return dns.Done
	}
	found := s.zone().Lookup(&q.Request, &q.Answer, zone.Scope{Server: q, Zones: f.origins})
	if found.Missing && s.fallthru.Through(q.Name()) {
		q.Answer.Clear()
		return dns.Next
	}
	q.RCode, q.AA, q.AtCut = found.RCode, found.AA, found.AtCut
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

// Resolve waits for the answer to the sub-query for a CNAME target.
func (f *File) Resolve(ctx context.Context, q *dns.Query) error {
	q.FollowCNAME(q.ResumeSubQuery(ctx))
	return nil
}

// find returns the longest zone that contains the query name, or nil. DS records
// at a zone's own name belong to its parent (RFC 4035 §3.1.4.1), if f has that.
func (f *File) find(q *dns.Query) (s *served) {
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
