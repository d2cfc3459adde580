// Package forward implements the directives forward and grpc: it sends queries to other DNS
// servers and validates their replies. Package builtin lists its Setup; package
// server calls it. No other handler opens sockets to DNS servers.
//
// A Forward is the handler of one directive. Its upstreamSet holds the upstreams
// with their sockets and outlives a reload that does not change the options; an
// updater keeps it up to date with files and host names. For a query,
// Forward.AwaitDNS joins an exchange, which equal queries share. The exchange
// sends attempts to one upstream after the other, over UDP (socket), TCP and TLS
// (stream), HTTPS, gRPC or QUIC (quicConn), until a reply arrives. A parser drops the records of the
// reply that do not belong to the query.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Forward sends queries to other DNS servers: the forward directive.
//
//	forward FROM TO... {
//	    except ZONES...
//	    force_tcp
//	    prefer_udp
//	    prefer_tcp
//	    fallback TO...
//	    attempts N
//	    policy random|round_robin|sequential
//	    max_concurrent N
//	    read_timeout DURATION
//	    max_connect_attempts N
//	    failover RCODES...
//	    next RCODES...
//	    next_on_nodata
//	    health_check DURATION [no_rec] [domain NAME]
//	    max_fails N
//	    failfast_all_unhealthy_upstreams
//	    expire DURATION
//	    max_age DURATION
//	    max_idle_conns N
//	    tls [CERT KEY] [CA]
//	    tls_servername NAME
//	    doh_method GET|POST
//	    case_randomization auto|off
//	    source_address IP
//	    resolver IP[:PORT]...
//	}
//
// Use it for names that other servers know. FROM is the zone whose names are
// forwarded, or a CIDR for its reverse zones. Each TO is one or more upstreams;
// up to 15 in all:
//
//   - an address: IP, IP:PORT or [IPv6]:PORT, optionally with dns:// in front;
//   - tls://IP for DNS over TLS, at port 853 by default, or tls://IP%NAME to set
//     the name in its certificate;
//   - quic://IP for DNS over QUIC, at port 853 by default, or quic://IP%NAME;
//   - https://HOST[:PORT] for DNS over HTTPS, at the path /dns-query;
//   - a file such as /etc/resolv.conf, whose nameserver lines count. It is read
//     again when it changes. As long as it is unreadable or has no such line, the
//     last addresses are used;
//   - a host name, whose addresses are looked up every 30s, and when an upstream has
//     failed, by the machine's own resolver, or by the servers in the option resolver.
//     If it has more than 15 addresses, each server uses a random choice of them.
//
// You can give forward several times. A query goes to the first one, in the
// order of the file, whose FROM contains its name.
//
// A query is sent to one upstream. If that does not reply within its 95th
// percentile (at least 20ms; 250ms until it is known), the query is also sent to
// the next one, and so on; the first good reply counts. Unless the policy is
// sequential, no upstream gets more than four times as long as the fastest needs,
// and one that is repeatedly late comes last. An upstream that refuses the query
// or closes the connection is not queried again while there are others. After 5s,
// or when there is no upstream left to try, the client gets SERVFAIL with an
// extended DNS error: 22 if there was no reply, 23 for a network error. Equal
// queries that wait at the same time are sent once. At most 8 queries for one name and
// type that differ in EDNS options, class or flags are sent at the same time, so that
// forged replies do not become more likely; 64 more wait for them, and further ones get
// SERVFAIL. After a truncated reply the query is sent again over TCP; if there is no reply
// within read_timeout, clients get the truncated one.
//
// A waiting query costs some 10 µs of processor time and 2 KB of memory; each
// socket or connection costs a goroutine. A query is sent at most 16 times, and
// where upstreams are healthy one query in twenty is sent twice.
//
// Queries over UDP share a few sockets for each upstream, usually 4. Each socket has its own port and is
// replaced after expire or after 1024 to 2048 queries. Connections are shared in the same way; over QUIC
// and HTTP/2 there is one, with a stream for each query, and at most 512 queries wait for the upstream.
// A connection over QUIC on which nothing is received for 200ms after a query, at least four round-trip
// times, is replaced, and its queries are sent again: the upstream has restarted. Queries over QUIC are
// padded to multiples of 128 bytes (RFC 8467), and not sent before the handshake is complete (0-RTT),
// which an attacker could repeat. IDs are random. A packet without the ID and question of a waiting
// query, a malformed packet, and one whose records all belong to another name are counted and ignored,
// and the right reply may still arrive; after 64 packets with a wrong ID or question a socket's queries
// are sent over TCP. Only the records of a reply that belong to the query are used: records of its name
// and of CNAME targets, the zone's own authority records, and the addresses of names in them. Records of
// names in zones of this server's own data are dropped, unless the query name is in the zone: the zones
// of kubernetes, k8s_external, etcd, file, auto, secondary, with the members of its catalogs, and hosts
// in any server block of the listening address. If a CNAME record leads into such a zone, the server's
// own answer for that name follows it, through the server block of the name, and the whole answer is not
// cached. Duplicate records are dropped. A CNAME loop or a chain of more than 31 CNAME records becomes
// SERVFAIL. A reply with records of the name but none of the type, as some load balancers send it,
// becomes NODATA that is not cached.
//
// The options:
//
//   - except: zones within FROM whose names are not forwarded.
//   - force_tcp: send all queries over TCP. By default a query is sent over the
//     protocol that the client used.
//   - prefer_udp: send queries over UDP, also those received over TCP.
//   - prefer_tcp: send queries over TCP, and over UDP to an upstream that could not be
//     connected to, for 10s, and when a query is sent to it again.
//   - fallback: upstreams that get a query if two others have not answered it, or
//     while no address of the others is known, or all are suspect or down.
//   - attempts: how often a query is sent at most, 1 to 16; 16.
//   - policy: the upstream to query first: a random one (the default), each in
//     turn, or the first in the file. Upstreams that are suspect or down come
//     last.
//   - max_concurrent: the number of queries that may wait; more are REFUSED. The
//     default, 0, means no limit, but the server lets at most 32768 queries wait, and
//     at most half of them for one forward: see the directive shed.
//   - read_timeout: the time for one upstream to reply: 2s, from 10ms to 1m. The
//     limit of 5s for the query applies as well.
//   - max_connect_attempts: give up after this number of failed attempts; 0 means
//     to try for 5s. By default it is twice the number of upstreams, and timeouts
//     do not count.
//   - failover: also try the next upstream on these response codes. If all
//     upstreams return one, the last reply is used.
//   - next, next_on_nodata: on these response codes, or on NODATA, pass the query
//     to the next forward whose FROM contains its name.
//   - health_check: how often to check an upstream after a failure, 500ms. The
//     query is NS of the root, or of domain, with RD unless no_rec is given. Any
//     reply counts as healthy.
//   - max_fails: the number of failed checks in a row after which an upstream is
//     down, 2. It gets no queries until it answers a check. If all upstreams are
//     down, clients get SERVFAIL at once. 0 disables checks.
//   - failfast_all_unhealthy_upstreams: send no queries while all upstreams are
//     down. By default up to a hundred queries a second are sent to one of them,
//     with the time it usually takes; a reply marks it healthy.
//   - expire: close unused connections, and replace UDP sockets, after this time,
//     10s.
//   - max_age: replace connections after this time in any case; no shorter than
//     expire. The default is never.
//   - max_idle_conns: the number of unused sockets, or connections, to keep for
//     each upstream; 0, the default, means no limit.
//   - tls: the client certificate and key, and the CA to verify upstreams with
//     instead of the system's.
//   - tls_servername: the name in the upstreams' certificates. It excludes %NAME
//     in a TO.
//   - doh_method: the HTTP method for DNS over HTTPS, POST by default.
//   - case_randomization: auto, the default, sends queries over UDP in random letter
//     case (0x20), which a forged reply must repeat. After 8 replies in the case of
//     the query an upstream is known to preserve it; then a reply in another case is
//     ignored, and the query is sent again in the client's case. After 3 such replies,
//     or one in another case before, queries are sent in the client's case for 10
//     minutes. off always sends them in the client's case.
//   - source_address: the local address for upstreams of its family.
//   - resolver: the servers that look up host names of upstreams.
//
// The metadata key forward/upstream is the upstream that answered. The log
// reports when an upstream goes down and when it is up again.
//
// Metrics, by to, the upstream: coredns_proxy_request_duration_seconds{proxy_name,to,rcode},
// coredns_proxy_healthcheck_failures_total{proxy_name,to},
// coredns_proxy_conn_cache_hits_total and _misses_total{proxy_name,to,proto},
// coredns_forward_healthcheck_broken_total,
// coredns_forward_max_concurrent_rejects_total; for older dashboards
// coredns_forward_requests_total{to}, coredns_forward_responses_total{to,rcode}
// and coredns_forward_request_duration_seconds{to,rcode}; and
// seamark_forward_upstream_up{to}, 1 if the upstream is up and 0 if it is down;
// seamark_forward_upstream_down_total{to}, how often it went down;
// seamark_forward_waiting_queries{to}, queries sent to it that it has not answered;
// seamark_forward_discarded_total{to,reason}, with the reasons malformed, id,
// question, case, records, size, late and record; seamark_forward_coalesced_total;
// seamark_forward_retries_total{to}; seamark_forward_failures_total{to}, queries
// that the upstream did not answer.
//
// The usual forward, and a stub zone with two servers, the first one preferred:
//
//	.:1053 {
//	    forward corp.example 10.0.0.10 10.0.0.11:5353 {
//	        policy sequential
//	        failover SERVFAIL REFUSED
//	    }
//	    forward . /etc/resolv.conf {
//	        max_concurrent 1000
//	        except cluster.local
//	    }
//	}
//
// All queries over TLS, to one provider, or over QUIC with quic:// in place of tls://:
//
//	.:1053 {
//	    forward . tls://9.9.9.9 tls://149.112.112.112 {
//	        tls_servername dns.quad9.net
//	        health_check 5s
//	    }
//	}
//
// All replicas of a cluster's DNS, from a node: the name of a headless Service, looked up
// at the ClusterIP of another Service, which answers as long as no replica is known:
//
//	.:1053 {
//	    forward cluster.local kube-dns-replicas.kube-system.svc.cluster.local {
//	        resolver 10.96.0.11
//	        fallback 10.96.0.11
//	        prefer_tcp
//	        attempts 4
//	    }
//	}
//
// A ClusterIP alone would lead all queries of a connection to one replica.
//
// Same as CoreDNS: syntax and defaults, and the errors in log lines. Different:
// another upstream is queried when one is slow; queries over UDP are in random letter
// case; truncated replies are queried
// again over TCP; replies are validated, and hop-by-hop EDNS options (cookie,
// NSID, keepalive, padding) are not passed on; all zones of a CIDR count; when all
// upstreams are down the wait is short, or none; host names are looked up again
// and need not resolve at the start; queries for AXFR and IXFR are NOTIMP.
// Seamark only: equal queries are sent once, queries are retried, and the options
// prefer_tcp, fallback and attempts.
type Forward struct {
	from          []wire.Name
	except        []wire.Name
	maxConcurrent int64 // zero: no limit
	nextCodes     []wire.RCode
	nextOnNodata  bool
	fallthru      config.Fallthrough // of grpc
	options       options
	later         []*Forward // the forwards of the block that follow this one
	stateKey      dns.StateKey
	observers     []dns.ExchangeObserver
	rejects       *metrics.Counter
	waiting       atomic.Int64
	set           *upstreamSet
	excluded      atomic.Pointer[exclusion]
}

