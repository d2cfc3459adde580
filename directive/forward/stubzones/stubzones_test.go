package stubzones

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/cache"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// patience limits each wait.
const patience = time.Minute

// An upstream answers queries of type A with its address, and others with NXDOMAIN.
type upstream struct {
	conn    net.PacketConn
	answer  string        // "" is NXDOMAIN
	hold    chan struct{} // unless nil, replies wait until it is closed
	queries atomic.Int32
}

func newUpstream(t testing.TB, answer string, hold chan struct{}) *upstream {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{conn: conn, answer: answer, hold: hold}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.serve()
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return u
}

func (u *upstream) String() string { return u.conn.LocalAddr().String() }

func (u *upstream) serve() {
	buf := make([]byte, 4096)
	for {
		n, from, err := u.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var q, r mdns.Msg
		if q.Unpack(buf[:n]) != nil {
			continue
		}
		u.queries.Add(1)
		if u.hold != nil {
			<-u.hold
		}
		r.SetReply(&q)
		soa, _ := mdns.NewRR(". 300 SOA . . 1 1 1 1 300")
		if r.Rcode, r.Ns = mdns.RcodeNameError, []mdns.RR{soa}; u.answer != "" {
			rr, _ := mdns.NewRR(q.Question[0].Name + " 300 A " + u.answer)
			r.Rcode, r.Ns, r.Answer = mdns.RcodeSuccess, nil, []mdns.RR{rr}
		}
		packet, err := r.Pack()
		if err == nil {
			_, _ = u.conn.WriteTo(packet, from)
		}
	}
}

// A rig is a server block for test with cache, stub_zones and forward, and a folder of objects.
type rig struct {
	*chaintest.Block
	t       testing.TB
	folder  string
	handler *Handler
	other   *upstream // of forward
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, folder: t.TempDir(), other: newUpstream(t, "", nil)}
	r.start()
	return r
}

// start starts the server block, in place of one that runs.
func (r *rig) start(options ...string) {
	r.t.Helper()
	text := fmt.Sprintf(`test:53 {
	cache
	stub_zones {
		delegate a a.test shared.test
		delegate b b.a.test shared.test
		delegate * {namespace}.apps.test
		upstreams 127.0.0.0/8
		max_zones 3
		case_randomization off
		manifests %s
		%s
	}
	forward . %s
}`, r.folder, strings.Join(options, "\n"), r.other)
	b, err := chaintest.Setup(text, chaintest.QuietLog(),
		config.Directive{Name: "cache", Setup: cache.Setup}, config.Directive{Name: "stub_zones", Setup: Setup},
		config.Directive{Name: "forward", Setup: forward.Setup})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, err := range b.Planned() {
		r.t.Fatal(err)
	}
	r.Block = chaintest.Run(r.t, b, r.Block)
	r.handler = config.Find[*Handler](b)[0]
	chaintest.Eventually(r.t, "the objects have been read", r.handler.Ready)
}

// put writes a ConfigMap NAMESPACE/NAME, and waits until zones of it, which are pairs with their upstreams,
// have these; "" is none. Each zone is opened on its own, so that one says nothing of another.
func (r *rig) put(key, zones string, pairs ...string) {
	r.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s, labels: {seamark.io/dns: stub-zones}}\ndata:\n  zones: |\n    %s\n",
		name, namespace, strings.ReplaceAll(zones, "\n", "\n    "))
	file := filepath.Join(r.folder, namespace+"-"+name+".yaml")
	if zones == "" {
		if err := os.Remove(file); err != nil {
			r.t.Fatal(err)
		}
	} else {
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			r.t.Fatal(err)
		}
	}
	for pair := range slices.Chunk(pairs, 2) {
		chaintest.Eventually(r.t, fmt.Sprintf("%s has the upstreams %q", pair[0], pair[1]), func() bool {
			z := r.handler.zones.table.byName.Get([]byte(chaintest.Name(pair[0])))
			return z == nil && pair[1] == "" || z != nil && z.Value == pair[1]
		})
	}
}

