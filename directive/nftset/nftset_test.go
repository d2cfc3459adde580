package nftset

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/nftables"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A stubKernel stands for the kernel. Its sets are those of keys.
type stubKernel struct {
	mu       sync.Mutex
	keys     map[string]nftables.Key // by name of the set
	size     int                     // of each set; 0 is no limit
	ends     map[nftables.Element]time.Time
	calls    [][]nftables.Element
	changes  atomic.Uint64
	slow     time.Duration // of each call of Add
	inspects int
}

func newStub() *stubKernel {
	return &stubKernel{keys: map[string]nftables.Key{"v4": nftables.IPv4, "v6": nftables.IPv6, "by4": nftables.ClientIPv4}, ends: map[nftables.Element]time.Time{}}
}

func (s *stubKernel) Inspect(set nftables.Set) (nftables.Key, nftables.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inspects++
	if key := s.keys[set.Name]; key != nftables.NoKey {
		return key, nftables.None
	}
	return nftables.NoKey, nftables.NoSet
}

func (s *stubKernel) Add(all []nftables.Element) []nftables.Result {
	time.Sleep(s.slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, slices.Clone(all))
	results := make([]nftables.Result, len(all))
	for i, e := range all {
		key := nftables.Element{Set: e.Set, Client: e.Client, IP: e.IP}
		now, end := time.Now(), s.ends[key]
		switch {
		case s.keys[e.Set.Name] == nftables.NoKey:
			results[i].Problem = nftables.NoSet
		case end.Sub(now) >= e.Need:
			results[i].Left = end.Sub(now)
		case !end.After(now) && s.size > 0 && len(s.ends) >= s.size:
			results[i].Problem = nftables.Full
		default:
			s.ends[key], results[i].Left = now.Add(e.Timeout), e.Timeout
		}
	}
	return results
}

func (s *stubKernel) Changes() uint64 { return s.changes.Load() }

func (*stubKernel) Close() {}

// flush does what nft flush ruleset and the making of the sets do.
func (s *stubKernel) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ends)
	s.changes.Add(1)
}

// set gives a set a key; none removes the set.
func (s *stubKernel) set(name string, key nftables.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[name] = key
	s.changes.Add(1)
}

// written returns the elements of all calls of Add since the last one of written.
func (s *stubKernel) written() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range s.calls {
		for _, e := range call {
			text := e.Set.Name + " " + e.IP.String() + " " + e.Timeout.String()
			if e.Client.IsValid() {
				text += " for " + e.Client.String()
			}
			all = append(all, text)
		}
	}
	s.calls = nil
	return all
}

// An answerer answers with the records of a name, as text.
type answerer map[string][]string

func (a answerer) ServeDNS(q *dns.Query) dns.Verdict {
	for _, text := range a[wire.Name(q.Name()).String()] {
		rr, err := mdns.NewRR(text)
		if err != nil {
			panic(err)
		}
		buf := make([]byte, 512)
		n, err := mdns.PackRR(rr, buf, 0, nil, false)
		if err != nil {
			panic(err)
		}
		q.Answer.Append(wire.Answers, buf[:n], 1)
	}
	return dns.Done
}

// groups stands for the directive policy: it has the group agents, of clients in 10.1.0.0/16.
type groups struct{}

func (groups) GroupOf(q *dns.Query) string {
	if netip.MustParsePrefix("10.1.0.0/16").Contains(q.Peer.Addr()) {
		return "agents"
	}
	return ""
}
func (groups) HasGroup(name string) bool { return name == "agents" }

// plan sets up lines of the directive, over answers, with k as the kernel.
func plan(lines string, answers answerer, k Writer, log *slog.Logger) (*config.Block, error) {
	setup := func(b *config.Block, uses []corefile.Directive) error {
		b.Shared = new(config.Shared)
		WriteBy(b.Shared, func() (Writer, error) { return k, nil })
		return Setup(b, uses)
	}
	b, err := chaintest.Setup(".:53 {\n"+lines+"\n}\n", log, config.Directive{Name: "nftset", Setup: setup})
	if err != nil {
		return nil, err
	}
	b.SetDirective("whoami")
	b.Handle(answers)
	return b, corefile.Sorted(b.Planned()...)
}

