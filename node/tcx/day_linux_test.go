package tcx

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive"
	"github.com/seamark/seamark/directive/cache"
	"github.com/seamark/seamark/directive/kubernetes"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
)

var dayLength = flag.Duration("day", time.Second, "how long TestRepeatDay sends queries, after as long a start; "+
	"a minute if bounds are checked")

// The mix of TestRepeatDay: what a node with many small applications sends.
const (
	dayPods       = 100
	dayNamespaces = 20
	dayServices   = 15 // in each namespace, every fifth headless
	dayNames      = 500
	dayChanges    = 10 // a second
)

// A world answers names outside the cluster with up to four addresses, and a TTL of 5 to 300 s.
type world struct{}

func (world) Repetition() dns.Repetition { return dns.Repetition{} }

func (world) ServeDNS(*dns.Query) dns.Verdict { return dns.Wait }

func (world) Resolve(_ context.Context, q *dns.Query) error {
	q.RA, q.Cacheable = true, true
	name := wire.Name(q.Name())
	n := int(name[4] - '0') // of w042.example
	ttl := []uint32{5, 30, 60, 300}[n%4]
	if name.Within(chaintest.Name("internal.")) {
		q.RCode = wire.NXDomain
	}
	if q.RCode != 0 || q.Type != wire.TypeA {
		soa := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeSOA, ttl, 26)
		soa = append(soa, "\x01a\x00\x01b\x00"...)
		for _, number := range []uint32{1, 7200, 1800, 86400, 30} {
			soa = binary.BigEndian.AppendUint32(soa, number)
		}
		q.Answer.Append(wire.Authority, soa, 1)
		return nil
	}
	for i := range 1 + n/4%4 {
		q.Answer.Append(wire.Answers, append(wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeA, ttl, 4),
			192, 0, 2, byte(i)), 1)
	}
	return nil
}

// An application is what the pods of a namespace run. They look up its names, the first ones most often.
type application struct {
	namespace string
	names     []string
	ranks     *rand.Zipf
	edns      int // its resolver's queries: 0 as of glibc, 1 with an OPT record as of Go, 2 with the AD flag as of musl
}

// A dayPod sends queries for names in the order of its search list.
type dayPod struct {
	*application
	rate    float64 // of queries
	next    time.Duration
	replied uint64
}

// A day is the traffic of the pods and the changes of the cluster.
type day struct {
	*repeatBench
	*rand.Rand
	folder string
	pods   []*dayPod

	mu                sync.Mutex
	stored            map[string]string // by query: "kept", which may be known after the reply, or why its last reply was not
	causes            map[string]int
	queries, repeated int
	server            *chaintest.Server
}

func (d *day) cause(what string) { d.causes[what]++ }

// zipf returns ranks of n things, the first one most often.
func zipf(r *rand.Rand, n int) *rand.Zipf { return rand.NewZipf(r, 1.1, 2, uint64(n-1)) }

func serviceName(n int) string { return fmt.Sprintf("svc%02d", n) }

func isHeadless(n int) bool { return n%5 == 4 }

// writeService writes a Service and its endpoints, which have the address of a round.
func (d *day) writeService(ns, n, round int) {
	name := serviceName(n)
	ip := fmt.Sprintf("10.97.%d.%d", ns, n+1)
	if isHeadless(n) {
		ip = "None"
	}
	addresses := []string{}
	for i := range 3 {
		addresses = append(addresses, fmt.Sprintf(`{"addresses":["10.%d.%d.%d"]}`, 100+round%100, ns*dayServices/100+i, ns*dayServices%100+n))
	}
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"ns%02d","name":"%s"},`+
		`"spec":{"clusterIP":"%s","ports":[{"name":"http","port":80,"protocol":"TCP"}]}}
---
{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"namespace":"ns%02d","name":"%s-x",`+
		`"labels":{"kubernetes.io/service-name":"%s"}},"addressType":"IPv4","ports":[{"name":"http","port":80,"protocol":"TCP"}],`+
		`"endpoints":[%s]}
