package kube2sky

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

func newTestState() *state {
	return newState(newZone("cluster.local"), (&Options{}).cluster().Kinds())
}

// changed returns the wanted records of the groups that have changed.
func (s *state) changed() (text []string) {
	for _, p := range s.queue.take(1000) {
		root, _ := s.zone.root(p)
		var values []string
		for _, r := range s.wanted(p) {
			_, host, _ := strings.Cut(r.value, `"host":"`)
			host, _, _ = strings.Cut(host, `"`)
			values = append(values, host)
		}
		text = append(text, strings.Join(append([]string{strings.TrimPrefix(root, "local/cluster/")}, values...), " "))
	}
	slices.Sort(text)
	return text
}

// synced reports whether every kind has been listed.
func (s *state) synced() bool {
	select {
	case <-s.complete:
		return true
	default:
		return false
	}
}

func none(cluster.Key) bool { return false }

func TestStateSynced(t *testing.T) {
	s := newTestState()
	kinds := (&Options{}).cluster().Kinds()
	for _, k := range kinds {
		if s.synced() {
			t.Errorf("complete before the list of %v, want incomplete", k)
		}
		s.Listed(k, none)
	}
	s.Listed(kinds[0], none) // a second list
	if !s.synced() || len(kinds) != 4 {
		t.Errorf("incomplete after lists of %v, want complete", kinds)
	}
}

func TestStateServices(t *testing.T) {
	s := newTestState()
	s.Put(cluster.Services, &cluster.Service{Namespace: "shop", Name: "early", ClusterIPs: ips("10.0.0.9")})
	same(t, "before start", s.changed())
	s.queue.start()

	s.Put(cluster.Slices, slice("db-1", "db", "db-0=10.1.0.3"))
	same(t, "a slice without its Service", s.changed())
	db := &cluster.Service{Namespace: "shop", Name: "db", Headless: true}
	s.Put(cluster.Services, db)
	same(t, "the Service of the slice", s.changed(), "arpa/in-addr/10/1/0/3 db-0.db.shop.svc.cluster.local.",
		"svc/shop/db/ db-0.db.shop.svc.cluster.local. 10.1.0.3")
	s.Put(cluster.Slices, slice("db-1", "db", "db-0=10.1.0.4"))
	same(t, "another address", s.changed(), "arpa/in-addr/10/1/0/3", "arpa/in-addr/10/1/0/4 db-0.db.shop.svc.cluster.local.",
		"svc/shop/db/ db-0.db.shop.svc.cluster.local. 10.1.0.4")
	s.Put(cluster.Slices, slice("db-2", "db", "db-0=10.1.0.4"))
	s.Delete(cluster.Slices, cluster.Key{Namespace: "shop", Name: "db-1"})
	same(t, "the address is in another slice", s.changed(), "svc/shop/db/ db-0.db.shop.svc.cluster.local. 10.1.0.4")

	s.Put(cluster.Services, &cluster.Service{Namespace: "shop", Name: "web", ClusterIPs: ips("10.1.0.4")})
	same(t, "a cluster IP has precedence", s.changed(), "arpa/in-addr/10/1/0/4 web.shop.svc.cluster.local.", "svc/shop/web/ 10.1.0.4")
	s.Put(cluster.Slices, slice("web-1", "web", "10.1.0.8"))
	same(t, "endpoints of a Service with a cluster IP", s.changed())
	s.Listed(cluster.Services, func(k cluster.Key) bool { return k.Name != "web" })
	same(t, "the Service is deleted", s.changed(), "arpa/in-addr/10/1/0/4 db-0.db.shop.svc.cluster.local.", "svc/shop/web/")

	s.Put(cluster.Slices, slice("db-2", "other", "db-0=10.1.0.4"))
	same(t, "a slice of another Service", s.changed(), "arpa/in-addr/10/1/0/4", "svc/shop/db/")
	s.Listed(cluster.Slices, none)
	s.Listed(cluster.Services, none)
	same(t, "all objects are deleted", s.changed(), "arpa/in-addr/10/0/0/9", "svc/shop/db/", "svc/shop/early/")
	if n := len(s.services) + len(s.bySlice) + len(s.reverse.all); n != 0 {
		t.Errorf("entries after all deletions: got %d, want 0", n)
	}
	s.Put(cluster.Services, db)
	s.queue.stop()
	if s.queue.pending() != 0 {
		t.Errorf("queue after stop: got %d groups, want 0", s.queue.pending())
	}
}