func start(t testing.TB, lines string, answers answerer, k Writer, log *slog.Logger) (*chaintest.Block, *config.Block) {
	t.Helper()
	b, err := plan(lines, answers, k, log)
	if err != nil {
		t.Fatal(err)
	}
	return chaintest.Run(t, b, nil), b
}

// from has the queries of s come from a client.
func from(s *chaintest.Block, client string) {
	s.Prepare = func(q *dns.Query) { q.Peer = netip.AddrPortFrom(netip.MustParseAddr(client), 53000) }
}

func expect(t testing.TB, what string, k *stubKernel, want ...string) {
	t.Helper()
	if got := k.written(); !slices.Equal(got, want) {
		t.Errorf("%s: got written %q, want %q", what, got, want)
	}
}

var answers = answerer{
	"a.test.":     {"a.test. 60 IN A 192.0.2.1"},
	"six.test.":   {"six.test. 3600 IN AAAA 2001:db8::1"},
	"short.test.": {"short.test. 0 IN A 192.0.2.2"},
	"long.test.":  {"long.test. 2147483647 IN A 192.0.2.3"},
	"alias.test.": {"alias.test. 60 IN CNAME a.example.", "a.example. 30 IN A 192.0.2.4"},
	"own.test.": {"own.test. 60 IN A 127.0.0.1", "own.test. 60 IN A 169.254.169.254", "own.test. 60 IN AAAA ::1",
		"own.test. 60 IN AAAA ::ffff:127.0.0.1", "own.test. 60 IN A 0.0.0.0", "own.test. 60 IN A 10.96.0.1"},
	"txt.test.":  {"txt.test. 60 IN TXT 192.0.2.9"},
	"none.test.": nil,
}

func TestSetupErrors(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"nftset inet filter", "Corefile:2: nftset: want at least 3 arguments, got 2"},
		{"nftset arp filter a", `Corefile:2: nftset: want family inet, ip, ip6, bridge, netdev, got "arp"`},
		{"nftset inet filter a a", "Corefile:2: nftset: the set inet filter a is given twice"},
		{"nftset inet filter a\nnftset inet filter a", "Corefile:3: nftset: the set inet filter a is already given on line 2"},
		{"nftset inet filter a {\n groups agents\n}", "Corefile:2: nftset: groups requires the directive policy in the same server block"},
		{"nftset inet filter a {\n except 10.0.0.0/40\n}", `Corefile:3: nftset: except: want an address or a CIDR, got "10.0.0.0/40"`},
		{"nftset inet filter a {\n min_timeout 0\n}", `Corefile:3: nftset: min_timeout: want a duration of 1s..24h, got "0"`},
	} {
		if _, err := plan(c.lines, nil, newStub(), chaintest.QuietLog()); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.lines, err, c.want)
		}
	}
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		lines, client, name string
		want                []string
	}{
		{"nftset inet filter v4 v6", "10.1.0.1", "a.test", []string{"v4 192.0.2.1 1m15s"}},
		{"nftset inet filter v4 v6", "10.1.0.1", "six.test", []string{"v6 2001:db8::1 1h15m0s"}},
		{"nftset inet filter v4 v6", "10.1.0.1", "short.test", []string{"v4 192.0.2.2 15s"}},
		{"nftset inet filter v4 v6", "10.1.0.1", "long.test", []string{"v4 192.0.2.3 192h0m0s"}},
		{"nftset inet filter v4 v6", "10.1.0.1", "alias.test", []string{"v4 192.0.2.4 37.5s"}},
		{"nftset inet filter v4 v6", "10.1.0.1", "txt.test", nil},
		{"nftset inet filter v4 v6", "10.1.0.1", "none.test", nil},
		{"nftset inet filter v4 v6", "10.1.0.1", "own.test", []string{"v4 10.96.0.1 1m15s"}},
		{"nftset inet filter v4 {\n except 10.96.0.0/12\n}", "10.1.0.1", "own.test", nil},
		{"nftset inet filter v4 {\n min_timeout 10m\n}", "10.1.0.1", "a.test", []string{"v4 192.0.2.1 12m30s"}},
		{"nftset inet filter by4 v4", "10.1.0.1", "a.test", []string{"by4 192.0.2.1 1m15s for 10.1.0.1", "v4 192.0.2.1 1m15s"}},
		{"nftset inet filter by4", "fd00::1", "a.test", nil},
		{"nftset inet filter v4 {\n zones A.test\n}", "10.1.0.1", "a.test", []string{"v4 192.0.2.1 1m15s"}},
		{"nftset inet filter v4 {\n zones a.test\n}", "10.1.0.1", "alias.test", nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := newStub()
			s, _ := start(t, c.lines, answers, k, chaintest.QuietLog())
			from(s, c.client)
			s.Ask(chaintest.Query(c.name, "A"), dns.UDP)
			expect(t, c.lines+": "+c.name, k, c.want...)
		})
	}
}

