package forward

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

func TestAnswers(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr)
	m, err := r.ask(query("WwW.Example.Org.", mdns.TypeA), dns.UDP)
	if err != nil || brief(m) != "192.0.2.1" || m.Answer[0].Header().Name != "WwW.Example.Org." {
		t.Errorf("WwW.Example.Org. A: got error %v and\n%v\nwant 192.0.2.1 with the owner name WwW.Example.Org.", err, m)
	}
	if !m.RecursionAvailable || m.Authoritative || m.Truncated || m.IsEdns0() != nil {
		t.Errorf("flags: got\n%v\nwant ra without aa and ad", m)
	}
	all, _ := up.received()
	sent := all[0]
	if sent.Question[0].Name != "WwW.Example.Org." || !sent.RecursionDesired || sent.IsEdns0() == nil || sent.IsEdns0().UDPSize() != 1232 {
		t.Errorf("query to the upstream: got\n%v\nwant the client's spelling, RD, and EDNS with size 1232", sent)
	}
	if to := r.metric(fmt.Sprintf(`coredns_proxy_request_duration_seconds_count{proxy_name="forward",to=%q,rcode="NOERROR"}`, up.addr)); to != "1" {
		t.Errorf("request_duration_seconds_count: got %q, want 1", to)
	}
	if n := r.metric(fmt.Sprintf(`coredns_forward_responses_total{to=%q,rcode="NOERROR"}`, up.addr)); n != "1" {
		t.Errorf("responses_total: got %q, want 1", n)
	}
	if n := r.metric(fmt.Sprintf(`coredns_forward_requests_total{to=%q}`, up.addr)); n != "1" {
		t.Errorf("requests_total: got %q, want 1", n)
	}
}

// The query's own header bits and options are forwarded, hop-by-hop ones are not.
func TestRequestToUpstream(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		m.AuthenticatedData, m.Authoritative = true, true
		m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_EDE{InfoCode: 3, ExtraText: "old"},
			&mdns.EDNS0_NSID{Code: mdns.EDNS0NSID, Nsid: "beef"})
		send(pack(m))
	})
	r := newHarness(t, "forward . "+up.addr)
	q := query("a.example.", mdns.TypeA)
	q.RecursionDesired, q.CheckingDisabled = false, true
	q.SetEdns0(4096, true)
	q.IsEdns0().Option = append(q.IsEdns0().Option,
		&mdns.EDNS0_COOKIE{Code: mdns.EDNS0COOKIE, Cookie: "0123456789abcdef"},
		&mdns.EDNS0_NSID{Code: mdns.EDNS0NSID},
		&mdns.EDNS0_SUBNET{Code: mdns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: net.IPv4(192, 0, 2, 0)})
	m, err := r.ask(q, dns.UDP)
	if err != nil || !m.AuthenticatedData || !m.Authoritative {
		t.Errorf("query with EDNS options: got error %v and\n%v\nwant aa and ad", err, m)
	}
	if o := m.IsEdns0().Option; len(o) != 1 || o[0].Option() != mdns.EDNS0EDE {
		t.Errorf("options of the reply: got %v, want only EDE", o)
	}
	all, _ := up.received()
	sent := all[0]
	if sent.RecursionDesired || !sent.CheckingDisabled || !sent.IsEdns0().Do() {
		t.Errorf("query to the upstream: got\n%v\nwant CD and DO, not RD", sent)
	}
	if o := sent.IsEdns0().Option; len(o) != 1 || o[0].Option() != mdns.EDNS0SUBNET {
		t.Errorf("options of the query to the upstream: got %v, want only the client subnet", o)
	}
	// AD is set only for clients that set AD or DO (RFC 6840 §5.8).
	if m, _ := r.ask(query("a.example.", mdns.TypeA), dns.UDP); m.AuthenticatedData {
		t.Error("client without AD and DO: got AD in the reply, want none")
	}
}

