package kubernetes

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/test/clustertest"
	"github.com/seamark/seamark/test/race"
)

// A repeater keeps the replies that may be repeated, as the kernel does.
type repeater struct {
	*server
	generations *generation.Cells
	stamp       generation.Stamp // of the last reply
	longest     time.Duration    // for which it may be repeated
	repeatable  bool             // the last reply may be repeated
}

// repeatableOthers is otherZones, which would allow to repeat all replies of the chain.
type repeatableOthers struct{ otherZones }

func (repeatableOthers) Repetition() dns.Repetition { return dns.Repetition{} }

// newRepeater serves h and its index, whose changes it counts.
func newRepeater(t *testing.T, d directive, h *Handler) *repeater {
	t.Helper()
	r := &repeater{server: serve(t, d, h), generations: generation.New(make([]atomic.Uint64, 1<<10))}
	h.generations = r.generations
	h.index.CountChanges(r.generations)

	chain := new(dns.Chain)
	chain.Add("kubernetes", h)
	chain.Add("world", repeatableOthers{})
	mux := dns.NewMux(dns.NewParkingLot(1<<10), nil)
	for _, zone := range names(t, append(d.zones, otherZone)) {
		if err := mux.Route(zone, chain); err != nil {
			t.Fatal(err)
		}
	}
	mux.Repeat(func(q *dns.Query) {
		last := q.Repeated()
		r.stamp, r.longest, r.repeatable = last.Allowed.While, last.Allowed.For, true
	}, func() {})
	r.Port.Swap(mux)
	return r
}

// ask returns the reply to a query.
func (r *repeater) ask(t *testing.T, name, qtype string) string {
	t.Helper()
	r.repeatable = false
	m, _ := r.askUDP(t, name, qtype, 4096)
	m.Extra = slices.DeleteFunc(m.Extra, func(rr mdns.RR) bool { return rr.Header().Rrtype == mdns.TypeOPT })
	return withoutSerial(toReply(m).String())
}

var serials = regexp.MustCompile(`\d+ 7200 1800`)

// withoutSerial removes the serials of SOA records, which are those of the moment of the answer.
func withoutSerial(reply string) string { return serials.ReplaceAllString(reply, "SERIAL 7200 1800") }

// An earlier is a reply that may still be repeated.
type earlier struct {
	name, qtype, reply string
	stamp              generation.Stamp
}

// A reply whose Stamp is current is the right one, as the objects are now: while random clusters
// are listed and change.
func TestStampRandomClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	counts := map[string]int{}
	for seed := range race.Fewer(uint64(30)) {
		c := newRandomCluster(seed)
		c.wildcards = c.wildcards && seed%5 == 0 // with them nothing is repeated
		if err := c.checkStamps(t, counts); err != nil {
			t.Fatalf("seed %d: %+v\n%s\n%v", seed, c.directive, c, err)
		}
	}
	for _, what := range []string{"repeatable NOERROR", "repeatable NXDOMAIN", "current", "outdated"} {
		if counts[what] < 100 {
			t.Errorf("%s: got %d, want more", what, counts[what])
		}
	}
	t.Log(counts)
}

// checkStamps compares replies that may be repeated with those of a new index after each change.
func (c *randomCluster) checkStamps(t *testing.T, counts map[string]int) error {
	const changes, queries = 30, 40
	r := newRepeater(t, c.directive, c.handler(t, c.index))
	for _, kind := range c.kinds() {
		c.Fill(kind, 6)
	}
	for _, i := range c.Perm(len(c.kinds())) {
		c.Set(c.kinds()[i], c.Have[c.kinds()[i]])
	}

	var kept []earlier
	for range changes {
		m := c.model()
		known := slices.Sorted(maps.Keys(m.names))
		for range queries {
			name := clustertest.Pick(c.Random, known...)
			for c.Chance(50) {
				name = c.mutate(name)
			}
			if _, ok := mdns.IsDomainName(name); !ok || strings.Contains(name, "\\") {
				continue
			}
			qtype := clustertest.Pick(c.Random, "A", "AAAA", "SRV", "TXT", "CNAME", "ANY", "MX", "PTR")
			if reply := r.ask(t, name, qtype); r.repeatable {
				counts["repeatable "+reply[:strings.IndexByte(reply, ' ')]]++
				kept = append(kept, earlier{name, qtype, reply, r.stamp})
			}
		}

		c.Change()
		before := len(kept)
		kept = slices.DeleteFunc(kept, func(e earlier) bool { return !r.generations.Current(e.stamp) })
		if err := c.checkEarlier(t, kept); err != nil {
			return err
		}
		counts["current"] += len(kept)
		counts["outdated"] += before - len(kept)
	}
	return nil
}

