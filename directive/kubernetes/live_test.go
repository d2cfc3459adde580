package kubernetes

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// serveLive makes the zones of h transferable until the end of the test.
func serveLive(t testing.TB, h *Handler, now func() time.Time) *liveZones {
	t.Helper()
	h.transferred = h.zones
	h.live = newLiveZones(h, now, zone.NewSerials())
	t.Cleanup(h.live.Stop)
	return h.live
}

// A zoneReplica is the records of a zone as another server has them.
type zoneReplica struct {
	origin  wire.Name
	serial  uint32
	records map[string]bool // in wire form, without the SOA record
}

// transfer replaces the records by the records of a version.
func (r *zoneReplica) transfer(v zone.Version) error {
	r.records = map[string]bool{}
	first := true
	for record := range v.Records {
		if first {
			first, r.serial = false, zone.SOASerial(record)
			continue
		}
		if r.records[string(record)] {
			return fmt.Errorf("record twice: %s", presentation(record))
		}
		r.records[string(record)] = true
	}
	return nil
}

// update applies the differences since the replica's version.
func (r *zoneReplica) update(v zone.Version) error {
	serial, _ := v.Serial()
	if serial == r.serial {
		return nil
	}
	changes, ok := v.(zone.Differ).Since(r.serial)
	if !ok {
		return fmt.Errorf("no differences from %d to %d", r.serial, serial)
	}
	added := true
	for record := range changes {
		if at, _ := wire.ReadRecord(record, 0); at.Type == wire.TypeSOA {
			if added = !added; !added && zone.SOASerial(record) != r.serial || added && !zone.SerialLess(r.serial, zone.SOASerial(record)) {
				return fmt.Errorf("serial %d after %d", zone.SOASerial(record), r.serial)
			}
			r.serial = zone.SOASerial(record)
			continue
		}
		if r.records[string(record)] == added {
			return fmt.Errorf("difference does not fit, added %v: %s", added, presentation(record))
		}
		if delete(r.records, string(record)); added {
			r.records[string(record)] = true
		}
	}
	if r.serial != serial {
		return fmt.Errorf("differences lead to %d, want %d", r.serial, serial)
	}
	return nil
}

// equal returns an error if the replica, which follows by differences, differs from a transfer of the whole zone.
func (r *zoneReplica) equal(whole *zoneReplica) error {
	if maps.Equal(r.records, whole.records) && r.serial == whole.serial {
		return nil
	}
	return fmt.Errorf("%s: by differences, %d:\n%s\nwhole, %d:\n%s", r.origin,
		r.serial, strings.Join(r.lines(), "\n"), whole.serial, strings.Join(whole.lines(), "\n"))
}

func presentation(record []byte) string {
	rr, _, err := mdns.UnpackRR(record, 0)
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(rr.String()), " ")
}

// lines returns the records in presentation form.
func (r *zoneReplica) lines() (lines []string) {
	for record := range r.records {
		lines = append(lines, presentation([]byte(record)))
	}
	slices.Sort(lines)
	return lines
}