func TestZonesAndExcept(t *testing.T) {
	a, b := newFakeUpstream(t, answerWithAddress("1")), newFakeUpstream(t, answerWithAddress("2"))
	r := newHarness(t, "forward corp.example "+a.addr+" {\n except home.corp.example 10.0.0.0/8\n}\nforward . "+b.addr+" {\n except 10.0.0.0/8 lan\n}\nforward lan "+a.addr)
	for name, want := range map[string]string{
		"corp.example.": "192.0.2.1", "X.CORP.example.": "192.0.2.1", "a.b.corp.example.": "192.0.2.1",
		"xcorp.example.": "192.0.2.2", "a.home.corp.example.": "192.0.2.2", "example.": "192.0.2.2", ".": "NOERROR",
		"1.0.0.10.in-addr.arpa.": "SERVFAIL", "1.0.0.11.in-addr.arpa.": "192.0.2.2", "a.lan.": "192.0.2.1",
	} {
		qtype := mdns.TypeA
		if name == "." {
			qtype = mdns.TypeNS
		}
		r.wantAnswer(name, qtype, want)
	}
}

// Queries of other classes than IN are forwarded; zone transfers are not.
func TestOtherClassesAndTransfers(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := answerOf(q, "1")
		m.Answer = []mdns.RR{rr(`version.bind. 0 CH TXT "x"`)}
		send(pack(m))
	})
	r := newHarness(t, "forward . "+up.addr)
	q := query("version.bind.", mdns.TypeTXT)
	q.Question[0].Qclass = mdns.ClassCHAOS
	if m, _ := r.ask(q, dns.UDP); len(m.Answer) != 1 {
		t.Errorf("version.bind. CH TXT: got\n%v\nwant one record", m)
	}
	n := up.queryCount()
	r.wantAnswer("example.", mdns.TypeAXFR, "NOTIMP")
	if up.queryCount() != n {
		t.Error("example. AXFR: got a query to the upstream, want none")
	}
}

// Equal queries in any spelling are sent once, and each client gets its own ID and
// spelling.
func TestEqualQueriesCoalesced(t *testing.T) {
	release := make(chan struct{})
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		go func() { <-release; send(pack(answerOf(q, "1"))) }()
	})
	r := newHarness(t, "forward . "+up.addr)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			name := "many.example."
			if i%2 == 1 {
				name = "MANY.example."
			}
			m, err := r.ask(query(name, mdns.TypeA), dns.UDP)
			if err != nil || brief(m) != "192.0.2.1" || m.Answer[0].Header().Name != name {
				t.Errorf("%s A: got error %v and\n%v\nwant 192.0.2.1 in the same spelling", name, err, m)
			}
		})
	}
	chaintest.Eventually(t, "49 wait for the first", func() bool { return r.metric("seamark_forward_coalesced_total") == "49" })
	close(release)
	all.Wait()
	// The only upstream may be queried again after a quarter of a second.
	if n := up.queryCount(); n < 1 || n > 4 {
		t.Errorf("equal queries: got %d queries to the upstream, want 1 to 4", n)
	}
	// A query with another type, DO or CD is another query.
	up.setBehavior(answerWithAddress("1"))
	n := up.queryCount()
	for _, do := range []bool{false, true} {
		q := query("many.example.", mdns.TypeA)
		q.CheckingDisabled = do
		_, _ = r.ask(q, dns.UDP)
	}
	if up.queryCount() != n+2 {
		t.Errorf("queries with and without CD: got %d to the upstream, want 2", up.queryCount()-n)
	}
}

// An upstream that is silent or loses packets delays clients no longer than the
// retry delay.
func TestRetryAtNextUpstream(t *testing.T) {
	lost, fine := newFakeUpstream(t, noReply), newFakeUpstream(t, answerWithAddress("2"))
	r := newHarness(t, "forward . "+lost.addr+" "+fine.addr+" {\n policy sequential\n}")
	for i := range 10 {
		r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.2")
	}
	if n := lost.queryCount(); n < suspectAfter || n > suspectAfter+2 {
		t.Errorf("silent upstream: got %d queries, want %d to %d", n, suspectAfter, suspectAfter+2)
	}
	if n := r.metric(fmt.Sprintf(`seamark_forward_retries_total{to=%q}`, fine.addr)); n == "" || n == "0" {
		t.Errorf("retries_total: got %q, want at least 1", n)
	}
}

func TestRetryAtOnlyUpstream(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	var mu sync.Mutex
	seen := map[string]int{}
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		if seen[q.Question[0].Name]++; seen[q.Question[0].Name] == 3 {
			send(pack(answerOf(q, "1")))
		}
	})
	r := newHarness(t, "forward . "+up.addr)
	for i := range 2 {
		r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1")
	}
	if _, _, ports := up.counts(); ports < 2 {
		t.Error("got retries from one port, want another port for each")
	}
}

