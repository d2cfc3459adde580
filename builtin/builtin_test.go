package builtin

import (
	"slices"
	"strings"
	"testing"
)

// order is the order in which a query meets the directives, and the whole list
// of them. Policy comes before memory: acl judges the name that rewrite has
// made of the question, and does so before autopath and cache can answer it.
// policy_test.go shows what goes wrong otherwise.
const order = `root metadata cancel timeouts multisocket reload kubedns_config nsid bufsize bind debug ready kubedns_status lameduck
health pprof shed prometheus skydns_metrics errors log local dns64 any chaos loadbalance rewrite acl autopath cache header minimal template hosts records k8s_external
federation kubernetes file etcd screen loop forward erratic whoami view`

// corednsOrder is that of CoreDNS 1.14's plugin.cfg. Ours differs in one place:
// there autopath stands above acl, and the names that it tries are not judged
// (coredns#8290).
const corednsOrder = `root metadata geoip cancel proxyproto tls quic grpc_server https https3 timeouts multisocket reload nsid bufsize
bind debug trace ready health pprof shed prometheus errors log dnstap local dns64 any chaos loadbalance tsig rewrite
autopath acl cache header dnssec minimal template transfer hosts route53 azure clouddns k8s_external kubernetes file
auto secondary etcd loop forward grpc erratic whoami on sign view nomad`

// ours are the words that CoreDNS has not, or not any more; they may stand anywhere.
const ours = `kubedns_config kubedns_status skydns_metrics lameduck records federation screen`

func TestOrder(t *testing.T) {
	var names []string
	for _, d := range Directives() {
		names = append(names, d.Name)
		if d.Brief == "" || d.Setup == nil {
			t.Errorf("%s is incomplete", d.Name)
		}
	}
	if got := strings.Join(names, " "); got != strings.Join(strings.Fields(order), " ") {
		t.Errorf("the order is\n%s\nwant\n%s", got, order)
	}
}

// Whoever moves from CoreDNS finds its order, but for acl.
func TestOrderIsCoreDNSsButForACL(t *testing.T) {
	theirs := strings.Fields(strings.Replace(corednsOrder, "autopath acl", "acl autopath", 1))
	names := slices.DeleteFunc(strings.Fields(order), func(name string) bool { return slices.Contains(strings.Fields(ours), name) })
	if outOfPlace := outside(names, theirs); outOfPlace != "" {
		t.Errorf("%s is not where CoreDNS has it", outOfPlace)
	}
}

// outside gives the first of names that is not in order or comes too late there.
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
