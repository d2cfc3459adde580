// Package screen implements the screen directive, which restricts the queries
// that are forwarded and filters the answers of upstreams. setup.go reads the
// directive, screen.go checks queries, answers.go checks answers, and
// private.go has the private addresses and their reverse names.
//
// Package builtin lists Setup, before the directives that forward queries. The
// package opens no sockets and does not change answers from this server's own
// data.
package screen

import (
	"log/slog"
	"sync/atomic"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// Screen restricts forwarded queries and filters the answers of upstreams: the
// screen directive.
//
//	screen {
//	    local ZONES...        # answer NXDOMAIN for names that must not be forwarded
//	    except ZONES...       # forward these names nevertheless
//	    plain_names           # answer NXDOMAIN for A and AAAA of single-label names
//	    least_labels N        # answer SERVFAIL for names with fewer labels
//	    private_reverse       # answer NXDOMAIN for reverse names of private addresses
//	    rebind [ZONES...]     # refuse private addresses, except for names in ZONES
//	    rebind_localhost_ok   # allow the addresses of the machine itself
//	    drop TYPE...          # remove records of these types: A, AAAA and so on
//	}
//
// screen comes directly before forward: names that hosts, records, kubernetes
// or file answer do not reach it, and their answers do not change. It comes
// after cache, which stores the filtered answers. Give screen once, with at
// least one option. You can give local, except, rebind and drop several times;
// their arguments add up.
//
// local: names in ZONES are never forwarded. They do not exist (NXDOMAIN),
// unless hosts or records has names below them: then the answer is NOERROR
// without records. The longest zone of local and except that contains the name
// decides.
//
// except: forwards names in ZONES although local covers them, and exempts ZONES
// from private_reverse. Use it for zones that have their own forward.
//
// plain_names: treats names with one label like names in local, for the types A,
// AAAA and ANY, regardless of except.
//
// least_labels: answers SERVFAIL, which does not deny that the name exists. It
// is SkyDNS's -ndots.
//
// private_reverse: treats reverse names of private addresses, and of networks
// inside the private networks, like names in local, for the types PTR and ANY.
//
// rebind: refuses answers with a private address, which an attacker can use to make
// browsers reach machines behind the firewall under a name of the attacker. It
// checks A and AAAA records and the address hints of HTTPS and SVCB records. The
// client gets the answer's response code, no records, and the extended error 15. At
// most one refused answer a second is logged. In the additional section only the
// private addresses are removed. ZONES apply to the query name: the answer for a
// name outside them is refused even if the name is an alias of a name in them.
//
// rebind_localhost_ok: allows 127.0.0.0/8, ::1, 0.0.0.0/8 and :: in answers.
// Block lists answer so.
//
// drop: removes records of these types, and their signatures, from all
// sections. Aliases before them stay, and so does NXDOMAIN. An answer without
// other records becomes NOERROR without records, or with the aliases only. It
// has the extended error 17 and an SOA record with the name and TTL of the
// removed records, so that cache and clients can keep it. The query is still
// forwarded, because only the upstream knows whether the name exists. You
// cannot drop CNAME, DNAME, NS, SOA and the DNSSEC types, which are needed to
// understand answers.
//
// Private addresses are the addresses in RFC 6303 and similar ones:
//
//	10.0.0.0/8 172.16.0.0/12 192.168.0.0/16                    RFC 1918
//	127.0.0.0/8 0.0.0.0/8 ::1 ::                               the machine itself
//	169.254.0.0/16 fe80::/10                                   link-local
//	fd00::/8 fec0::/10                                         unique and site-local
//	192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32  documentation
//	255.255.255.255                                            broadcast
//
// and the IPv4 addresses among them as ::ffff:0:0/96. 100.64.0.0/10 and
// fc00::/8 are not private.
//
// A configuration for a home or an office:
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
// Metric: seamark_screen_total, by reason. local, plain_name, few_labels and
// private_reverse count queries that were not forwarded; rebind and drop count
// answers that were changed.
//
// Ours: CoreDNS has no such directive. The options correspond to options of dnsmasq 2.90:
// local is --local=/ZONE/, except is --server=/ZONE/ with a server or with #,
// plain_names is --domain-needed, private_reverse is --bogus-priv, rebind is
// --stop-dns-rebind with --rebind-domain-ok, drop is --filter-A and
// --filter-AAAA. Flags and response codes are dnsmasq's, except that
// private_reverse alone sets AA. Differs: in dnsmasq --server=/ZONE/# is no
// exception from --bogus-priv; its rebind allows private addresses in answers
// to ANY, in HTTPS records and in the additional section, and its filters
// ignore the additional section; its answer without remaining records has no
// SOA record. There is no equivalent for plain names of every type, --local=//
// and --rebind-domain-ok=//.
type Screen struct {
	zones   map[wire.Name]bool // true for local, false for except
	deepest int                // number of labels of the longest zone
	plain   bool
	reverse bool
	least   int // labels

	rebind    bool
	trusted   []wire.Name // zones whose answers may have private addresses
	localhost bool        // answers may have localhost addresses
	drop      []wire.Type

	neighbours []neighbour
	log        *slog.Logger
	lastLogged atomic.Int64  // Unix time of the last logged answer
	suppressed atomic.Uint64 // refused answers not logged since then

	locals, plains, few, reverses, rebinds, drops *metrics.Counter
}

// A neighbour is a handler above screen that has names of its own. NameExists
// reports whether one of them is q's name or below it.
type neighbour interface{ NameExists(q *dns.Query) bool }

// A reason is the option for which a query is not forwarded.
type reason uint8

const (
	none reason = iota
	privateReverse
	local
	plainName
	fewLabels
)

func (s *Screen) reason(q *dns.Query) reason {
	inLocal, listed := s.zone(q)
	switch {
	case s.reverse && (inLocal || !listed) && privateName(q):
		return privateReverse
	case inLocal:
		return local
	case s.plain && q.Labels() == 1 && (q.Type == wire.TypeA || q.Type == wire.TypeAAAA || q.Type == wire.TypeANY):
		return plainName
	case q.Labels() < s.least:
		return fewLabels
	}
	return none
}

// ServeDNS answers queries that must not be forwarded.
func (s *Screen) ServeDNS(q *dns.Query) dns.Verdict {
	switch s.reason(q) {
	case privateReverse:
		s.reverses.AddTo(q.Shard(), 1)
		q.AA = true // RFC 6303: this server is authoritative for the zone
	case local:
		s.locals.AddTo(q.Shard(), 1)
	case plainName:
		s.plains.AddTo(q.Shard(), 1)
	case fewLabels:
		s.few.AddTo(q.Shard(), 1)
		q.Fail(wire.ServFail)
		return dns.Done
	default:
		return dns.Next
	}
	// The client expects the answer of a resolver. Without RA and AA some clients
	// take NOERROR without records for a lame server, and query another one.
	q.RA = true
	q.RCode = wire.NXDomain
	for _, n := range s.neighbours {
		if n.NameExists(q) {
			q.RCode = wire.NoError // RFC 8020
		}
	}
	return dns.Done
}

// zone returns whether the longest zone that contains the query name is local,
// and whether there is one.
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