// compare returns an error if the replica has other records than the server answers.
func (r *zoneReplica) compare(t *testing.T, s *server, names []string) error {
	byName := map[string][]string{}
	for _, line := range r.lines() {
		name, _, _ := strings.Cut(line, " ")
		byName[name] = append(byName[name], line)
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(byName)), names) {
		var got []string
		for _, qtype := range []string{"A", "AAAA", "SRV", "PTR", "TXT", "CNAME", "NS"} {
			for _, rr := range s.ask(t, name, qtype).Answer {
				if rr.Header().Name == name && mdns.TypeToString[rr.Header().Rrtype] == qtype {
					got = append(got, strings.Join(strings.Fields(rr.String()), " "))
				}
			}
		}
		slices.Sort(got)
		if want := byName[name]; !slices.Equal(got, want) {
			return fmt.Errorf("%s\nanswered:\n%s\ntransferred:\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	return nil
}

// Copies of random clusters' zones, which follow by differences, have the records that a
// transfer of the whole zone has, and these are the records that are answered.
func TestLiveRandomClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for seed := range race.Fewer(uint64(16)) {
		c := newRandomCluster(seed)
		if err := c.checkLive(t); err != nil {
			t.Fatalf("seed %d: %+v\n%s\n%v", seed, c.directive, c, err)
		}
	}
}

func (c *randomCluster) checkLive(t *testing.T) error {
	h := c.handler(t, c.index)
	h.verifyPTR = c.pods == podsVerified && c.Chance(50)
	l := serveLive(t, h, time.Now)
	s := serve(t, c.directive, h)
	for _, kind := range c.kinds() {
		c.Fill(kind, 6)
		c.Set(kind, c.Have[kind])
	}
	cut := func() {
		l.index.Lock()
		defer l.index.Unlock()
		l.newVersions()
	}
	cut()
	replicas := map[wire.Name]*zoneReplica{}
	for _, z := range h.zones {
		r := &zoneReplica{origin: z.name}
		if err := r.transfer(h.Version(z.name)); err != nil {
			return err
		}
		replicas[z.name] = r
	}
	for change := range 40 {
		for range 1 + c.IntN(3) {
			c.Change()
		}
		cut()
		names := map[wire.Name][]string{}
		for name := range c.model().names {
			if n, err := wire.ParseName(name); err == nil && !strings.Contains(name, ".prefer.") {
				for _, z := range h.zones {
					if n.Within(z.name) {
						names[z.name] = append(names[z.name], name)
						break
					}
				}
			}
		}
		for _, z := range h.zones {
			r, whole := replicas[z.name], &zoneReplica{origin: z.name}
			v := h.Version(z.name)
			if err := r.update(v); err != nil {
				return fmt.Errorf("change %d: %s: %w", change, z.name, err)
			}
			if err := whole.transfer(v); err != nil {
				return err
			}
			if err := r.equal(whole); err != nil {
				return fmt.Errorf("change %d: %w", change, err)
			}
			if h.verifyPTR && z.reverse { // the model has no such option, but the transfer does
				names[z.name] = nil
			}
			if err := r.compare(t, s, names[z.name]); err != nil {
				return fmt.Errorf("change %d: %w", change, err)
			}
			if got := s.ask(t, z.name.String(), "SOA").Answer[0].(*mdns.SOA).Serial; got != r.serial {
				return fmt.Errorf("SOA record with serial %d, want %d", got, r.serial)
			}
		}
	}
	return nil
}

// The zones of a plan have greater serial numbers than those of the plan before, also if that changes
// while the other is starting, or both are loaded at one time.
func TestLiveSerialReload(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func() time.Time { return now }
	d := defaultOptions()
	ix := load(d.newIndex(), namespaceObject("shop"))
	numbers := zone.NewSerials()
	plan := func() (*Handler, *liveZones) {
		h := d.handler(t, ix)
		h.transferred = h.zones
		h.live = newLiveZones(h, at, numbers)
		t.Cleanup(h.live.Stop)
		return h, h.live
	}

	serial := func(h *Handler) uint32 {
		n, _ := h.Version(h.primary).Serial()
		return n
	}
	h, l := plan()
	l.serve()
	for _, starting := range []time.Duration{0, 10 * time.Millisecond, 5 * time.Second} {
		next, nl := plan()
		now = now.Add(starting)
		// A change in the old plan's last moment.
		z := l.zone(h.primary)
		l.index.Lock()
		z.commit(&differences{count: map[string]int{"record": 1}})
		l.index.Unlock()
		before := serial(h)

		nl.serve()
		if got := serial(next); !zone.SerialLess(before, got) {
			t.Errorf("a start of %v: got serial number %d after %d", starting, got, before)
		}
		nl.serve() // a reload that keeps the zones
		if got, want := serial(next), nl.zone(next.primary).serial.Load(); got != want {
			t.Errorf("got serial number %d, want %d", got, want)
		}
		h, l = next, nl
	}
}

// While one process replaces another, no two of their versions have one serial number. The version after the
// hand-over has a greater one than any of the other process, whichever of the two remains. Servers that copy
// the zone are notified, and get the differences since the versions of this process.
func TestLiveSerialHandover(t *testing.T) {
	for _, changes := range []int{0, 1, 10, 200} {
		for _, remains := range []string{"old", "new"} {
			t.Run(fmt.Sprint(changes, " changes, the ", remains, " process remains"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { handOverLiveZones(t, changes, remains == "old") })
			})
		}
	}
}

