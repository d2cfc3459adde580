// Package forward sends questions on to other DNS servers, and keeps what they
// say wrong away from clients: the forward directive. A Forward is the handler;
// the upstreams are what it shares with the plan after a reload; an exchange is
// one question under way, and an attempt one packet of it. No other handler
// opens sockets to servers.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Forward asks other servers and gives their answers: the forward directive.
//
//	forward FROM TO... {
//	    except ZONES...
//	    force_tcp
//	    prefer_udp
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
//	    source_address IP
//	    resolver IP[:PORT]...
//	}
//
// FROM is the zone whose names are sent on, or a CIDR for its reverse zones.
// Each TO is an upstream, or several; there may be 15 in all:
//
//   - an address, IP, IP:PORT or [IPv6]:PORT, with dns:// in front if you like;
//   - tls://IP for DNS over TLS at port 853, tls://IP%NAME to say which name its
//     certificate must have;
//   - https://HOST[:PORT][/PATH] for DNS over HTTPS, at /dns-query unless given;
//   - a file such as /etc/resolv.conf, whose nameserver lines count. It is read
//     again when it changes. A file that has become unreadable, or empty,
//     changes nothing;
//   - the name of a host, whose addresses are looked up every 30s by the
//     machine's own resolver, or by that of the option resolver.
//
// forward may be given several times. A query goes to the first whose FROM has
// its name, in the order of the file.
//
// A question goes to one upstream. If there is no answer in the time in which
// that one gives 95 of 100 answers (at least 20ms; 250ms as long as it is not
// known), the question goes to the next as well, and so on; the first good
// answer counts. Unless the policy is sequential, no upstream has longer than
// four times what the fastest takes, and one that keeps being late comes last.
// Who has refused, or hung up, is not asked the same again while there are
// others. After 5s, or when nobody is left to ask, the client gets SERVFAIL
// with an extended error: 22 if nobody answered, 23 if the network refused.
// Equal questions that are under way at the same time are one: the upstream
// sees it once. A truncated answer is asked for again over TCP; if there is no
// answer within read_timeout, clients get what came, marked as truncated.
//
// What it costs: some 10 µs of processor time for a question, and 18 KB for as
// long as it is under way; a socket or connection of each upstream is a
// goroutine. Retries are at most 16 for a question, and about one for twenty
// questions where upstreams are well.
//
// Questions over UDP share a few sockets for each upstream, 4 as a rule. Each
// has a port of its own and makes way for another after expire, or between
// 1024 and 2048 questions. Connections are shared in the same way. Ids are random.
// A packet that has not the id and the question of one that is waiting, that
// does not parse, or that holds answers to something else alone, is counted and
// ignored, and the right answer may still come; when more than 64 wrong ones
// have come to a socket, its questions go over TCP. Of a good reply only those
// records are used that belong to the question: its name, what CNAMEs lead to,
// the zone's own authority, and addresses of names that these tell. A reply that
// has records of the name and none of the type, as some load balancers give, is
// taken for NODATA, and not kept.
//
// The options:
//
//   - except: zones within FROM whose names are not sent on.
//   - force_tcp: ask over TCP only. Otherwise what came over UDP is sent over
//     UDP, and over TCP over TCP.
//   - prefer_udp: ask over UDP what came over TCP, too.
//   - policy: whom to ask first: a random one (the default), each in turn, or
//     the first in the file. Those that do not answer just now come last.
//   - max_concurrent: how many queries may be waiting; more are REFUSED. 0, the
//     default, is any number, though the server as a whole lets 4096 wait. Each costs
//     some 18 KB as long as it waits.
//   - read_timeout: how long to wait for one upstream, 2s; 10ms to 1m, though
//     the 5s of the question count in any case.
//   - max_connect_attempts: after how many attempts that failed a question is
//     given up; 0 is not before the 5s. Unless given, as many as twice the
//     number of upstreams, where only what is refused or closed counts, and
//     not what is not answered in time.
//   - failover: with these codes, too, the next upstream is asked. The last
//     reply counts if all say so.
//   - next, next_on_nodata: with these codes, or if the name has nothing of
//     the type, the next forward is asked whose FROM has the name.
//   - health_check: how often an upstream is checked that has failed, 500ms.
//     The question is NS of the root, or of domain, with RD unless no_rec. Any
//     reply is health.
//   - max_fails: after how many failed checks in a row an upstream is down, 2.
//     It is not asked until it answers one. If all are down, clients get
//     SERVFAIL at once. 0: never down, and no checks.
//   - failfast_all_unhealthy_upstreams: if all are down, ask nobody. Otherwise
//     one of them gets the question nevertheless, if that is not more than a
//     hundred in a second, and has the time in which it usually answers. An
//     answer shows that the upstream is back.
//   - expire: when a connection that nobody uses is closed, and a UDP socket
//     makes way, 10s.
//   - max_age: when a connection makes way in any case. Never unless given.
//   - max_idle_conns: how many sockets, or connections, to hold for one
//     upstream while nobody uses them, 0 for as many as there are.
//   - tls: the certificate and key to show to upstreams, and the CA that theirs
//     must be from instead of the machine's.
//   - tls_servername: the name that their certificates must have.
//   - doh_method: how to ask over HTTPS, POST unless given.
//   - source_address: the address to ask from, of upstreams of its family.
//   - resolver: who is asked for the addresses of upstreams given by name.
//
// The key forward/upstream of metadata is the upstream that answered. Metrics,
// by to, the upstream: coredns_proxy_request_duration_seconds{proxy_name,to,rcode},
// coredns_proxy_healthcheck_failures_total{proxy_name,to},
// coredns_proxy_conn_cache_hits_total and _misses_total{proxy_name,to,proto},
// coredns_forward_healthcheck_broken_total,
// coredns_forward_max_concurrent_rejects_total; for older dashboards
// coredns_forward_requests_total{to}, coredns_forward_responses_total{to,rcode}
// and coredns_forward_request_duration_seconds{to,rcode}; and
// seamark_forward_discarded_total{to,reason}, with the reasons malformed, id,
// question, records, size, late and record; seamark_forward_coalesced_total;
// seamark_forward_retries_total{to}; seamark_forward_failures_total{to}, the
// questions that the upstream did not answer.
//
// The usual one, and a stub zone with two servers of which the first is
// preferred:
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
// Everything over TLS, to one provider:
//
//	.:1053 {
//	    forward . tls://9.9.9.9 tls://149.112.112.112 {
//	        tls_servername dns.quad9.net
//	        health_check 5s
//	    }
//	}
//
// Same as CoreDNS: syntax and defaults, and the errors that log lines show.
// Differs: a slow upstream is not waited for but another asked; truncated
// answers are asked for over TCP; replies are checked and trimmed to the
// question, and options of EDNS that are between two servers (cookie, NSID,
// keepalive, padding) are not handed through; all zones of a CIDR count; when
// all upstreams are down the wait is short, or none; a hostname is looked up again and
// need not resolve at the start; queries for AXFR and IXFR are NOTIMP. Ours:
// that equal questions are asked once, and retries.
type Forward struct {
	from     []wire.Name
	except   []wire.Name
	most     int64 // max_concurrent
	next     []wire.RCode
	nodata   bool // next_on_nodata
	options  options
	after    []*Forward // those of the block behind this one
	stateKey dns.StateKey
	rejects  *metrics.Counter
	waiting  atomic.Int64
	set      *upstreams
	excluded atomic.Pointer[exclusion]
}