// Only answers to clients of a group are for its sets.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newStub()
		b, err := plan("nftset inet filter v4 {\n groups agents\n}\nnftset inet filter v6 {\n groups nobody\n}", answers, k, chaintest.QuietLog())
		if err == nil {
			t.Fatal("got no error for groups without policy")
		}
		b.Offer(groups{})
		if err := corefile.Sorted(b.Planned()...); err == nil || err.Error() != "Corefile:5: nftset: groups: policy has no group nobody" {
			t.Errorf("got %v, want an error about the group nobody", err)
		}

		s := chaintest.Run(t, b, nil)
		from(s, "10.2.0.1")
		s.Ask(chaintest.Query("a.test", "A"), dns.UDP)
		expect(t, "a client of no group", k)
		from(s, "10.1.0.1")
		s.Ask(chaintest.Query("a.test", "A"), dns.UDP)
		expect(t, "a client of the group", k, "v4 192.0.2.1 1m15s")
	})
}

// An element is written again when it would end before the answer, and after changes of others.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newStub()
		s, _ := start(t, "nftset inet filter v4", answers, k, chaintest.QuietLog())
		ask := func() { s.Ask(chaintest.Query("a.test", "A"), dns.UDP) }
		ask()
		expect(t, "first", k, "v4 192.0.2.1 1m15s")
		time.Sleep(14 * time.Second)
		ask()
		expect(t, "after 14 s", k)
		time.Sleep(2 * time.Second)
		ask()
		expect(t, "after 16 s", k, "v4 192.0.2.1 1m15s")
		k.flush()
		ask()
		expect(t, "after a flush", k, "v4 192.0.2.1 1m15s")
		ask()
		expect(t, "after that", k)
	})
}

// A query waits until its addresses are written, and no longer than its time.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newStub()
		s, b := start(t, "nftset inet filter v4 {\n wait 500ms\n}", answers, k, chaintest.QuietLog())
		for _, c := range []struct {
			name       string
			slow, want time.Duration
		}{{"a.test", 300 * time.Millisecond, 300 * time.Millisecond}, {"long.test", 2 * time.Second, 500 * time.Millisecond}} {
			k.slow = c.slow
			begun := time.Now()
			if got := s.Ask(chaintest.Query(c.name, "A"), dns.UDP); len(got.Answer) != 1 {
				t.Errorf("%s: got %v, want its address", c.name, got)
			}
			if waited := time.Since(begun); waited != c.want {
				t.Errorf("%s: got the answer after %v, want %v", c.name, waited, c.want)
			}
		}
		if got := chaintest.Metric(b.Metrics, `seamark_nftset_late_replies_total{server="dns://:53",view=""}`); got != "1" {
			t.Errorf("got %s late replies, want 1", got)
		}
		time.Sleep(2 * time.Second)
		expect(t, "in the end", k, "v4 192.0.2.1 1m15s", "v4 192.0.2.3 192h0m0s")
	})
}

// Many answers while the kernel is slow are written together, each address once.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newStub()
		k.slow = 100 * time.Millisecond
		_, b := start(t, "nftset inet filter v4", answers, k, chaintest.QuietLog())
		s := handlerOf(b).uses[0].sets[0]
		var all sync.WaitGroup
		for i := range 40 {
			e := element{set: s, ip: netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 20)})}
			client := netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})
			all.Go(func() {
				if !s.keeper.write(t.Context(), client, []demand{{e, time.Minute}}) {
					t.Errorf("client %s: got false, want its address written", client)
				}
			})
		}
		all.Wait()
		if len(k.calls) > 3 {
			t.Errorf("got %d transactions, want at most 3", len(k.calls))
		}
		if got := len(k.written()); got != 20 {
			t.Errorf("got %d elements, want each of 20 addresses once", got)
		}
	})
}