// options are the options that belong to a set of upstreams. Forwards with equal
// options share one.
type options struct {
	destinations []destination
	forceTCP     bool
	preferUDP    bool
	preferTCP    bool
	maxSends     int
	expire       time.Duration
	maxAge       time.Duration // zero: no limit
	maxIdleConns int           // zero: no limit
	readTimeout  time.Duration
	maxFails     int
	maxAttempts  int // zero: no limit; -1: depends on the number of upstreams
	dohGet       bool
	tls          tlsOptions
	serverName   string
	plainText    bool // without TLS: of grpc
	policy       string
	checkEvery   time.Duration
	checkNoRec   bool
	checkDomain  wire.Name
	failfast     bool
	plainCase    bool // case_randomization off
	failover     []wire.RCode
	source       netip.Addr
	resolvers    []netip.AddrPort
}

// Values of the option policy.
const (
	random     = "random"
	roundRobin = "round_robin"
	sequential = "sequential"
)

var errLimit = errors.New("concurrent queries exceeded maximum")

// AnyClass reports that queries of other classes than IN are forwarded, too.
func (f *Forward) AnyClass() bool { return true }

// matches reports whether q's name is forwarded.
func (f *Forward) matches(q *dns.Query) bool {
	if len(f.from) == 1 && f.from[0] == wire.Root && len(f.except) == 0 {
		return true
	}
	inside, excepted := f.zonesOf(q)
	return inside && excepted == ""
}

