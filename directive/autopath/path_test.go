package autopath

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// What /etc/resolv.conf has of a pod's own search path is not asked for twice.
func TestOwnSearchPath(t *testing.T) {
	w := &world{namespaces: []string{"shop"}, client: "shop"}
	more := names(t, []string{"kube-system.svc.cluster.local.", "svc.cluster.local.", "cluster.local.", "corp.example."})
	serve(t, w, &AutoPath{how: byClient, more: more}).ask("www.com.shop.svc.cluster.local.", wire.TypeA)
	want := []string{
		"www.com.shop.svc.cluster.local. A", "www.com.shop.svc.cluster.local. AAAA",
		"www.com.svc.cluster.local. AAAA", "www.com.svc.cluster.local. A",
		"www.com.cluster.local. AAAA", "www.com.cluster.local. A",
		"www.com.corp.example. AAAA", "www.com.corp.example. A",
		"www.com. AAAA", "www.com. A",
	}
	if !slices.Equal(w.asked, want) {
		t.Errorf("got %q", w.asked)
	}
}

// A name that does not fit in front of a domain is not asked for there.
func TestLongNames(t *testing.T) {
	base := strings.Repeat(strings.Repeat("x", 60)+".", 3) + "com."
	long := strings.Repeat("y", 60) + ".example."
	w := &world{namespaces: []string{"shop"}, client: "shop", results: map[string]result{
		base + " A": {addrs: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}, base + " AAAA": {},
	}}
	s := serve(t, w, &AutoPath{how: byClient, more: names(t, []string{long})})
	if m := s.ask(base+"shop.svc.cluster.local.", wire.TypeA); m.Rcode != 0 || len(m.Answer) != 2 {
		t.Error(m)
	}
	if slices.ContainsFunc(w.asked, func(name string) bool { return strings.Contains(name, "yyy") }) {
		t.Error(w.asked)
	}
}

// While a name of the path is not answered the client waits less than it takes
// to ask again, and has the ordinary reply then.
func TestSlowUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{namespaces: []string{"shop"}, client: "shop", silent: "www.com."}
		begin := time.Now()
		m := serve(t, w, &AutoPath{how: byQuestion}).ask("www.com.shop.svc.cluster.local.", wire.TypeA)
		if took := time.Since(begin); m.Rcode != mdns.RcodeNameError || took != patience {
			t.Errorf("after %v: %v", took, m)
		}
	})
}
