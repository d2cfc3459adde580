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

// The cluster's domains in the host's search path are not queried a second time.
func TestHostSearchPathClusterDomains(t *testing.T) {
	w := &backend{namespaces: []string{"shop"}, client: "shop"}
	hostSearch := names(t, []string{"kube-system.svc.cluster.local.", "svc.cluster.local.", "cluster.local.", "corp.example."})
	serve(t, w, &AutoPath{source: byClient, hostSearch: hostSearch}).exchange("www.com.shop.svc.cluster.local.", wire.TypeA)
	want := []string{
		"www.com.shop.svc.cluster.local. A", "www.com.shop.svc.cluster.local. AAAA",
		"www.com.svc.cluster.local. AAAA", "www.com.svc.cluster.local. A",
		"www.com.cluster.local. AAAA", "www.com.cluster.local. A",
		"www.com.corp.example. AAAA", "www.com.corp.example. A",
		"www.com. AAAA", "www.com. A",
	}
	if !slices.Equal(w.asked, want) {
		t.Errorf("queries:\ngot  %q\nwant %q", w.asked, want)
	}
}

// A domain is skipped if the name before it would become too long.
func TestNameTooLong(t *testing.T) {
	base := strings.Repeat(strings.Repeat("x", 60)+".", 3) + "com."
	long := strings.Repeat("y", 60) + ".example."
	w := &backend{namespaces: []string{"shop"}, client: "shop", results: map[string]result{
		base + " A": {addrs: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}, base + " AAAA": {},
	}}
	s := serve(t, w, &AutoPath{source: byClient, hostSearch: names(t, []string{long})})
	if m := s.exchange(base+"shop.svc.cluster.local.", wire.TypeA); m.Rcode != 0 || len(m.Answer) != 2 {
		t.Errorf("got\n%v\nwant NOERROR with 2 records", m)
	}
	if slices.ContainsFunc(w.asked, func(name string) bool { return strings.Contains(name, "yyy") }) {
		t.Errorf("got queries %q, want none below %s", w.asked, long)
	}
}

// If a name of the path gets no answer, the client gets the ordinary reply before it
// repeats its query.
func TestSlowUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &backend{namespaces: []string{"shop"}, client: "shop", silent: "www.com."}
		start := time.Now()
		m := serve(t, w, &AutoPath{source: byQuery}).exchange("www.com.shop.svc.cluster.local.", wire.TypeA)
		if took := time.Since(start); m.Rcode != mdns.RcodeNameError || took != maxDuration {
			t.Errorf("got after %v:\n%v\nwant NXDOMAIN after %v", took, m, maxDuration)
		}
	})
}