// zonesOf reports whether q's name is in one of the zones that are forwarded, and returns
// the longest zone of the option except that it is in, "" if there is none.
func (f *Forward) zonesOf(q *dns.Query) (inside bool, excepted wire.Name) {
	name := q.Name()
	for i := q.Labels(); i >= 0; i-- {
		suffix := name[q.LabelOffset(i):]
		for _, zone := range f.except {
			if string(suffix) == string(zone) && !(i == 0 && slices.Contains(f.from, zone)) {
				excepted = zone
			}
		}
		for _, zone := range f.from {
			inside = inside || string(suffix) == string(zone)
		}
	}
	return inside, excepted
}

// RepeatableDNS reports that answers from a cache above do not depend on f.
func (*Forward) RepeatableDNS(*dns.Query) bool { return true }

// ServeDNS passes queries for names outside the zones of f to the next handler. Other
// queries are parked.
func (f *Forward) ServeDNS(q *dns.Query) dns.Verdict {
	switch {
	case !f.matches(q):
		return dns.Next
	case q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR:
		q.Fail(wire.NotImp)
		return dns.Done
	case f.maxConcurrent > 0 && f.waiting.Load() >= f.maxConcurrent:
		f.refuse(q)
		return dns.Done
	}
	return dns.Wait
}