// answer returns the address of a name, or the response code.
func (r *rig) answer(name string) string {
	r.t.Helper()
	m := r.Ask(chaintest.Query(name, "A"), dns.UDP)
	if len(m.Answer) == 0 {
		return mdns.RcodeToString[m.Rcode]
	}
	return m.Answer[0].(*mdns.A).A.String()
}

func (r *rig) expect(pairs ...string) {
	r.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := r.answer(pairs[i]); got != pairs[i+1] {
			r.t.Errorf("%s A: got %s, want %s", pairs[i], got, pairs[i+1])
		}
	}
}

// A change of a zone shows at once, whatever the cache has, and changes nothing else.
func TestZoneChanges(t *testing.T) {
	r := newRig(t)
	one, two := newUpstream(t, "10.0.0.1", nil), newUpstream(t, "10.0.0.2", nil)
	r.expect("x.a.test", "NXDOMAIN", "x.test", "NXDOMAIN", "x.a.test", "NXDOMAIN", "x.test", "NXDOMAIN")
	if n := r.other.queries.Load(); n != 2 {
		t.Fatalf("the upstream of forward got %d queries, want 2 and answers from the cache", n)
	}

	r.put("a/zones", "a.test "+one.String(), "a.test", one.String())
	r.expect("x.a.test", "10.0.0.1", "a.test", "10.0.0.1", "X.y.A.test", "10.0.0.1", "x.test", "NXDOMAIN", "xa.test", "NXDOMAIN")
	r.put("a/zones", "a.test "+two.String()+" # comment\nshared.test "+one.String(), "a.test", two.String(), "shared.test", one.String())
	r.expect("x.a.test", "10.0.0.2", "x.shared.test", "10.0.0.1", "x.test", "NXDOMAIN", "x.b.a.test", "NXDOMAIN", "b.a.test", "NXDOMAIN")
	before := two.queries.Load()
	r.expect("x.a.test", "10.0.0.2")
	if n := two.queries.Load(); n != before {
		t.Error("the second query was not answered from the cache")
	}

	upstreams := r.handler.zones.table.byName.Get([]byte(chaintest.Name("a.test"))).upstreams
	r.put("a/zones", "\na.test "+two.String(), "shared.test", "")
	if r.handler.zones.table.byName.Get([]byte(chaintest.Name("a.test"))).upstreams != upstreams {
		t.Error("a zone without a change has new connections")
	}
	r.expect("x.a.test", "10.0.0.2", "x.shared.test", "NXDOMAIN")
	r.put("a/zones", "a.test "+one.String(), "a.test", one.String())
	r.expect("x.a.test", "10.0.0.1")
	r.put("a/zones", "", "a.test", "")
	r.expect("x.a.test", "NXDOMAIN", "x.test", "NXDOMAIN")
	if n := r.other.queries.Load(); n != 6 {
		t.Errorf("the upstream of forward got %d queries, want 6: each name once", n)
	}
}

// Queries to the upstreams of stub zones count as forwarded.
func TestSentOfStubZones(t *testing.T) {
	r := newRig(t)
	one := newUpstream(t, "10.0.0.1", nil)
	r.put("a/zones", "a.test "+one.String()+"\nshared.test "+one.String(), "a.test", one.String(), "shared.test", one.String())
	r.expect("x.a.test", "10.0.0.1", "x.shared.test", "10.0.0.1")
	sent := map[string]uint64{}
	r.handler.Sent(func(upstream string, queries, _ uint64) { sent[upstream] += queries })
	if len(sent) != 1 || sent[one.String()] != 2 {
		t.Errorf("got queries %v, want 2 to %s", sent, one)
	}
}