func handOverLiveZones(t *testing.T, changes int, oldRemains bool) {
	d := defaultOptions()
	process := func(numbers *zone.Serials) *Handler {
		h := d.handler(t, load(d.newIndex(), namespaceObject("shop")))
		h.transferred = h.zones
		h.live = newLiveZones(h, time.Now, numbers)
		t.Cleanup(h.live.Stop)
		h.live.serve()
		return h
	}
	serial := func(h *Handler) uint32 {
		n, _ := h.Version(h.primary).Serial()
		return n
	}

	remains := process(zone.NewSerials())
	remains.live.serials.Yield()
	var saved bytes.Buffer
	if err := remains.live.serials.SaveState(&saved); err != nil {
		t.Fatal(err)
	}
	ends := process(zone.LoadSerials(&saved))
	used := map[uint32]bool{serial(remains): true, serial(ends): true}
	for range changes {
		for _, h := range []*Handler{remains, ends} {
			h.live.gather(t.Context())
			h.live.index.Lock()
			h.live.zone(h.primary).commit(&differences{count: map[string]int{"record": 1}})
			h.live.index.Unlock()
			used[serial(h)] = true
		}
	}
	if want := 2 + 2*changes; len(used) != want {
		t.Errorf("%d versions have %d serial numbers", want, len(used))
	}

	if !oldRemains {
		remains, ends = ends, remains
	}
	before, notified := serial(remains), 0
	defer remains.live.followers.Add(func(wire.Name) { notified++ })()
	remains.live.Resume()
	if got, theirs := serial(remains), serial(ends); !zone.SerialLess(theirs, got) {
		t.Errorf("got serial number %d, want more than %d of the other process", got, theirs)
	}
	if notified != len(remains.zones) {
		t.Errorf("got %d notifications, want one for each of %d zones", notified, len(remains.zones))
	}
	if _, ok := remains.Version(remains.primary).(zone.Differ).Since(before); !ok {
		t.Errorf("got no differences since serial number %d", before)
	}
}

// replaceEndpoints gives a headless Service with four ports n other endpoints for each i, and makes versions.
func replaceEndpoints(l *liveZones, i, n int) {
	var endpoints []string
	for j := range n {
		endpoints = append(endpoints, fmt.Sprintf("10.0.%d.%d", i, j))
	}
	l.index.Put(cluster.Services, headless("shop", "db"))
	l.index.Put(cluster.Slices, slice("shop", "db-1", "db", "http 80/tcp, dns 53/udp, x 1/tcp, y 2/tcp", endpoints...))
	l.index.Lock()
	defer l.index.Unlock()
	l.newVersions()
}

// The journal keeps a bounded number of bytes: differences since an older version are not
// known.
func TestLiveJournalBound(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	d := defaultOptions()
	ix := load(d.newIndex(), namespaceObject("shop"))
	h := d.handler(t, ix)
	l := serveLive(t, h, time.Now)
	z := l.zone(h.primary)
	first, _ := h.Version(h.primary).Serial()
	var previous uint32
	for i := range 100 {
		previous, _ = h.Version(h.primary).Serial()
		replaceEndpoints(l, i, 100)
		v := z.current.Load()
		if n := v.journal.Bytes(); n > zone.MaxJournal {
			t.Fatalf("got a journal of %d bytes, want at most %d", n, zone.MaxJournal)
		}
	}
	v := h.Version(h.primary).(zone.Differ)
	if _, ok := v.Since(first); ok {
		t.Error("differences since the first version are known")
	}
	if _, ok := v.Since(previous); !ok {
		t.Error("differences since the version before are not known")
	}
}