// refuse answers a query above max_concurrent.
func (f *Forward) refuse(q *dns.Query) {
	f.rejects.Add(1)
	q.Fail(wire.Refused)
	q.Err = fmt.Errorf("%w %d", errLimit, f.maxConcurrent)
}

// acquire counts a waiting query. It returns false if max_concurrent queries are waiting.
func (f *Forward) acquire() bool {
	for {
		n := f.waiting.Load()
		if f.maxConcurrent > 0 && n >= f.maxConcurrent {
			return false
		}
		if f.waiting.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// AwaitDNS sends q to the upstreams, unless an equal query has been sent.
func (f *Forward) AwaitDNS(q *dns.Query, wake func()) bool {
	if !f.acquire() {
		return false
	}
	q.SetState(f.stateKey, f.set.join(q, f.excluded.Load(), len(f.observers) > 0 || q.Trace() != nil, wake))
	return true
}

// Resolve answers q after AwaitDNS.
func (f *Forward) Resolve(ctx context.Context, q *dns.Query) error {
	x, ok := q.State(f.stateKey).(*exchange)
	if !ok {
		f.refuse(q)
		return nil
	}
	q.SetState(f.stateKey, nil)
	f.waiting.Add(-1)
	if !x.isFinished() {
		q.AddExtendedError(wire.EDENoReachable, "no answer in time")
		return fmt.Errorf("no reply from any upstream: %w", ctx.Err())
	}
	if x.upstream != nil {
		q.SetState(f.stateKey, x.upstream)
	}
	if len(f.observers) > 0 || q.Trace() != nil {
		f.observe(q, x)
	}
	if x.reply == nil && f.fallthru.Through(q.Name()) {
		q.Next(ctx)
		return nil
	}
	if x.reply == nil {
		q.AddExtendedError(x.ede, x.edeText())
		return x.err
	}
	if f.passesOn(q, x.reply) {
		q.Next(ctx)
		return nil
	}
	x.reply.write(q)
	if target := x.reply.ownTarget; target != nil {
		f.followOwn(ctx, q, target)
	}
	return nil
}

// followOwn adds this server's own answer for target, to which the last CNAME record of
// the answer leads.
func (f *Forward) followOwn(ctx context.Context, q *dns.Query, target []byte) {
	sub, ok := q.SubQuery(target, q.Type)
	if !ok {
		sub = q.ResumeSubQuery(ctx)
	}
	ra := q.RA
	served := q.FollowCNAME(sub)
	q.RA = ra
	q.AD = q.AD && sub.AD
	q.Cacheable = q.Cacheable && served && sub.Cacheable
}

// passesOn reports whether the reply makes the query go to the next forward, or
// directive.
func (f *Forward) passesOn(q *dns.Query, r *reply) bool {
	if r.code == wire.NXDomain && f.fallthru.Through(q.Name()) {
		return true
	}
	if !slices.Contains(f.nextCodes, r.code) && !(f.nextOnNodata && r.isNODATA()) {
		return false
	}
	return slices.ContainsFunc(f.later, func(other *Forward) bool { return other.matches(q) })
}

// Metadata returns the value of forward/upstream.
func (f *Forward) Metadata(q *dns.Query, key string) (string, bool) {
	if key != "forward/upstream" {
		return "", false
	}
	if u, ok := q.State(f.stateKey).(*upstream); ok {
		return u.String(), true
	}
	return "", false
}

// From returns the zone whose names are forwarded. This and the methods below are
// for directive loop.
func (f *Forward) From() wire.Name { return f.from[0] }

// Upstreams returns the names of the current upstreams. changed is closed when
// they change.
func (f *Forward) Upstreams() (names []string, changed <-chan struct{}) {
	list := f.set.current.Load()
	for _, u := range list.all {
		names = append(names, u.String())
	}
	return names, list.changed
}

// Probe sends a query to one upstream, even if it is excluded, and waits for any
// reply.
func (f *Forward) Probe(ctx context.Context, name string, q wire.Name, t wire.Type) error {
	for _, u := range f.set.current.Load().all {
		if u.String() == name {
			return u.probe(ctx, &request{question: questionOf(q, t), flags: wire.FlagRD})
		}
	}
	return errNoUpstream
}

// Exclude excludes an upstream from f's queries, or includes it again.
func (f *Forward) Exclude(name string, exclude bool) {
	for {
		old := f.excluded.Load()
		if f.excluded.CompareAndSwap(old, old.with(name, exclude)) {
			return
		}
	}
}

// Forwards reports whether all names in a zone are forwarded. It is for directive
// kubernetes.
func (f *Forward) Forwards(zone wire.Name) bool {
	within := func(other wire.Name) bool { return wire.Within(zone, other) }
	return slices.ContainsFunc(f.from, within) && !slices.ContainsFunc(f.except, func(other wire.Name) bool {
		return within(other) || wire.Within(other, zone)
	})
}