// A reload keeps the zones with their connections, if the options are the same, and later changes show.
func TestReload(t *testing.T) {
	r := newRig(t)
	one, two := newUpstream(t, "10.0.0.1", nil), newUpstream(t, "10.0.0.2", nil)
	r.put("a/zones", "a.test "+one.String(), "a.test", one.String())
	r.expect("x.a.test", "10.0.0.1")
	zones := r.handler.zones
	r.start()
	if r.handler.zones != zones {
		t.Error("a reload with the same options has other zones")
	}
	r.expect("x.a.test", "10.0.0.1", "y.a.test", "10.0.0.1")
	r.put("a/zones", "a.test "+two.String(), "a.test", two.String())
	r.expect("x.a.test", "10.0.0.2", "y.a.test", "10.0.0.2")

	// Other delegations have new zones, with the upstreams and cached answers of the old ones.
	queries, upstreams := two.queries.Load(), r.upstreamsOf("a.test")
	r.start("delegate c c.test")
	if r.handler.zones == zones || r.upstreamsOf("a.test") != upstreams {
		t.Error("a reload with other delegations has the same zones, or other upstreams")
	}
	r.expect("x.a.test", "10.0.0.2", "y.a.test", "10.0.0.2")
	if n := two.queries.Load(); n != queries {
		t.Errorf("after the reload the upstream got %d queries, want none: the answers are in the cache", n-queries)
	}

	r.start("max_fails 0")
	if r.handler.zones == zones || r.upstreamsOf("a.test") == upstreams {
		t.Error("a reload with other options has the same zones or upstreams")
	}
	r.expect("x.a.test", "10.0.0.2", "z.a.test", "10.0.0.2", "x.b.a.test", "NXDOMAIN")
}

// upstreamsOf returns the upstreams of a zone.
func (r *rig) upstreamsOf(zone string) *upstreams {
	return r.handler.zones.table.byName.Get([]byte(chaintest.Name(zone))).upstreams
}

// Explain names the object of a zone, and check what is wrong with objects.
func TestExplainAndCheck(t *testing.T) {
	r := newRig(t)
	one := newUpstream(t, "10.0.0.1", nil)
	r.put("a/zones", "a.test "+one.String(), "a.test", one.String())
	causes := func(name string) []dns.Cause {
		q := dns.NewQuery(nil)
		q.Parse(chaintest.Pack(t, chaintest.Query(name, "A")))
		return r.handler.ExplainDNS(q, dns.Wait)
	}
	if got := causes("x.a.test"); len(got) != 1 || got[0].Object == nil || got[0].Object.Name != "zones" ||
		got[0].Text != "the upstreams are "+one.String()+" (ConfigMap a/zones)" {
		t.Errorf("x.a.test: got causes %+v, want the ConfigMap", got)
	}
	if got := causes("x.test"); len(got) != 1 || got[0].Text != "the name is in no zone that is delegated to a namespace" {
		t.Errorf("x.test: got causes %+v", got)
	}

	if errs := r.handler.CheckObjects(t.Context(), cluster.Options{}); len(errs) != 0 {
		t.Errorf("check: got %v, want no errors", errs)
	}
	r.put("b/zones", "b.a.test "+one.String()+"\na.test "+one.String(), "b.a.test", one.String())
	errs := r.handler.CheckObjects(t.Context(), cluster.Options{})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "ConfigMap b/zones: zones:2: a.test. is in a.test., which is not delegated to namespace b") {
		t.Errorf("check: got %v, want the error of b/zones", errs)
	}
}

// A query that was sent before a change gets its answer, which later queries do not get.
func TestZoneChangesDuringQuery(t *testing.T) {
	r := newRig(t)
	hold := make(chan struct{})
	one, two := newUpstream(t, "10.0.0.1", hold), newUpstream(t, "10.0.0.2", nil)
	r.put("a/zones", "a.test "+one.String(), "a.test", one.String())
	_, parked := r.Begin(chaintest.Pack(t, chaintest.Query("x.a.test", "A")), dns.UDP)
	chaintest.Eventually(r.t, "the first upstream has the query", func() bool { return one.queries.Load() > 0 })

	r.put("a/zones", "a.test "+two.String(), "a.test", two.String())
	r.expect("x.a.test", "10.0.0.2")
	close(hold)
	select {
	case reply := <-parked:
		if m := chaintest.Unpack(t, reply.Packet); len(m.Answer) != 1 || m.Answer[0].(*mdns.A).A.String() != "10.0.0.1" {
			t.Errorf("the query in flight: got %v, %v; want 10.0.0.1", m, reply.Err)
		}
	case <-time.After(patience):
		t.Fatal("the query in flight got no reply")
	}
	r.expect("x.a.test", "10.0.0.2")
}