// A slow reply is used, even if the query has been sent again meanwhile.
func TestSlowAnswerUsed(t *testing.T) {
	release := make(chan struct{})
	var first sync.Once
	up := newFakeUpstream(t, func(q *mdns.Msg, tcp bool, send func([]byte)) {
		first.Do(func() { answerAfter(release, "1")(q, tcp, send) })
	})
	r := newHarness(t, "forward . "+up.addr)
	var client sync.WaitGroup
	client.Go(func() { r.wantAnswer("slow.example.", mdns.TypeA, "192.0.2.1") })
	chaintest.Eventually(t, "the query is sent again", func() bool { return up.queryCount() >= 2 })
	close(release)
	client.Wait()
}

// The error of a timeout has the wording of package net, which users' consolidate
// options match.
func TestTimeoutServfail(t *testing.T) {
	up := newFakeUpstream(t, noReply)
	r := newHarness(t, "forward . "+up.addr+" {\n read_timeout 50ms\n max_connect_attempts 2\n}")
	q := query("a.example.", mdns.TypeA)
	q.SetEdns0(1232, false)
	m, err := r.ask(q, dns.UDP)
	if m.Rcode != mdns.RcodeServerFailure || err == nil {
		t.Fatalf("query of a silent upstream: got error %v and\n%v\nwant SERVFAIL with an error", err, m)
	}
	if text := err.Error(); !strings.HasPrefix(text, "read udp 127.0.0.1:") || !strings.HasSuffix(text, "->"+up.addr+": i/o timeout") {
		t.Errorf("got error %q, want a timeout in the wording of package net", text)
	}
	if e, ok := m.IsEdns0().Option[0].(*mdns.EDNS0_EDE); !ok || e.InfoCode != 22 {
		t.Errorf("got\n%v\nwant the extended error 22", m)
	}
}

// If the port is closed, the client gets SERVFAIL at once.
func TestRefusedConnection(t *testing.T) {
	up := newFakeUpstream(t, noReply)
	up.stop()
	r := newHarness(t, "forward . "+up.addr)
	q := query("a.example.", mdns.TypeA)
	q.SetEdns0(1232, false)
	for _, proto := range []dns.Proto{dns.UDP, dns.TCP} {
		m, err := r.ask(q, proto)
		if m.Rcode != mdns.RcodeServerFailure || err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Fatalf("query of a closed port by %v: got error %v and\n%v\nwant SERVFAIL, connection refused", proto, err, m)
		}
		if e, ok := m.IsEdns0().Option[0].(*mdns.EDNS0_EDE); !ok || e.InfoCode != 23 {
			t.Errorf("got\n%v\nwant the extended error 23", m)
		}
	}
}

func TestMaxConcurrent(t *testing.T) {
	release := make(chan struct{})
	up := newFakeUpstream(t, answerAfter(release, "1"))
	r := newHarness(t, "forward . "+up.addr+" {\n max_concurrent 2\n}")
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() { r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1") })
	}
	chaintest.Eventually(t, "two wait", func() bool { return r.forward[0].limiter.waiting() == 2 })
	m, err := r.ask(query("more.example.", mdns.TypeA), dns.UDP)
	if m.Rcode != mdns.RcodeRefused || err == nil || err.Error() != "concurrent queries exceeded maximum 2" {
		t.Errorf("a third query: got error %v and\n%v\nwant REFUSED, concurrent queries exceeded maximum 2", err, m)
	}
	if n := r.metric("coredns_forward_max_concurrent_rejects_total"); n != "1" {
		t.Errorf("max_concurrent_rejects_total: got %s, want 1", n)
	}
	close(release)
	all.Wait()
	r.wantAnswer("more.example.", mdns.TypeA, "192.0.2.1")
}

func TestFailoverCodes(t *testing.T) {
	bad, fine := newFakeUpstream(t, answerWithCode(mdns.RcodeServerFailure)), newFakeUpstream(t, answerWithAddress("2"))
	to := bad.addr + " " + fine.addr
	newHarness(t, "forward . "+to+" {\n policy sequential\n}").wantAnswer("a.example.", mdns.TypeA, "SERVFAIL")
	r := newHarness(t, "forward . "+to+" {\n policy sequential\n failover SERVFAIL refused\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")
	fine.setBehavior(answerWithCode(mdns.RcodeRefused))
	r.wantAnswer("b.example.", mdns.TypeA, "REFUSED") // the last reply counts
}