// Options are what makes one set of upstreams differ from another.
type options struct {
	to          []place
	forceTCP    bool
	preferUDP   bool
	expire      time.Duration
	maxAge      time.Duration // 0: none
	maxIdle     int           // 0: any number
	readTimeout time.Duration
	maxFails    int
	maxAttempts int // 0: any number; -1: by the number of upstreams
	dohGet      bool
	tls         secure
	serverName  string
	policy      string
	checkEvery  time.Duration
	checkNoRec  bool
	checkDomain wire.Name
	failfast    bool
	failover    []wire.RCode
	source      netip.Addr
	resolvers   []netip.AddrPort
}

// The policies.
const (
	random     = "random"
	roundRobin = "round_robin"
	sequential = "sequential"
)

var errLimit = errors.New("concurrent queries exceeded maximum")

// AnyClass says that queries of other classes than IN are sent on as well.
func (f *Forward) AnyClass() bool { return true }

// has says whether f is asked for a name.
func (f *Forward) has(q *dns.Query) bool {
	name := q.Name()
	if len(f.from) == 1 && f.from[0] == wire.Root && len(f.except) == 0 {
		return true
	}
	inside := false
	for i := q.Labels(); i >= 0; i-- {
		suffix := name[q.LabelOffset(i):]
		for _, zone := range f.except {
			if string(suffix) == string(zone) && !(i == 0 && slices.Contains(f.from, zone)) {
				return false
			}
		}
		for _, zone := range f.from {
			inside = inside || string(suffix) == string(zone)
		}
	}
	return inside
}