`, ns, name, ip, ns, name, name, strings.Join(addresses, ","))
	file := filepath.Join(d.folder, fmt.Sprintf("%d-%d.yaml", ns, n))
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		d.t.Fatal(err)
	}
}

func newDay(t *testing.T, text string) *day {
	d := &day{Rand: rand.New(rand.NewPCG(7, 8)), folder: t.TempDir(), stored: map[string]string{}, causes: map[string]int{}}
	d.repeatBench = newRepeatBench(t)
	for ns := range dayNamespaces {
		file := filepath.Join(d.folder, fmt.Sprintf("%d.yaml", ns))
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns%02d"}}`, ns)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for n := range dayServices {
			d.writeService(ns, n, 0)
		}
	}
	world := zipf(d.Rand, dayNames)
	for n := range dayNamespaces {
		app := &application{namespace: fmt.Sprintf("ns%02d", n), edns: n % 3}
		for range 18 {
			app.names = append(app.names, d.anyName(world))
		}
		app.ranks = zipf(d.Rand, len(app.names))
		for range dayPods / dayNamespaces {
			d.pods = append(d.pods, &dayPod{application: app, rate: 0.1 * math.Pow(1000, d.Float64())})
		}
	}
	d.serve(strings.ReplaceAll(text, "FOLDER", d.folder))
	return d
}

// serve makes a server block answer, in place of the answerer.
func (d *day) serve(text string) {
	b, err := chaintest.Setup(text, chaintest.QuietLog(),
		config.Directive{Name: "loadbalance", Setup: directive.SetupLoadbalance},
		config.Directive{Name: "cache", Setup: cache.Setup},
		config.Directive{Name: "kubernetes", Setup: kubernetes.Setup},
		config.Directive{Name: "world", Setup: func(b *config.Block, _ []corefile.Directive) error {
			b.Handle(world{})
			return nil
		}})
	if err != nil {
		d.t.Fatal(err)
	}
	b.Generations = d.replies.Generations()
	if errs := b.Planned(); errs != nil {
		d.t.Fatal(errs)
	}
	d.server = chaintest.Run(d.t, b, nil).Server
	mux := dns.NewMux(dns.NewParkingLot(1<<10), nil)
	_ = mux.Route(wire.Root, b.Chain.CopyFor("dns://:53", "."))
	mux.Repeat(func(q *dns.Query) {
		d.store(q.Packet(), "kept", true)
		d.replies.Keep(q)
	}, d.replies.Forget)
	d.server.Port.Swap(mux)
}

// anyName returns a name as an application has it in its settings.
func (d *day) anyName(world *rand.Zipf) string {
	service := serviceName(d.IntN(dayServices))
	switch n := d.IntN(18); {
	case n < 8:
		return service
	case n < 11:
		return fmt.Sprintf("%s.ns%02d", service, d.IntN(dayNamespaces))
	case n < 12:
		return fmt.Sprintf("%s.ns%02d.svc.cluster.local", service, d.IntN(dayNamespaces))
	}
	return fmt.Sprintf("w%03d.example", world.Uint64())
}

// lookup sends the queries of one lookup by the pod's resolver.
func (d *day) lookup(p *dayPod) (queries int) {
	name := p.names[p.ranks.Uint64()]
	switch d.IntN(100) {
	case 0:
		address := fmt.Sprintf("%d.%d.97.10.in-addr.arpa.", 1+d.IntN(dayServices), d.IntN(dayNamespaces))
		d.query(p, address, mdns.TypePTR, "PTR")
		return 1
	case 1:
		d.query(p, "_http._tcp."+serviceName(d.IntN(dayServices))+"."+p.namespace+".svc.cluster.local.", mdns.TypeSRV, "SRV")
		return 1
	case 2: // of a scanner, or a link that is followed
		name = fmt.Sprintf("w%03d.r%d.example", d.IntN(dayNames), d.IntN(1<<20))
	}
	for _, suffix := range []string{p.namespace + ".svc.cluster.local.", "svc.cluster.local.", "cluster.local.", "ec2.internal.", ""} {
		full := name + "."
		if suffix != "" {
			full += suffix
		}
		found := false
		for _, t := range []uint16{mdns.TypeA, mdns.TypeAAAA} {
			kind := "cluster"
			if !strings.HasSuffix(full, "cluster.local.") {
				kind = "world"
			}
			found = d.query(p, full, t, kind) == 0 || found
			queries++
		}
		if found {
			break
		}
	}
	return queries
}

