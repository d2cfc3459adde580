package dns

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// An authority serves zones from its own data.
type authority struct {
	Handler
	zones []string
}

func (a authority) AuthoritativeZones() (zones []wire.Name) {
	for _, s := range a.zones {
		zone, err := wire.ParseName(s)
		if err != nil {
			panic(err)
		}
		zones = append(zones, zone)
	}
	return zones
}

func TestOwnZones(t *testing.T) {
	plain := serve(addresses(1))
	r := newRig(t, 1, map[string]*Chain{
		".":               chain(plain, authority{plain, []string{"cluster.local", "in-addr.arpa"}}, plain),
		"db.example":      chain(authority{plain, []string{"."}}),              // only db.example is reachable
		"other.example":   chain(authority{plain, []string{"cluster2.local"}}), // unreachable
		"stub.example":    chain(plain),
		"x.cluster.local": chain(plain),
	})
	zones := &r.mux.ownZones
	got := slices.Sorted(func(yield func(string) bool) {
		for zone := range maps.Keys(zones.Fixed.All()) {
			_ = yield(zone.String())
		}
	})
	if want := []string{"cluster.local.", "db.example.", "in-addr.arpa."}; !slices.Equal(got, want) {
		t.Errorf("zones: got %q, want %q", got, want)
	}
	zones.Fixed.Set("\x03sub\x07cluster\x05local\x00", struct{}{})
	for _, c := range []struct {
		query, name string
		want        bool
	}{
		{"a.example.", "svc.cluster.local.", true},
		{"a.example.", "SVC.Cluster.LOCAL.", true},
		{"a.example.", "cluster.local.", true},
		{"a.example.", "xcluster.local.", false},
		{"a.example.", "local.", false},
		{"a.example.", "www.stub.example.", false},
		{"a.example.", "db.example.", true},
		{".", "db.example.", true},
		{"a.cluster.local.", "b.cluster.local.", false},
		{"a.Cluster.Local.", "b.cluster.local.", false},
		{"a.cluster.local.", "b.sub.cluster.local.", true},
		{"a.sub.cluster.local.", "b.cluster.local.", false},
		{"1.0.192.in-addr.arpa.", "1.0-31.2.0.192.in-addr.arpa.", false},
		{"a.example.", ".", false},
	} {
		query, _ := wire.ParseName(c.query)
		name, _ := wire.ParseName(c.name)
		if got := zones.Entered([]byte(query), []byte(name)); got != c.want {
			t.Errorf("query for %s, record of %s: got %v, want %v", c.query, c.name, got, c.want)
		}
		if (*OwnZones)(nil).Entered([]byte(query), []byte(name)) {
			t.Errorf("query for %s, record of %s, no zones: got true, want false", c.query, c.name)
		}
	}
}

// A finder has the zones of an authority, which may change.
type finder struct{ authority }

func (f *finder) AuthoritativeZones() {} // not an Authority

func (f *finder) FindZone(name []byte) (n int) {
	for _, zone := range f.authority.AuthoritativeZones() {
		if wire.Within(name, zone) {
			n = max(n, len(zone))
		}
	}
	return n
}

// Zones of a ZoneFinder count from the moment that it has them, within the zone of its chain.
func TestOwnZonesOfZoneFinder(t *testing.T) {
	plain := serve(addresses(1))
	top, inner := &finder{authority{Handler: plain}}, &finder{authority{Handler: plain}}
	zones := &newRig(t, 1, map[string]*Chain{
		".":        chain(top, authority{plain, []string{"fixed.test"}}),
		"in.test.": chain(inner),
	}).mux.ownZones
	check := func(step string, want map[[2]string]bool) {
		t.Helper()
		for names, want := range want {
			query, _ := wire.ParseName(names[0])
			name, _ := wire.ParseName(names[1])
			if got := zones.Entered([]byte(query), []byte(strings.ToUpper(string(name)))); got != want {
				t.Errorf("%s: query for %s, record of %s: got %v, want %v", step, names[0], names[1], got, want)
			}
		}
	}
	check("without zones", map[[2]string]bool{{"a.example", "b.dynamic.test"}: false, {"a.example", "b.in.test"}: false, {"a.example", "b.fixed.test"}: true})
	top.zones, inner.zones = []string{"dynamic.test", "sub.fixed.test", "other.example"}, []string{"test"}
	check("with zones", map[[2]string]bool{
		{"a.example", "b.dynamic.test"}:      true,
		{"a.example", "dynamic.test"}:        true,
		{"c.dynamic.test", "b.dynamic.test"}: false,
		{"c.fixed.test", "b.sub.fixed.test"}: true,
		{"c.sub.fixed.test", "b.fixed.test"}: false,
		{"a.example", "b.in.test"}:           true, // inner's zone, as far as its chain serves it
		{"a.in.test", "b.in.test"}:           false,
		{"a.example", "b.test"}:              false,
	})
	top.zones, inner.zones = nil, nil
	check("after their removal", map[[2]string]bool{{"a.example", "b.dynamic.test"}: false, {"a.example", "b.in.test"}: false, {"c.fixed.test", "b.sub.fixed.test"}: false})

	others := &newRig(t, 1, map[string]*Chain{".": chain(top, authority{plain, []string{"fixed.test"}}), "in.test.": chain(&finder{authority{Handler: plain}})}).mux.ownZones
	for _, c := range []struct {
		name string
		a, b *OwnZones
		want bool
	}{
		{"the same", zones, zones, true},
		{"another ZoneFinder", zones, others, false},
		{"no zones", nil, &OwnZones{}, true},
		{"no zones", nil, zones, false},
		{"no zones", zones, nil, false},
	} {
		if got := c.a.Equal(c.b); got != c.want {
			t.Errorf("Equal, %s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// An awaitingSubQuery is an Awaiter that makes a sub-query.
type awaitingSubQuery struct{}

func (awaitingSubQuery) AwaitDNS(_ *Query, wake func()) bool { go wake(); return true }

func (awaitingSubQuery) Resolve(ctx context.Context, q *Query) error {
	sub, ok := q.SubQuery([]byte("\x01b\x00"), q.Type)
	if !ok {
		sub = q.ResumeSubQuery(ctx)
	}
	q.RCode, q.Err = sub.RCode, sub.Err
	return nil
}

// A query that got its place without a goroutine needs more of them when
// ResumeSubQuery blocks.
func TestResumeSubQueryNeedsPlaces(t *testing.T) {
	slow := resolve(func(_ context.Context, q *Query) error { addresses(1)(q); return nil })
	for _, c := range []struct{ room, want int }{{1, mdns.RcodeServerFailure}, {2, mdns.RcodeSuccess}} {
		finished := 0
		r := newRig(t, c.room, map[string]*Chain{
			".": chain(awaitingSubQuery{}),
			"b": chain(finisher(func(*Query) { finished++ }), slow),
		})
		if reply := r.answer(newQuery("a.", mdns.TypeA)); reply.Rcode != c.want || finished != 1 {
			t.Errorf("lot for %d queries: got %d calls of the finisher and %v, want one call and %s", c.room, finished, reply, mdns.RcodeToString[c.want])
		}
		r.lot.Close(t.Context())
		if n := r.lot.used.Load(); n != 0 {
			t.Errorf("lot for %d queries: %d places are in use after the reply, want none", c.room, n)
		}
	}
}
