package builtin

import (
	"slices"
	"strings"
	"testing"
)

// order is the expected order of these directives. acl checks the name that
// rewrite has produced before autopath and cache can answer it; policy_test.go
// shows the consequences of another order. You need not add new directives.
const order = `root metadata geoip cancel proxyproto tls quic grpc_server https https3 timeouts multisocket reload handover capture kubedns_config nsid bufsize bind debug trace ready kubedns_status lameduck
health pprof admin shed ratelimit prometheus skydns_metrics errors log nftset local dns64 siit any chaos loadbalance tsig rewrite acl policy autopath cache header dnssec minimal template transfer hosts records k8s_external
federation kubernetes file auto secondary etcd screen loop forward grpc erratic whoami on sign view`

// corednsOrder is the order of CoreDNS 1.15's plugin.cfg. It differs in two
// places: autopath precedes acl, so acl does not check the names that autopath
// tries (coredns#8290), and tls follows dnssec, since it answers ACME's challenges.
const corednsOrder = `root metadata geoip cancel proxyproto tls quic grpc_server https https3 timeouts multisocket reload nsid bufsize
bind debug trace ready health pprof shed prometheus errors log dnstap local dns64 siit any chaos loadbalance tsig rewrite
autopath acl cache header dnssec minimal template transfer hosts route53 azure clouddns k8s_external kubernetes file
auto secondary etcd loop forward grpc erratic whoami on sign view nomad`

func TestOrder(t *testing.T) {
	var names []string
	for _, d := range Directives() {
		names = append(names, d.Name)
		if d.Brief == "" || d.Setup == nil || !strings.HasPrefix(d.Usage, d.Name) {
			t.Errorf("%s: brief %q, usage %q: want both, and a Setup", d.Name, d.Brief, d.Usage)
		}
	}
	if name := outside(strings.Fields(order), names); name != "" {
		t.Errorf("%s is missing or in another position: got %s\nwant %s", name, names, order)
	}
}

// The order is CoreDNS's, except for acl. Directives that CoreDNS lacks may
// have any position.
func TestOrderOfCoreDNS(t *testing.T) {
	want := strings.Fields(strings.Replace(corednsOrder, "autopath acl", "acl autopath", 1))
	var names []string
	for _, d := range Directives() {
		if slices.Contains(want, d.Name) {
			names = append(names, d.Name)
		}
	}
	if name := outside(names, want); name != "" {
		t.Errorf("%s is in another position than in CoreDNS: got %s\nwant %s", name, names, want)
	}
}

// outside returns the first of names that is missing in order or precedes its
// predecessor there, "" if there is none.
func outside(names, order []string) string {
	for _, name := range names {
		i := slices.Index(order, name)
		if i < 0 {
			return name
		}
		order = order[i+1:]
	}
	return ""
}