func TestContentErrors(t *testing.T) {
	r := newRig(t)
	many := strings.Repeat(" 127.0.0.1", 16)
	for _, c := range []struct{ key, text, want string }{
		{"zones", "a.test 127.0.0.1\n\n# x\nshared.test tls://127.0.0.1%dns.test:853 [::ffff:127.0.0.2]:53", ""},
		{"more.zones", "x.b.a.test 127.0.0.1", "more.zones:1: x.b.a.test. is in b.a.test., which is not delegated to namespace a"},
		{"zones", "test 127.0.0.1", "zones:1: test. is in no zone that is delegated to namespace a"},
		{"zones", ". 127.0.0.1", "zones:1: . is in no zone that is delegated to namespace a"},
		{"zones", "a.test", "zones:1: want ZONE TO... with 1 to 15 upstreams, got 0"},
		{"zones", "a.test" + many, "zones:1: want ZONE TO... with 1 to 15 upstreams, got 16"},
		{"zones", "a.test 10.0.0.1", "zones:1: 10.0.0.1 is not an address that upstreams may have"},
		{"zones", "a.test ns.example", `zones:1: want an IP address, with or without port, or tls:// and an IP address, got "ns.example"`},
		{"zones", "a.test /etc/resolv.conf", `zones:1: not an address, and no such file: "/etc/resolv.conf"`},
		{"zones", "a.test https://127.0.0.1", `zones:1: want an IP address, with or without port, or tls:// and an IP address, got "https://127.0.0.1"`},
		{"zones", "a.test 127.0.0.1\nA.test 127.0.0.2", "zones:2: a.test. has two lines"},
		{"zones", "a..test 127.0.0.1", `zones:1: not a zone: "a..test"`},
		{"hosts", "127.0.0.1 a.test", "hosts: want a key that is or ends in zones, such as zones or shop.zones"},
	} {
		m := &cluster.ConfigMap{Namespace: "a", Name: "zones", Data: map[string]string{c.key: c.text}}
		if got := r.handler.settings.read(m, 3).Fault(); got != c.want {
			t.Errorf("%s: %q: got error %q, want %q", c.key, c.text, got, c.want)
		}
	}
}

// By default upstreams are not on this machine or link.
func TestDefaultUpstreams(t *testing.T) {
	var s settings
	for text, want := range map[string]bool{
		"10.0.0.1": true, "fd00::1": true, "tls://192.0.2.1:853": true, "127.0.0.1": false, "[::1]:53": false, "169.254.169.254": false,
		"fe80::1": false, "0.0.0.0": false, "::": false, "224.0.0.251": false, "::ffff:127.0.0.1": false,
	} {
		if _, err := s.targets([]string{text}); (err == nil) != want {
			t.Errorf("%s: got error %v, want allowed: %v", text, err, want)
		}
	}
}

// An answer from the cache allocates nothing, in a stub zone or not.
func TestAllocations(t *testing.T) {
	r := newRig(t)
	one := newUpstream(t, "10.0.0.1", nil)
	r.put("a/zones", "a.test "+one.String(), "a.test", one.String())
	for _, name := range []string{"x.y.a.test", "x.test"} {
		p := chaintest.Pack(t, chaintest.Query(name, "A"))
		r.Serve(p, dns.UDP)
		if n := testing.AllocsPerRun(100, func() { r.Begin(p, dns.UDP) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}