// A set that is missing, or full, keeps no answer back. It is reported once, and the end of it, too.
func TestProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newStub()
		k.set("v4", nftables.NoKey)
		log := new(chaintest.Log)
		s, b := start(t, "nftset inet filter v4 v6", answers, k, log.Logger())
		ask := func(name string) {
			t.Helper()
			begun := time.Now()
			if got := s.Ask(chaintest.Query(name, "A"), dns.UDP); len(got.Answer) == 0 || time.Since(begun) > 0 {
				t.Errorf("%s: got %v after %v, want an answer at once", name, got, time.Since(begun))
			}
		}
		conditions := func() (all []string) {
			for _, c := range b.Health().Conditions() {
				all = append(all, c.Text)
			}
			return all
		}
		check := func(what string, logged string, want ...string) {
			t.Helper()
			if got := conditions(); !slices.Equal(got, want) {
				t.Errorf("%s: got conditions %q, want %q", what, got, want)
			}
			if got := log.Count(logged); got != 1 {
				t.Errorf("%s: got %d of the line %q, want 1; log:\n%s", what, got, logged, log)
			}
		}

		const missing = "addresses of answers are not added to the set inet filter v4: the set does not exist"
		ask("a.test")
		ask("six.test")
		expect(t, "a set is missing", k, "v6 2001:db8::1 1h15m0s")
		check("a set is missing", `table="inet filter" name=v4 error="the set does not exist"`, missing)

		k.set("v4", nftables.IPv4)
		time.Sleep(2 * checkInterval)
		ask("a.test")
		expect(t, "the set is there", k, "v4 192.0.2.1 1m15s")
		check("the set is there", "Set can be written again")

		k.size = 2
		ask("long.test")
		ask("long.test")
		k.written()
		check("a set is full", "error=\"the set is full", "addresses of answers are not added to the set inet filter v4: the set is full: make it with a larger size")
		time.Sleep(quiet + time.Second)
		k.size = 0
		ask("long.test")
		expect(t, "the set has room", k, "v4 192.0.2.3 192h0m0s")
		if got := conditions(); got != nil {
			t.Errorf("the set has room: got conditions %q, want none", got)
		}

		k.set("v4", nftables.NoKey)
		time.Sleep(2 * checkInterval)
		if got := conditions(); !slices.Equal(got, []string{missing}) {
			t.Errorf("a set that is removed, without queries: got conditions %q, want %q", got, missing)
		}
		if got := chaintest.Metric(b.Metrics, `seamark_nftset_elements_total{set="inet filter v4",result="failed"}`); got != "4" {
			t.Errorf("got %s failed elements, want 4", got)
		}
	})
}

// One client cannot have more than its share of the queue and of the sets.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := answerer{}
		for i := range 1200 {
			many[fmt.Sprintf("n%d.test.", i)] = []string{fmt.Sprintf("n%d.test. 60 IN A 10.2.%d.%d", i, i/250, i%250+1)}
		}
		k := newStub()
		k.slow = 100 * time.Millisecond
		s, b := start(t, "nftset inet filter v4", many, k, chaintest.QuietLog())
		keeper := handlerOf(b).uses[0].sets[0].keeper
		client := netip.MustParseAddr("10.1.0.1")
		var taken, refused int
		for i := range 1200 {
			e := element{set: keeper.sets[0], ip: netip.AddrFrom4([4]byte{10, 2, byte(i / 250), byte(i%250 + 1)})}
			if keeper.enqueue(&request{client, []demand{{e, time.Minute}}, make(chan struct{})}) {
				taken++
			} else {
				refused++
			}
		}
		if taken < maxQueuedByClient || taken > maxQueuedByClient+nftables.MaxElements || refused == 0 {
			t.Errorf("got %d elements of a client taken and %d refused, want about %d", taken, refused, maxQueuedByClient)
		}
		from(s, "10.1.0.2")
		begun := time.Now()
		s.Ask(chaintest.Query("n1199.test", "A"), dns.UDP)
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("another client: got the answer after %v, want within a second", waited)
		}
	})
}