func TestNextForward(t *testing.T) {
	first, second := newFakeUpstream(t, answerWithCode(mdns.RcodeNameError)), newFakeUpstream(t, answerWithAddress("2"))
	two := func(options string) *harness {
		return newHarness(t, "forward . "+first.addr+" {\n "+options+"\n}\nforward example "+second.addr)
	}
	two("").wantAnswer("a.example.", mdns.TypeA, "NXDOMAIN")
	two("next REFUSED").wantAnswer("a.example.", mdns.TypeA, "NXDOMAIN")
	two("next NXDOMAIN").wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")
	two("next NXDOMAIN").wantAnswer("a.test.", mdns.TypeA, "NXDOMAIN") // No other forward serves the name.
	first.setBehavior(answerWithCode(mdns.RcodeSuccess))
	two("next NXDOMAIN").wantAnswer("a.example.", mdns.TypeA, "NOERROR")
	two("next_on_nodata").wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")
}

func TestPolicies(t *testing.T) {
	ups := []*fakeUpstream{newFakeUpstream(t, answerWithAddress("1")), newFakeUpstream(t, answerWithAddress("2")), newFakeUpstream(t, answerWithAddress("3"))}
	to := ups[0].addr + " " + ups[1].addr + " " + ups[2].addr
	counts := func(policy string) [3]int {
		var before, n [3]int
		for i, u := range ups {
			before[i] = u.queryCount()
		}
		r := newHarness(t, "forward . "+to+" {\n "+policy+"\n}")
		r.sendOnce()
		for i := range 30 {
			r.query(fmt.Sprintf("n%d.example.", i), mdns.TypeA)
		}
		for i, u := range ups {
			n[i] = u.queryCount() - before[i]
		}
		return n
	}
	if n := counts("policy sequential"); n != [3]int{30, 0, 0} {
		t.Errorf("sequential: got %v queries, want [30 0 0]", n)
	}
	if n := counts("policy round_robin"); n != [3]int{10, 10, 10} {
		t.Errorf("round_robin: got %v queries, want [10 10 10]", n)
	}
	for _, policy := range []string{"policy random", ""} {
		if n := counts(policy); n[0] == 0 || n[1] == 0 || n[2] == 0 || n[0]+n[1]+n[2] != 30 {
			t.Errorf("%q: got %v queries, want 30, some to each upstream", policy, n)
		}
	}
}

// An excluded upstream gets no queries; if all are excluded, clients get SERVFAIL.
// Other forwards still use it.
func TestExcludedUpstream(t *testing.T) {
	a, b := newFakeUpstream(t, answerWithAddress("1")), newFakeUpstream(t, answerWithAddress("2"))
	r := newHarness(t, "forward example "+a.addr+" "+b.addr+"\nforward . "+a.addr+" "+b.addr)
	f := r.forward[0]
	if names, _ := f.Upstreams(); len(names) != 2 || names[0] != a.addr || f.From().String() != "example." {
		t.Errorf("got upstreams %v of zone %s, want 2 of example.", names, f.From())
	}
	f.Exclude(a.addr, true)
	for i := range 20 {
		r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.2")
	}
	f.Exclude(b.addr, true)
	q := query("a.example.", mdns.TypeA)
	q.SetEdns0(1232, false)
	m, err := r.ask(q, dns.UDP)
	if m.Rcode != mdns.RcodeServerFailure || err == nil || m.IsEdns0().Option[0].Option() != mdns.EDNS0EDE {
		t.Errorf("all upstreams excluded: got error %v and\n%v\nwant SERVFAIL with an extended error", err, m)
	}
	if got := r.query("a.test.", mdns.TypeA); got != "192.0.2.1" && got != "192.0.2.2" {
		t.Errorf("other forward: a.test. A: got %s, want 192.0.2.1 or 192.0.2.2", got)
	}
	n := a.queryCount()
	if err := f.Probe(t.Context(), a.addr, "\x05probe\x07example\x00", wire.TypeHINFO); err != nil || a.queryCount() != n+1 {
		t.Errorf("Probe of an excluded upstream: got error %v and %d queries, want %d queries", err, a.queryCount(), n+1)
	}
	f.Exclude(a.addr, false)
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
}

