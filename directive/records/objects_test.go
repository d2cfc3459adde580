package records

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
)

// A told is a recorder that collects the messages of Events.
type told []string

func (r *told) Warn(kind cluster.Kind, key cluster.Key, _, _, message string) {
	*r = append(*r, fmt.Sprintf("%s %s: %s", kind.ObjectKind(), key, message))
}
func (*told) Close() {}

func (r *told) take() []string {
	all := *r
	*r = nil
	return all
}

// A rig has objects without a source, and a server that answers from them.
type rig struct {
	*objectNames
	*server
	handler *Handler
	log     *chaintest.Log
	board   *health.Board
	told    told
	source  map[string]cluster.Object // the present objects
}

const twoTenants = `records {
	fixed.example.test A 10.9.9.9
	objects {
		configmaps
		dnsendpoints
		delegate a a.example.test shared.example.test
		delegate b b.a.example.test shared.example.test
		delegate * {namespace}.apps.example.test
		delegate admins example.test
		max_records 100
	}
}`

// newRig returns a rig with the records directive in body, in a server block for test.
func newRig(t testing.TB, body string) *rig {
	t.Helper()
	h, err := plan(body)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{handler: h, log: new(chaintest.Log), source: map[string]cluster.Object{}}
	b := &config.Block{Log: r.log.Logger(), Metrics: new(metrics.Registry), Shared: new(config.Shared)}
	r.objectNames = h.settings.newObjects(b)
	r.SetRecorder(&r.told)
	r.SetReader(func(_ context.Context, kind cluster.Kind, key cluster.Key) (cluster.Object, error) {
		return r.source[kind.String()+key.String()], nil
	})
	r.AddCorefile(config.NewStart(t.Context(), nil), &h.own)()
	h.objects = r.objectNames
	r.board = b.Health()
	r.server = serve(t, h)
	return r
}

// Put has the source deliver objects.
func (r *rig) Put(kind cluster.Kind, all ...cluster.Object) {
	for _, o := range all {
		r.source[kind.String()+o.Key().String()] = o
	}
	r.objectNames.Put(kind, all...)
}

// Delete has the source delete an object.
func (r *rig) Delete(kind cluster.Kind, key cluster.Key) {
	delete(r.source, kind.String()+key.String())
	r.objectNames.Objects.Delete(kind, key)
}

// settle applies the changes that wait, and reads the objects that have to be read again.
func (r *rig) settle() {
	for wait := time.Duration(0); wait < objects.Idle; {
		if wait = min(r.Step(), r.Reread(context.Background())); 0 < wait && wait < objects.Idle {
			time.Sleep(wait)
		}
	}
}

// put puts objects, and applies them.
func (r *rig) put(all ...cluster.Object) {
	for _, o := range all {
		r.Put(kindOf(o), o)
	}
	r.settle()
}

func kindOf(o cluster.Object) cluster.Kind {
	if _, ok := o.(*cluster.DNSEndpoint); ok {
		return cluster.DNSEndpoints
	}
	return cluster.ConfigMaps
}

// list puts objects as complete lists of both kinds.
func (r *rig) list(objects ...cluster.Object) {
	for _, o := range objects {
		r.Put(kindOf(o), o)
	}
	for _, kind := range []cluster.Kind{cluster.ConfigMaps, cluster.DNSEndpoints} {
		r.Listed(kind, func(key cluster.Key) bool {
			return slices.ContainsFunc(objects, func(o cluster.Object) bool { return kindOf(o) == kind && o.Key() == key })
		})
	}
	r.settle()
}