func TestStatePods(t *testing.T) {
	s := newTestState()
	s.queue.start()
	s.Put(cluster.Pods, &cluster.Pod{Namespace: "shop", Name: "a", IPs: ips("1.2.3.4", "fd00::1")}, &cluster.Pod{Namespace: "shop", Name: "b", IPs: ips("1.2.3.4")})
	same(t, "two pods", s.changed(), "pod/shop/1-2-3-4/ 1.2.3.4", "pod/shop/fd00--1/ fd00::1")
	s.Put(cluster.Pods, &cluster.Pod{Namespace: "shop", Name: "a", IPs: ips("fd00::1")})
	same(t, "another pod has the address", s.changed())
	s.Put(cluster.Pods, &cluster.Pod{Namespace: "shop", Name: "b", IPs: ips("1.2.3.5")})
	same(t, "no pod has the address", s.changed(), "pod/shop/1-2-3-4/", "pod/shop/1-2-3-5/ 1.2.3.5")
	s.Listed(cluster.Pods, none)
	same(t, "all pods are deleted", s.changed(), "pod/shop/1-2-3-5/", "pod/shop/fd00--1/")
}

// After random changes, the reverse names equal the reverse names of a new state with the same
// objects, and each changed one has been queued.
func TestStateReverseRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := newTestState()
	s.queue.start()
	services, slices := map[string]*cluster.Service{}, map[string]*cluster.Slice{}
	written := map[string]string{}
	addr := func() string { return fmt.Sprintf("10.1.0.%d", rnd.IntN(6)) }
	for step := range 5000 {
		name := string(rune('a' + rnd.IntN(4)))
		switch rnd.IntN(6) {
		case 0:
			delete(services, name)
			s.Delete(cluster.Services, cluster.Key{Namespace: "shop", Name: name})
		case 1:
			services[name] = &cluster.Service{Namespace: "shop", Name: name, ClusterIPs: ips(addr())}
			s.Put(cluster.Services, services[name])
		case 2:
			services[name] = &cluster.Service{Namespace: "shop", Name: name, Headless: true, PublishNotReady: rnd.IntN(2) == 0}
			s.Put(cluster.Services, services[name])
		case 3:
			delete(slices, name)
			s.Delete(cluster.Slices, cluster.Key{Namespace: "shop", Name: name})
		default:
			slices[name] = slice(name, string(rune('a'+rnd.IntN(4))), addr(), "h="+addr(), "!"+addr(), addr())
			s.Put(cluster.Slices, slices[name])
		}
		for _, p := range s.queue.take(1000) {
			if p.kind == reverseGroup {
				written[p.addr.String()] = fmt.Sprint(s.wanted(p))
			}
		}
		if step%10 > 0 {
			continue
		}
		fresh := newTestState()
		for _, o := range slices {
			fresh.Put(cluster.Slices, o)
		}
		for _, o := range services {
			fresh.Put(cluster.Services, o)
		}
		for i := range 6 {
			p := keyGroup{kind: reverseGroup, addr: ip(fmt.Sprintf("10.1.0.%d", i))}
			want, got := fmt.Sprint(fresh.wanted(p)), written[p.addr.String()]
			if got == "" {
				got = "[]"
			}
			if got != want {
				t.Fatalf("step %d: record of %v: got %s, want %s", step, p.addr, got, want)
			}
		}
	}
}