// A change of a Service with many endpoints and ports costs a bounded amount of work: the
// whole zone is transferred after it. Later changes are differences again.
func TestLiveManyPorts(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	race.Skip(t)
	for _, kubeDNS := range []bool{false, true} {
		t.Run(fmt.Sprintf("kubeDNS %v", kubeDNS), func(t *testing.T) {
			d := defaultOptions()
			ix := load(d.newIndex(), namespaceObject("shop"))
			h := d.handler(t, ix)
			h.kubeDNS = kubeDNS
			l := serveLive(t, h, time.Now)
			z := l.zone(h.primary)
			l.task.Stop() // versions are made below alone
			var ports, endpoints []string
			for i := range 2000 {
				ports = append(ports, fmt.Sprintf("p%d %d/tcp", i, i+1))
			}
			for i := range 500 {
				endpoints = append(endpoints, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
			}
			cut := func() (serial uint32, work int) {
				t.Helper()
				ix.Lock()
				defer ix.Unlock()
				var d differences
				z.records.addDifferences(&d, l.pending)
				if changed := l.newVersions(); !slices.Contains(changed, z) {
					t.Fatalf("got the changed zones %v, want %s", changed, z.records.zone.name)
				}
				return z.serial.Load(), d.work
			}
			ix.Put(cluster.Services, headless("shop", "db"))
			ix.Put(cluster.Slices, slice("shop", "db-1", "db", strings.Join(ports, ","), endpoints...))
			cut()
			ix.Put(cluster.Slices, slice("shop", "db-1", "db", strings.Join(ports, ","), endpoints[1:]...))
			before := z.serial.Load()
			after, work := cut()
			if most := maxWork + 2*maxAnswer; work > most {
				t.Errorf("got work of %d bytes, want at most %d", work, most)
			}
			if _, ok := h.Version(h.primary).(zone.Differ).Since(before); ok || !zone.SerialLess(before, after) {
				t.Errorf("after a change of the large Service: differences are known: %v; serial %d after %d", ok, after, before)
			}
			ix.Put(cluster.Services, headless("shop", "small"))
			ix.Put(cluster.Slices, slice("shop", "small-1", "small", "http 80/tcp", "10.1.0.1"))
			before = after
			cut()
			if _, ok := h.Version(h.primary).(zone.Differ).Since(before); !ok {
				t.Error("differences after a small change are not known")
			}
		})
	}
}

// A Service whose name would be too long in the zone has no records there, and the others are transferred.
func TestLiveNameTooLong(t *testing.T) {
	d := defaultOptions()
	d.zones = []string{strings.Repeat("z23456789.", 13) + "example."}
	long := strings.Repeat("s", 63)
	h := d.handler(t, load(d.newIndex(), namespaceObject("shop"), namespaceObject(long),
		clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"), clusterIP(long, long, "http 80/tcp", "10.96.0.2"),
		external(long, long[1:], "www.example.com"), headless(long, long[2:]),
		slice(long, long[2:]+"-1", long[2:], "http 80/tcp", "ep=10.0.0.1")))
	serveLive(t, h, time.Now)

	r := &zoneReplica{origin: h.primary}
	if err := r.transfer(h.Version(h.primary)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Join(r.lines(), "\n")
	if want := "api.shop.svc." + d.zones[0] + " 5 IN A 10.96.0.1"; !strings.Contains(lines, want) {
		t.Errorf("got\n%s\nwant the record %s", lines, want)
	}
	for _, absent := range []string{"sss", "CNAME", "10.96.0.2", "10.0.0.1"} {
		if strings.Contains(lines, absent) {
			t.Errorf("got\n%s\nwant nothing with %s", lines, absent)
		}
	}
}