// ServeDNS lets the names of others by.
func (f *Forward) ServeDNS(q *dns.Query) dns.Verdict {
	switch {
	case !f.has(q):
		return dns.Next
	case q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR:
		q.Fail(wire.NotImp)
		return dns.Done
	case f.most > 0 && f.waiting.Load() >= f.most:
		f.refuse(q)
		return dns.Done
	}
	return dns.Wait
}

// refuse answers a query that is one too many.
func (f *Forward) refuse(q *dns.Query) {
	f.rejects.Add(1)
	q.Fail(wire.Refused)
	q.Err = fmt.Errorf("%w %d", errLimit, f.most)
}

// enter counts a query that waits, unless it is one too many.
func (f *Forward) enter() bool {
	for {
		n := f.waiting.Load()
		if f.most > 0 && n >= f.most {
			return false
		}
		if f.waiting.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Resolve asks the upstreams, or waits for somebody who asks them the same.
func (f *Forward) Resolve(ctx context.Context, q *dns.Query) error {
	if !f.enter() {
		f.refuse(q)
		return nil
	}
	defer f.waiting.Add(-1)
	x := f.set.join(q, f.excluded.Load())
	select {
	case <-x.done:
	case <-ctx.Done():
		q.AddExtendedError(wire.EDENoReachable, "no answer in time")
		return fmt.Errorf("no upstream has answered yet: %w", ctx.Err())
	}
	if x.from != nil {
		q.SetState(f.stateKey, x.from)
	}
	if x.reply == nil {
		q.AddExtendedError(x.ede, x.text)
		return x.err
	}
	if f.goesOn(q, x.reply) {
		q.Next(ctx)
		return nil
	}
	x.reply.write(q)
	return nil
}

// goesOn says that another forward is to be asked.
func (f *Forward) goesOn(q *dns.Query, r *reply) bool {
	if !slices.Contains(f.next, r.code) && !(f.nodata && r.nodata()) {
		return false
	}
	return slices.ContainsFunc(f.after, func(g *Forward) bool { return g.has(q) })
}

// Metadata knows forward/upstream.
func (f *Forward) Metadata(q *dns.Query, key string) (string, bool) {
	if key != "forward/upstream" {
		return "", false
	}
	if u, ok := q.State(f.stateKey).(*upstream); ok {
		return u.String(), true
	}
	return "", false
}

// What loop asks of a forward.

// From is the zone of whose names the upstreams are asked.
func (f *Forward) From() wire.Name { return f.from[0] }

// Upstreams names those that there are now. changed is closed when there are
// others.
func (f *Forward) Upstreams() (names []string, changed <-chan struct{}) {
	r := f.set.roster.Load()
	for _, u := range r.all {
		names = append(names, u.String())
	}
	return names, r.changed
}

// Probe asks one upstream for a name and type, whether it is excluded or not,
// and waits for any reply.
func (f *Forward) Probe(ctx context.Context, name string, q wire.Name, t wire.Type) error {
	for _, u := range f.set.roster.Load().all {
		if u.String() == name {
			return u.probe(ctx, &request{question: questionOf(q, t), flags: wire.FlagRD})
		}
	}
	return errNone
}

// Exclude takes an upstream out of this forward, or back in.
func (f *Forward) Exclude(name string, out bool) {
	for {
		old := f.excluded.Load()
		if f.excluded.CompareAndSwap(old, old.with(name, out)) {
			return
		}
	}
}