// answer returns the RDATA of the answer's records, or the response code.
func (r *rig) answer(name, kind string) string {
	m := r.ask(mdns.Fqdn(name), mdns.StringToType[kind])
	var all []string
	for _, rr := range m.Answer {
		all = append(all, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	if len(all) == 0 {
		return mdns.RcodeToString[m.Rcode]
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// expect compares answers: pairs of "NAME TYPE" and answer.
func (r *rig) expect(t *testing.T, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		name, kind, _ := strings.Cut(pairs[i], " ")
		if got := r.answer(name, kind); got != pairs[i+1] {
			t.Errorf("%s: got %s, want %s", pairs[i], got, pairs[i+1])
		}
	}
}

// expectTold compares the messages of Events since the last call.
func (r *rig) expectTold(t *testing.T, want ...string) {
	t.Helper()
	if got := r.told.take(); !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func configMap(key string, created int64, data ...string) *cluster.ConfigMap {
	namespace, name, _ := strings.Cut(key, "/")
	m := &cluster.ConfigMap{Namespace: namespace, Name: name, Created: created, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		m.Data[data[i]] = data[i+1]
	}
	return m
}

func endpoint(key string, created int64, endpoints ...cluster.EndpointRecords) *cluster.DNSEndpoint {
	namespace, name, _ := strings.Cut(key, "/")
	return &cluster.DNSEndpoint{Namespace: namespace, Name: name, Created: created, Endpoints: endpoints}
}

func rrs(name, kind string, targets ...string) cluster.EndpointRecords {
	return cluster.EndpointRecords{Name: name, Type: kind, Targets: targets}
}

func TestObjectsAnswers(t *testing.T) {
	r := newRig(t, twoTenants)
	r.list(
		configMap("a/names", 1, "hosts", "10.0.0.1 web.a.example.test WWW.a.example.test # both\nfd00::1 web.a.example.test\n",
			"more.zone", "$ORIGIN a.example.test.\n$TTL 60\nmail MX 10 web\ntxt TXT \"a b\" c\n*.wild A 10.0.0.2\n_s._tcp SRV 0 0 80 web\nalias CNAME web"),
		endpoint("admins/app", 1, rrs("app.example.test", "A", "10.0.0.3", "10.0.0.4"),
			rrs("text.example.test.", "TXT", `"heritage=external-dns,external-dns/owner=x"`, "two words; one string"),
			rrs("to.example.test", "CNAME", "app.example.test"), rrs("six.example.test", "AAAA", "fd00::3"),
			cluster.EndpointRecords{Name: "ttl.example.test", Type: "A", TTL: 7, Targets: []string{"10.0.0.7"}}),
		configMap("shop/names", 1, "hosts", "10.0.0.5 web.shop.apps.example.test"),
	)
	r.expect(t,
		"web.a.example.test A", "10.0.0.1", "web.a.example.test AAAA", "fd00::1", "www.a.example.test A", "10.0.0.1",
		"mail.a.example.test MX", "10 web.a.example.test.", "txt.a.example.test TXT", `"a b" "c"`,
		"x.y.wild.a.example.test A", "10.0.0.2", "_s._tcp.a.example.test SRV", "0 0 80 web.a.example.test.",
		"alias.a.example.test A", "10.0.0.1 web.a.example.test.", "web.a.example.test TXT", "NOERROR",
		"app.example.test A", "10.0.0.3 10.0.0.4", "to.example.test A", "10.0.0.3 10.0.0.4 app.example.test.", "six.example.test AAAA", "fd00::3",
		"text.example.test TXT", `"heritage=external-dns,external-dns/owner=x" "two words; one string"`,
		"web.shop.apps.example.test A", "10.0.0.5", "fixed.example.test A", "10.9.9.9", "none.example.test A", "REFUSED",
	)
	if ttl := r.ask("ttl.example.test.", mdns.TypeA).Answer[0].Header().Ttl; ttl != 7 {
		t.Errorf("ttl.example.test.: got TTL %d, want 7", ttl)
	}
	if extra := r.ask("mail.a.example.test.", mdns.TypeMX).Extra; len(extra) != 2 {
		t.Errorf("mail.a.example.test.: got %d additional records, want 2: %v", len(extra), extra)
	}
	r.expectTold(t)
}

// An object has no name outside the zones of its namespace, and an object with an error keeps the
// state that worked.
func TestObjectsErrors(t *testing.T) {
	r := newRig(t, twoTenants)
	r.list(configMap("a/names", 1, "hosts", "10.0.0.1 web.a.example.test"))
	for _, c := range []struct {
		object cluster.Object
		want   string
	}{
		{configMap("a/names", 1, "hosts", "10.0.0.2 web.a.example.test\n10.0.0.2 web.b.a.example.test"),
			"hosts:2: web.b.a.example.test. is in b.a.example.test., which is not delegated to namespace a"},
		{configMap("a/names", 1, "hosts", "10.0.0.2 web.example.test web.a.example.test"),
			"hosts:1: web.example.test. is in example.test., which is not delegated to namespace a"},
		{configMap("a/names", 1, "hosts", "10.0.0.2 web.shop.apps.example.test"),
			"hosts:1: web.shop.apps.example.test. is in shop.apps.example.test., which is not delegated to namespace a"},
		{configMap("a/names", 1, "hosts", "10.0.0.2 web.example.org"),
			"hosts:1: web.example.org. is in no zone that is delegated to namespace a"},
		{configMap("a/names", 1, "hosts", "10.0.0.2 web.a.example.test\n\nx web.a.example.test\ny web.a.example.test"),
			`hosts:3: "x" is not an IP address, and 1 more errors`},
		{configMap("a/names", 1, "hosts", "10.0.0.2 *.a.example.test"),
			"hosts:1: a line of hosts has no wildcards here: write the record in a zone"},
		{configMap("a/names", 1, "x.zone", "\nweb.a.example.test. A 10.0.0.300"), `x.zone:2: bad A A: "10.0.0.300"`},
		{configMap("a/names", 1, "x.zone", "$INCLUDE /etc/passwd"), `x.zone:1: $INCLUDE directive not allowed: "/etc/passwd"`},
		{configMap("a/names", 1, "x.zone", "a.example.test. 60 SOA a b 1 2 3 4 5"), "x.zone:1: SOA records are for zones, and these records are none"},
		{configMap("a/names", 1, "x.zone", "web.a.example.test. CNAME b.\nweb.a.example.test. A 10.0.0.1"),
			"x.zone:2: web.a.example.test. has a CNAME record and other records: see x.zone:1"},
		{configMap("a/names", 1, "x.zone", strings.Repeat("$GENERATE 1-65535 h.a.example.test. A 10.0.0.1\n", 100)),
			"it has more than 100 records, which a namespace may have (max_records)"},
		{configMap("a/names", 1, "README", "text"), "README: want a key that is or ends in hosts or zone, such as hosts or shop.zone"},
		{configMap("a/names", 1, "x.zone", "$GENERATE 1-65535 h$.a.example.test. A 10.0.0.1"),
			"it has more than 100 records, which a namespace may have (max_records)"},
	} {
		r.put(c.object)
		r.expect(t, "web.a.example.test A", "10.0.0.1")
		r.expectTold(t, "ConfigMap a/names: "+c.want)
	}
	for text, want := range map[string]cluster.EndpointRecords{
		`dnsName: not a name: "a..b": empty label`:                                           rrs("a..b", "A", "10.0.0.1"),
		`targets: web.b.example.test. A: bad A A: "10.0.0.1x"`:                               rrs("web.b.example.test", "A", "10.0.0.1x"),
		`recordType: unknown type "AX"`:                                                      rrs("web.b.example.test", "AX", "x"),
		`targets: web.b.example.test. has none`:                                              rrs("web.b.example.test", "A"),
		`recordTTL: want 0..2147483647, got -1`:                                              {Name: "web.b.example.test", Type: "A", TTL: -1, Targets: []string{"10.0.0.1"}},
		`targets: x.a.example.test. CNAME: want one record, got more: b.	3600	IN	A	10.0.0.1`: rrs("x.a.example.test", "CNAME", "c.\nb. A 10.0.0.1"),
	} {
		r.told.take()
		r.put(endpoint("a/ep", 1, rrs("ok.a.example.test", "A", "10.0.0.8"), want))
		r.expectTold(t, "DNSEndpoint a/ep: spec.endpoints[1]: "+text)
		r.expect(t, "ok.a.example.test A", "10.0.0.8") // what is valid of an object that never was
	}
	if got := r.board.Conditions(); len(got) != 1 || !strings.Contains(got[0].Text, "(and 1 more objects)") {
		t.Errorf("got conditions %+v, want one for two objects", got)
	}

	r.put(configMap("a/names", 1, "hosts", "10.0.0.2 web.a.example.test"))
	r.Delete(cluster.DNSEndpoints, cluster.Key{Namespace: "a", Name: "ep"})
	r.settle()
	r.expect(t, "web.a.example.test A", "10.0.0.2", "ok.a.example.test A", "REFUSED")
	if got := r.board.Conditions(); len(got) != 0 {
		t.Errorf("after the correction: got conditions %+v, want none", got)
	}
}

// A name that several objects have is the oldest one's, and the others are told.
func TestObjectsConflicts(t *testing.T) {
	r := newRig(t, twoTenants)
	line := func(addr string) string { return addr + " x.shared.example.test" }
	r.list()
	r.put(configMap("b/young", 3, "hosts", line("10.0.0.3")))
	r.put(configMap("a/old", 2, "hosts", line("10.0.0.2")+" own.shared.example.test"))
	r.expect(t, "x.shared.example.test A", "10.0.0.2")
	r.expectTold(t, "ConfigMap b/young: x.shared.example.test. is in ConfigMap a/old, which is older")

	r.put(endpoint("b/first", 1, rrs("x.shared.example.test", "A", "10.0.0.1"), rrs("own.shared.example.test", "A", "10.0.0.1")))
	r.expect(t, "x.shared.example.test A", "10.0.0.1", "own.shared.example.test A", "10.0.0.1")
	r.expectTold(t, "ConfigMap a/old: x.shared.example.test. is in DNSEndpoint b/first, which is older; so are 1 more of its names",
		"ConfigMap b/young: x.shared.example.test. is in DNSEndpoint b/first, which is older")

	r.put(configMap("b/young", 3, "hosts", line("10.0.0.4"))) // a change does not make it older
	r.expect(t, "x.shared.example.test A", "10.0.0.1")
	r.expectTold(t)

	r.Delete(cluster.DNSEndpoints, cluster.Key{Namespace: "b", Name: "first"})
	r.settle()
	r.expect(t, "x.shared.example.test A", "10.0.0.2", "own.shared.example.test A", "10.0.0.2")

	r.put(configMap("a/old", 9, "hosts", line("10.0.0.9"))) // another object with that name
	r.expect(t, "x.shared.example.test A", "10.0.0.4", "own.shared.example.test A", "REFUSED")
	r.put(configMap("admins/all", 1, "x.zone", "fixed.example.test. A 10.0.0.1"))
	r.expect(t, "fixed.example.test A", "10.9.9.9")
	if got := r.told.take(); got[len(got)-1] != "ConfigMap admins/all: fixed.example.test. is in the Corefile" {
		t.Errorf("told %q, want last that the Corefile has the name", got)
	}

	r.list()
	if got := r.Counts(); got != (objects.Counts{}) || r.exists([]byte("\x07example\x04test\x00")) {
		t.Errorf("after an empty list: got %+v, want nothing, and no names", got)
	}
}

// A wildcard of one namespace does not answer for names in another one's zone.
func TestObjectsWildcards(t *testing.T) {
	r := newRig(t, twoTenants)
	r.list(
		configMap("admins/all", 1, "zone", "*.example.test. A 10.0.0.1"),
		configMap("a/all", 1, "zone", "*.a.example.test. A 10.0.0.2"),
		configMap("b/all", 1, "zone", "web.b.a.example.test. A 10.0.0.3"))
	r.expect(t, "x.example.test A", "10.0.0.1", "x.a.example.test A", "10.0.0.2", "x.y.a.example.test A", "10.0.0.2",
		"web.b.a.example.test A", "10.0.0.3", "x.b.a.example.test A", "REFUSED", "b.a.example.test A", "REFUSED",
		"x.shop.apps.example.test A", "REFUSED", "apps.example.test A", "10.0.0.1", "example.test A", "REFUSED")
	r.expectTold(t)
}

// Before the objects have been read, the names that they may have fail.
func TestObjectsUnread(t *testing.T) {
	r := newRig(t, strings.Replace(twoTenants, "delegate admins example.test", "delegate admins test", 1))
	r.expect(t, "x.a.example.test A", "SERVFAIL", "fixed.example.test A", "10.9.9.9", "x.example.test A", "REFUSED")
	if r.handler.Ready() {
		t.Error("ready before the objects have been listed")
	}
	r.list()
	r.expect(t, "x.a.example.test A", "REFUSED")
	if !r.handler.Ready() {
		t.Error("not ready after the objects have been listed")
	}
}

const noRoom = "older objects have the room of the namespace, which may have 100 records (max_records)"

// A namespace has a bounded number of records, and of objects.
func TestObjectsLimits(t *testing.T) {
	r := newRig(t, twoTenants)
	many := func(n int) string {
		return fmt.Sprintf("$GENERATE 1-%d h$.a.example.test. A 10.0.0.1", n)
	}
	r.list(configMap("a/one", 1, "zone", many(60)))
	r.put(configMap("a/two", 1, "zone", strings.ReplaceAll(many(41), "h$", "i$")))
	r.expectTold(t, "ConfigMap a/two: "+noRoom)
	r.put(configMap("a/two", 1, "zone", strings.ReplaceAll(many(40), "h$", "i$")))
	r.expect(t, "h60.a.example.test A", "10.0.0.1", "i40.a.example.test A", "10.0.0.1")
	for i := range 100 {
		r.put(configMap(fmt.Sprint("a/three", i), 2, "hosts", "10.0.0.1 x.a.example.test"))
	}
	if r.Counts().Objects != 2 || r.Total() != 100 {
		t.Errorf("got %d objects with %d records, want 2 with 100", r.Counts().Objects, r.Total())
	}
	if got := r.told.take(); len(got) != 100 || got[0] != "ConfigMap a/three0: "+noRoom {
		t.Errorf("told %d times, first %q; want once for each object that has no room", len(got), got[:min(1, len(got))])
	}

	// The oldest object grows, and the younger one gives way; and has its room again.
	r.put(configMap("a/one", 1, "zone", many(99)))
	r.expect(t, "h99.a.example.test A", "10.0.0.1", "i40.a.example.test A", "REFUSED", "x.a.example.test A", "10.0.0.1")
	r.expectTold(t, "ConfigMap a/two: "+noRoom)
	r.put(configMap("a/one", 1, "zone", many(60)))
	r.expect(t, "h99.a.example.test A", "REFUSED", "i40.a.example.test A", "10.0.0.1", "x.a.example.test A", "REFUSED")
	r.Delete(cluster.ConfigMaps, cluster.Key{Namespace: "a", Name: "one"})
	r.settle()
	r.expect(t, "i40.a.example.test A", "10.0.0.1", "x.a.example.test A", "10.0.0.1")
	if got := r.Counts(); got.Objects != 61 || got.Total != 100 || got.Faulty != 40+59 {
		t.Errorf("got %+v, want 61 objects with 100 records, 40 without room, and 59 whose name is another's", got)
	}
}

// Random changes lead to the same answers as the objects at the end do.
func TestObjectsRandom(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, twoTenants)
		r.list()
		now := map[string]*cluster.ConfigMap{}
		owners := []string{"x.shared.example.test", "y.shared.example.test", "*.shared.example.test", "z.x.shared.example.test"}
		for range 200 {
			key := []string{"a", "b"}[random.IntN(2)] + "/" + string('a'+rune(random.IntN(5)))
			if old := now[key]; old != nil && random.IntN(3) == 0 {
				r.Delete(cluster.ConfigMaps, old.Key())
				delete(now, key)
			} else {
				created := int64(1 + random.IntN(3))
				if old != nil && random.IntN(2) == 0 {
					created = old.Created
				}
				var text strings.Builder
				for _, owner := range owners {
					if random.IntN(2) == 0 {
						fmt.Fprintf(&text, "%s. A 10.0.0.%d\n", owner, random.IntN(200))
					}
				}
				now[key] = configMap(key, created, "zone", text.String())
				r.Put(cluster.ConfigMaps, now[key])
			}
			if random.IntN(3) == 0 {
				r.settle()
			}
		}
		r.settle()

		fresh := newRig(t, twoTenants)
		var all []cluster.Object
		for _, o := range now {
			all = append(all, o)
		}
		fresh.list(all...)
		for _, name := range []string{"x.shared.example.test", "y.shared.example.test", "w.shared.example.test", "z.x.shared.example.test", "w.x.shared.example.test"} {
			if got, want := r.answer(name, "A"), fresh.answer(name, "A"); got != want {
				t.Fatalf("seed %d: %s: got %s, want %s", seed, name, got, want)
			}
		}
		if got, want := errors.Join(r.Errors()...), errors.Join(fresh.Errors()...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: got errors\n%v\nwant\n%v", seed, got, want)
		}
		if got, want := r.Counts(), fresh.Counts(); got != want {
			t.Fatalf("seed %d: got %+v, want %+v", seed, got, want)
		}
	}
}

// 10,000 objects use at most 200 bytes a record beyond their own, of which the watch uses less than 40 for their versions.
func TestObjectsMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures the heap")
	}
	race.Skip(t)
	const many, limit = 10_000, 160
	r := newRig(t, strings.Replace(twoTenants, "max_records 100", "max_records 20000", 1))
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, data := heap(), 0
	r.list()
	for i := range many {
		name := fmt.Sprintf("app-%d", i)
		data += len(name) + len("admins") + len(name+".example.test.") + 1 + 4
		r.objectNames.Put(cluster.DNSEndpoints, endpoint("admins/"+name, int64(i), rrs(name+".example.test", "A", fmt.Sprintf("10.0.%d.%d", i/256, i%256))))
	}
	r.settle()
	if used := heap() - before; used > int64(data+limit*many) {
		t.Errorf("%d objects with a record each use %d bytes each, want at most %d for their data and %d",
			many, used/many, data/many, limit)
	} else {
		t.Logf("%d bytes an object, of which %d are its data", used/many, data/many)
	}
	if r.Total() != many {
		t.Errorf("got %d records, want %d", r.Total(), many)
	}
	runtime.KeepAlive(r)
}