// Metadata names the upstream that answered.
func TestUpstreamMetadata(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	b, err := setup(".:53 {\nforward . "+up.addr+" {\n except lan\n}\n}", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Offer(metadata{})
	said := make(chan string, 1)
	b.Offer(metadataObserver{b.Metadata("forward/upstream"), said})
	r := &harness{t: t}
	r.serve(b, nil)
	defer func() { r.lot.Close(t.Context()); r.start.Stop() }()
	r.query("a.example.", mdns.TypeA)
	if got := <-said; got != up.addr {
		t.Errorf("got %q, want %s", got, up.addr)
	}
}

type metadataObserver struct {
	read   func(*dns.Query) string
	values chan string
}

func (o metadataObserver) ObserveDNS(q *dns.Query) { o.values <- o.read(q) }

// Upstreams lose, delay, forge, repeat, truncate and close, and all clients get the
// right answer.
func TestRandomFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	// The fault depends on the name and on how often it has been queried, so that
	// each run has the same ones.
	var mu sync.Mutex
	copies := map[string]uint64{}
	faulty := func(q *mdns.Msg, tcp bool, send func([]byte)) {
		name := q.Question[0].Name
		mu.Lock()
		copies[name]++
		random := rand.New(rand.NewPCG(copies[name], uint64(crc32.ChecksumIEEE([]byte(name)))))
		mu.Unlock()
		m := answerOf(q, strings.TrimPrefix(strings.SplitN(name, ".", 2)[0], "n"))
		fault := random.IntN(10)
		if tcp && (fault == 3 || fault == 4 || fault == 8) {
			fault = 9 // a connection has no forged messages
		}
		switch fault {
		case 0, 1: // lost
			return
		case 2:
			time.AfterFunc(time.Duration(random.IntN(100))*time.Millisecond, func() { send(pack(m)) })
			return
		case 3:
			send(packForged(q, func(m *mdns.Msg) { m.Id++ }))
		case 4:
			send(packForged(q, func(m *mdns.Msg) { m.Question[0].Name = "bank.example." }))
		case 5:
			send(packForged(q, func(m *mdns.Msg) { m.Answer = []mdns.RR{rr("bank.example. 9 IN A 192.0.2.66")} }))
		case 6:
			send(pack(m))
		case 7:
			if !tcp {
				m.Answer, m.Truncated = nil, true
			}
		case 8:
			send([]byte("garbage"))
			return
		}
		send(pack(m))
	}
	a, b, c := newFakeUpstream(t, faulty), newFakeUpstream(t, faulty), newFakeUpstream(t, noReply)
	r := newHarness(t, "forward . "+a.addr+" "+b.addr+" "+c.addr)
	var all sync.WaitGroup
	for k := range 20 {
		all.Go(func() {
			for i := range 20 {
				n := k*10 + i
				ask := query(fmt.Sprintf("n%d.k%d.example.", n, k), mdns.TypeA)
				m, _ := r.ask(ask, dns.UDP)
				if m.Truncated { // TCP failed several times: the client retries now.
					m, _ = r.ask(ask, dns.TCP)
				}
				if want := fmt.Sprintf("192.0.2.%d", n); brief(m) != want {
					t.Errorf("%s: got %s, want %s", ask.Question[0].Name, brief(m), want)
				}
			}
		})
	}
	all.Wait()
}

// Matching a query that is not forwarded does not allocate.
func TestMatchesAllocations(t *testing.T) {
	b, err := setup(".:53 {\nforward corp.example 192.0.2.1 {\n except a.corp.example\n}\n}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	f := config.Find[*Forward](b)[0]
	q := dns.NewQuery(nil)
	packet := pack(query("www.shop.svc.cluster.local.", mdns.TypeA))
	q.Reset(packet, dns.UDP, time.Now())
	q.Parse(q.Packet())
	if n := testing.AllocsPerRun(100, func() {
		if f.ServeDNS(q) != dns.Next {
			t.Error("www.shop.svc.cluster.local.: got another verdict, want Next")
		}
	}); n > 0 {
		t.Errorf("ServeDNS: got %v allocations, want 0", n)
	}
}

// A reply that has only records of another type is NODATA and is not retried.
func TestOnlyOtherTypesIsNODATA(t *testing.T) {
	up := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) { send(pack(answerOf(q, "1"))) })
	r := newHarness(t, "forward . "+up.addr)
	r.wantAnswer("a.example.", mdns.TypeAAAA, "NOERROR")
	if n := up.queryCount(); n != 1 {
		t.Errorf("got %d queries to the upstream, want 1", n)
	}
}

// A metadata selects every query, as the directive does.
type metadata struct{}

func (metadata) HasMetadata([]byte) bool { return true }