// query sends one query, and returns the response code.
func (d *day) query(p *dayPod, name string, qtype uint16, kind string) int {
	m := new(mdns.Msg).SetQuestion(name, qtype)
	switch p.edns {
	case 1:
		m.SetEdns0(1232, false)
	case 2:
		m.AuthenticatedData = true
	}
	packet, err := m.Pack()
	if err != nil {
		d.t.Fatal(err)
	}
	in := over4.query(frame{payload: packet})
	d.queries++
	d.state.families[family4].replied.Store(p.replied)
	reply := d.sendAsIs(in)
	if reply != nil {
		d.repeated++
		return int(reply[14+20+8+3] & 15)
	}
	d.explain(p, packet, kind)
	d.store(packet, "", true)
	d.server.Prepare = func(q *dns.Query) { q.Peer, q.Local = ports(pod4, alias4, 40000) }
	out := d.server.Serve(packet, dns.UDP)
	d.store(packet, fmt.Sprintf("not kept %s %d", kind, out[3]&15), false)
	p.replied = uint64(monotonic())
	return int(out[3] & 15)
}

// store stores what became of the reply to a query, always or unless it is known that it was kept.
func (d *day) store(packet []byte, what string, always bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key := string(packet[2:]); always || d.stored[key] != "kept" {
		d.stored[key] = what
	}
}

// explain counts why the programs have not answered a query.
func (d *day) explain(p *dayPod, packet []byte, kind string) {
	now := uint64(monotonic())
	if now-p.replied >= uint64(Times{}.orDefaults().Reached) {
		d.cause("the pod's right has expired")
		return
	}
	first := setOf(packet)
	for i := first; i < first+replyWays; i++ {
		r := &d.replies.replies[i]
		if int(r.querySize) == len(packet)-2 && bytes.HasPrefix(r.query[:], packet[2:]) && r.until.Load() != 0 {
			switch {
			case !d.replies.generations.Current(r.stamp()):
				d.cause(kind + " changed")
			case r.until.Load() <= now:
				d.cause(kind + " expired")
			default:
				d.cause(kind + " present")
			}
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if was := d.stored[string(packet[2:])]; was != "kept" {
		d.cause(cmp.Or(was, "first query "+kind))
	} else {
		d.cause(kind + " evicted, or no place")
	}
}

// run sends queries for a time.
func (d *day) run(length time.Duration) {
	start := time.Now()
	d.queries, d.repeated, d.causes = 0, 0, map[string]int{}
	for _, p := range d.pods {
		p.next = time.Duration(d.ExpFloat64() / p.rate * float64(time.Second))
	}
	changed, round := time.Duration(0), 1
	for now := time.Duration(0); now < length; now = time.Since(start) {
		next := length
		for _, p := range d.pods {
			if p.next <= now {
				n := d.lookup(p)
				p.next += time.Duration(d.ExpFloat64() * float64(n) / p.rate * float64(time.Second))
			}
			next = min(next, p.next)
		}
		if now >= changed {
			d.writeService(d.IntN(dayNamespaces), d.IntN(dayServices), round)
			round++
			changed += time.Second / dayChanges
		}
		time.Sleep(min(time.Until(start.Add(next)), time.Millisecond))
	}
}

// The programs answer most queries of a node, also with loadbalance. The others are logged by their cause.
// The pods of 20 applications send 0.1 to 100 queries a second; ten Services change each second.
func TestRepeatDay(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	race.Skip(t)
	for _, text := range []string{
		".:53 {\nkubernetes cluster.local in-addr.arpa {\nmanifests FOLDER\nttl 30\nfallthrough in-addr.arpa\n}\ncache 30\nworld\n}\n",
		".:53 {\nkubernetes cluster.local in-addr.arpa {\nmanifests FOLDER\nttl 30\nfallthrough in-addr.arpa\n}\ncache 30\nloadbalance\nworld\n}\n",
	} {
		d := newDay(t, text)
		length := *dayLength
		if os.Getenv(bound.Checked) != "" {
			length = max(length, time.Minute)
		}
		d.run(length) // names are queried the first time
		d.run(length)
		share := float64(d.repeated) / float64(d.queries)
		bound.Holds(t, share >= 0.945, "the programs have answered %.3f of %d queries, want at least 0.945", share, d.queries)
		t.Logf("%6.2f %% of %d queries answered by the programs", 100*share, d.queries)
		if d.repeated == 0 {
			t.Error("no reply was repeated")
		}
		for _, what := range slices.SortedFunc(maps.Keys(d.causes), func(a, b string) int { return d.causes[b] - d.causes[a] }) {
			t.Logf("%6.2f %% %s", 100*float64(d.causes[what])/float64(d.queries), what)
		}
	}
}
