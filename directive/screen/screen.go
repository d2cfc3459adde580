// Package screen stands between this server and others: it says what those may be
// asked, and what they may answer. It is the directive screen. setup.go reads it,
// screen.go looks at questions, answers.go at answers, private.go knows the private
// addresses and their names.
//
// Package builtin lists its Setup, above what asks other servers. It opens nothing,
// and changes no answer of this server's own.
package screen

import (
	"log/slog"
	"sync/atomic"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Screen says what other servers may be asked, and what they may answer: the
// screen directive.
//
//	screen {
//	    local ZONES...        # names that no other server is asked for: NXDOMAIN
//	    except ZONES...       # names that are asked of others nevertheless
//	    plain_names           # names of one label are not, for A and AAAA: NXDOMAIN
//	    least_labels N        # names with fewer labels are not, for any type: SERVFAIL
//	    private_reverse       # reverse names of private addresses are not: NXDOMAIN
//	    rebind [ZONES...]     # private addresses in answers are refused, but for names in ZONES
//	    rebind_localhost_ok   # but for those of the machine itself
//	    drop TYPE...          # records that are taken out of answers: A, AAAA and so on
//	}
//
// It stands above forward and below all that this server knows by itself: names
// with an answer of hosts, records, kubernetes or file never come to it, and no
// answer of theirs is changed. It stands below cache too, which keeps what is left
// of an answer. It can be given once, with one option at least; local, except,
// rebind and drop may be given several times and add up.
//
// local: the names of ZONES, and those below, are never asked of other servers.
// They do not exist, unless hosts or records has names below them: then the answer
// is NOERROR without records. Of all ZONES of local and except the longest
// decides that has the name.
//
// except: besides, private_reverse leaves the names of ZONES alone: it is for
// zones that have a forward of their own.
//
// plain_names: what holds for local holds for names of one label, for the types A,
// AAAA and ANY, whatever except says.
//
// least_labels: nothing is said of whether such names exist. It is SkyDNS's -ndots.
//
// private_reverse: it also holds for the reverse names of private addresses, and
// of networks that lie within theirs, for the types PTR and ANY.
//
// rebind: an answer with a private address leads browsers to machines behind the
// firewall, under a name that is somebody else's. It is refused whole, be it in an
// A or AAAA record or in a hint of an HTTPS or SVCB record: the client gets its
// response code, no records, and the extended error 15. One a second is told in the
// log. In the additional section such addresses are left out alone. ZONES are for
// questions: a name outside that is an alias for one inside is refused.
//
// rebind_localhost_ok: 127.0.0.0/8, ::1, 0.0.0.0/8 and :: may be in answers. Lists
// of bad names answer so.
//
// drop: records of these types are taken out of all sections, with their
// signatures. Aliases before them stay, and so does NXDOMAIN. An answer that has
// nothing else becomes NOERROR without records, or with the aliases alone, with the
// extended error 17 and a SOA record that bears the name and the TTL of what was
// taken out, so that cache and clients can keep it. The question is asked of others
// all the same, which alone know whether the name exists. Any type will do but CNAME,
// DNAME, NS, SOA and those of DNSSEC, without which answers are not understood.
//
// Private addresses are those of RFC 6303 and their like:
//
//	10.0.0.0/8 172.16.0.0/12 192.168.0.0/16    RFC 1918
//	127.0.0.0/8 0.0.0.0/8 ::1 ::               the machine itself
//	169.254.0.0/16 fe80::/10                   the link
//	fd00::/8 fec0::/10                         the site
//	192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32  documents
//	255.255.255.255                            everybody on the link
//
// and those of IPv4 within ::ffff:0:0/96. Not among them are 100.64.0.0/10 and
// fc00::/8.
//
// What a home or an office may not tell or be told:
//
//	.:1053 {
//	    screen {
//	        local lan home.arpa
//	        except branch.lan 20.10.in-addr.arpa
//	        plain_names
//	        private_reverse
//	        rebind branch.lan
//	        drop AAAA
//	    }
//	    forward branch.lan 10.20.0.1
//	    forward . 9.9.9.9
//	}
//
// Metrics: seamark_screen_total, by reason: local, plain_name, few_labels and
// private_reverse are questions that were not asked, rebind and drop answers that were changed.
//
// Ours: CoreDNS has no such directive. The options are those of dnsmasq 2.90: local is
// --local=/ZONE/, except is --server=/ZONE/ with a server or with #, plain_names is
// --domain-needed, private_reverse is --bogus-priv, rebind is --stop-dns-rebind with
// --rebind-domain-ok, drop is --filter-A and --filter-AAAA. Flags and response codes
// are dnsmasq's, with AA for private_reverse alone. Differs: in dnsmasq
// --server=/ZONE/# makes no exception from --bogus-priv; rebind lets private addresses
// by in answers to ANY, in HTTPS records and in the additional section, which drop
// leaves alone as well; an answer of which nothing is left has no SOA record. What
// dnsmasq says of plain names of all types, --local=// and --rebind-domain-ok=//,
// cannot be said here.
type Screen struct {
	zones   map[wire.Name]bool // whether they are local
	deepest int                // labels of the longest
	plain   bool
	reverse bool
	least   int // labels

	rebind    bool
	trusted   []wire.Name // whose answers may have private addresses
	localhost bool        // those of the machine itself may be anywhere
	drop      []wire.Type

	neighbours []neighbour
	log        *slog.Logger
	told       atomic.Int64  // the second in which the log was told of an answer
	untold     atomic.Uint64 // how many it was not told of since

	locals, plains, few, reverses, rebinds, drops *metrics.Counter
}

// A neighbour is a handler above screen that has names of its own. NameExists
// reports whether one of them is q's name or below it.
type neighbour interface{ NameExists(q *dns.Query) bool }

// ServeDNS answers what must not be asked of others.
func (s *Screen) ServeDNS(q *dns.Query) dns.Verdict {
	local, listed := s.zone(q)
	switch {
	case s.reverse && (local || !listed) && privateName(q):
		s.reverses.AddTo(q.Shard(), 1)
		q.AA = true // RFC 6303: the zone is ours
	case local:
		s.locals.AddTo(q.Shard(), 1)
	case s.plain && q.Labels() == 1 && (q.Type == wire.TypeA || q.Type == wire.TypeAAAA || q.Type == wire.TypeANY):
		s.plains.AddTo(q.Shard(), 1)
	case q.Labels() < s.least:
		s.few.AddTo(q.Shard(), 1)
		q.Fail(wire.ServFail)
		return dns.Done
	default:
		return dns.Next
	}
	// To the client this is the answer of a resolver: without RA and AA some take
	// NOERROR without records for a mistake, and ask another.
	q.RA = true
	q.RCode = wire.NXDomain
	for _, n := range s.neighbours {
		if n.NameExists(q) {
			q.RCode = wire.NoError // RFC 8020
		}
	}
	return dns.Done
}

// zone looks for the longest zone that has the question's name.
func (s *Screen) zone(q *dns.Query) (local, listed bool) {
	if len(s.zones) == 0 {
		return false, false
	}
	name, labels := q.Name(), q.Labels()
	for i := max(0, labels-s.deepest); i <= labels; i++ {
		if local, listed = s.zones[wire.Name(name[q.LabelOffset(i):])]; listed {
			return local, true
		}
	}
	return false, false
}