// What is remembered of elements keeps to the server's memory. All are written.
func TestMemory(t *testing.T) {
	budget := memory.New(64<<20, memory.FromMachine)
	if err := budget.Reserve(memory.Files, budget.Max(memory.Files)-1<<20); err != nil {
		t.Fatal(err)
	}
	stub := newStub()
	k := newKeeper(func() (Writer, error) { return stub, nil }, budget.Claim(memory.Files))
	s := newSet(nftables.Set{Family: "inet", Table: "filter", Name: "v4"}, k, chaintest.QuietLog(), new(health.Board), new(metrics.Registry))
	k.add(s)

	const clients, each = 4, 5000
	for i := range clients * each {
		client, ip := netip.AddrFrom4([4]byte{10, 1, 0, byte(i % clients)}), netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})
		if !k.write(t.Context(), client, []demand{{element{set: s, ip: ip}, time.Hour}}) {
			t.Fatalf("element %d was not written", i)
		}
	}

	if n := len(stub.written()); n != clients*each {
		t.Errorf("got %d elements written, want %d", n, clients*each)
	}
	if n := k.known.Len() * knownBytes; n > 1<<20 || n < 1<<19 {
		t.Errorf("got %d bytes of known elements, want most of the 1 MB that is left", n)
	}
	used := budget.Part(memory.Files).Used
	k.Stop()
	if left := budget.Part(memory.Files).Used; used-left < 1<<19 {
		t.Errorf("got %d bytes released, want those of the elements", used-left)
	}
}

// handlerOf returns the handler of a block.
func handlerOf(b *config.Block) *Handler { return config.Find[*Handler](b)[0] }

// A reload keeps what is known, and forgets a set that is not named any more.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newStub()
		k.set("v6", nftables.NoKey)
		first, b := start(t, "nftset inet filter v4 v6", answers, k, chaintest.QuietLog())
		first.Ask(chaintest.Query("a.test", "A"), dns.UDP)
		k.written()
		second, err := plan("nftset inet filter v4", answers, k, chaintest.QuietLog())
		if err != nil {
			t.Fatal(err)
		}
		s := chaintest.Run(t, second, first)
		s.Ask(chaintest.Query("a.test", "A"), dns.UDP)
		expect(t, "after a reload", k)
		if got := b.Health().Conditions(); len(got) != 0 {
			t.Errorf("got %v, want no condition of a set that is not used", got)
		}
	})
}

// An answer whose addresses are in their sets costs no allocation.
func TestAllocations(t *testing.T) {
	k := newStub()
	s, _ := start(t, "nftset inet filter v4 v6", answers, k, chaintest.QuietLog())
	packet := chaintest.Pack(t, chaintest.Query("a.test", "A"))
	s.Serve(packet, dns.UDP)
	without := chaintest.NewServer(t, map[string]*dns.Chain{".": chaintest.NewChain("whoami", answers)})
	without.Serve(packet, dns.UDP)
	want := testing.AllocsPerRun(100, func() { without.Serve(packet, dns.UDP) })
	if got := testing.AllocsPerRun(100, func() { s.Serve(packet, dns.UDP) }); got != want {
		t.Errorf("got %v allocations, want the %v of a chain without nftset", got, want)
	}
	if strings.Join(k.written(), "") == "" {
		t.Error("got nothing written")
	}
}

// The kernel of a node repeats no reply of a server block with the directive: each one is preceded by its
// addresses.
func TestNotRepeated(t *testing.T) {
	b, err := plan("nftset inet filter v4", answers, newStub(), chaintest.QuietLog())
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Unrepeatable(); got != "nftset" {
		t.Errorf("got %q, want nftset", got)
	}
}

// The cost of an answer with four addresses that are in their sets, on all processors.
func BenchmarkKnown(b *testing.B) {
	many := answerer{}
	for i := range 4 {
		many["many.test."] = append(many["many.test."], fmt.Sprintf("many.test. 60 IN A 192.0.2.%d", i+1))
	}
	s, block := start(b, "nftset inet filter v4", many, newStub(), chaintest.QuietLog())
	s.Ask(chaintest.Query("many.test", "A"), dns.UDP)
	known := handlerOf(block).uses[0].sets[0]
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		client, now := netip.MustParseAddr("10.1.0.1"), clock.Now()
		for pb.Next() {
			for i := range byte(4) {
				if e, ok := known.element(client, netip.AddrFrom4([4]byte{192, 0, 2, i + 1})); !ok || known.lacks(e, time.Second, now) {
					b.Error("got an address that is not known")
				}
			}
		}
	})
}