// checkEarlier returns an error if a reply differs from that of a new index of the same objects.
func (c *randomCluster) checkEarlier(t *testing.T, kept []earlier) error {
	fresh := c.directive.newIndex()
	for _, kind := range c.kinds() {
		clustertest.List(fresh, kind, c.Have.List(kind))
	}
	now := newRepeater(t, c.directive, c.directive.handler(t, fresh))
	for _, e := range kept {
		if want := now.ask(t, e.name, e.qtype); e.reply != want {
			return fmt.Errorf("%s %s, which is current\ngot:\n%swant:\n%s", e.name, e.qtype, e.reply, want)
		}
	}
	return nil
}

// An answer with an SOA record, whose serial the Stamp leaves out, is repeated for two minutes, any other for ten.
func TestRepeatFor(t *testing.T) {
	d := defaultOptions()
	ix := load(d.newIndex(), namespaceObject("shop"), clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"))
	r := newRepeater(t, d, d.handler(t, ix))
	for _, c := range []struct {
		name, qtype string
		want        time.Duration
	}{
		{"api.shop.svc.cluster.local.", "A", 10 * time.Minute},
		{"api.shop.svc.cluster.local.", "AAAA", 2 * time.Minute},
		{"www.shop.svc.cluster.local.", "A", 2 * time.Minute},
	} {
		r.ask(t, c.name, c.qtype)
		if took := c.want - r.longest; took < 0 || took > time.Minute {
			t.Errorf("%s %s: may be repeated for %s, want %s", c.name, c.qtype, r.longest, c.want)
		}
	}
}

// Answers that may be repeated allocate nothing either. What depends on more than a Service, a
// namespace and a pod is not repeated.
func TestStampNames(t *testing.T) {
	d := defaultOptions()
	d.pods = podsInsecure
	ix := load(d.newIndex(), namespaceObject("shop"), clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"),
		headless("shop", "db"), slice("shop", "db-x", "db", "sql 5432/tcp", "db-0=10.0.0.1"),
		external("shop", "alias", "api.shop.svc.cluster.local"))
	r := newRepeater(t, d, d.handler(t, ix))
	for _, c := range []struct {
		query, qtype string
		want         bool
	}{
		{"api.shop.svc.cluster.local.", "A", true},
		{"api.shop.svc.cluster.local.", "AAAA", true},
		{"_http._tcp.api.shop.svc.cluster.local.", "SRV", true},
		{"db.shop.svc.cluster.local.", "A", true},
		{"db-0.db.shop.svc.cluster.local.", "A", true},
		{"www.example.com.shop.svc.cluster.local.", "A", true},
		{"www.example.com.svc.cluster.local.", "A", true},
		{"www.example.com.cluster.local.", "AAAA", true},
		{"shop.svc.cluster.local.", "A", true},
		{"svc.cluster.local.", "A", true},
		{"10-2-3-4.shop.pod.cluster.local.", "A", true},
		{"cluster.local.", "SOA", false},
		{"ns.dns.cluster.local.", "A", false},
		{"1.0.96.10.in-addr.arpa.", "PTR", false},
		{"alias.shop.svc.cluster.local.", "A", false},
		{"www.example.com.", "A", false}, // of another handler
	} {
		r.repeatable = false
		packet := request(t, c.query, mdns.StringToType[c.qtype], 1232)
		run := func() { r.Serve(packet, dns.UDP) }
		run()
		if r.repeatable != c.want {
			t.Errorf("%s %s: may be repeated: got %t, want %t", c.query, c.qtype, r.repeatable, c.want)
		}
		if n := testing.AllocsPerRun(100, run); n != 0 && c.want {
			t.Errorf("%s %s: got %v allocations, want 0", c.query, c.qtype, n)
		}
	}
}
