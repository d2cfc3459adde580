package builtin

import (
	"slices"
	"strings"
	"testing"
)

// order is that of CoreDNS 1.14's plugin.cfg.
const order = `root metadata geoip cancel proxyproto tls quic grpc_server https https3 timeouts multisocket reload nsid bufsize
bind debug trace ready health pprof shed prometheus errors log dnstap local dns64 any chaos loadbalance tsig rewrite
autopath acl cache header dnssec minimal template transfer hosts route53 azure clouddns k8s_external kubernetes file
auto secondary etcd loop forward grpc erratic whoami on sign view nomad`

func TestOrder(t *testing.T) {
	at := -1
	for _, d := range Directives() {
		i := slices.Index(strings.Fields(order), d.Name)
		if i >= 0 && i <= at {
			t.Errorf("%s is not where CoreDNS has it", d.Name)
		}
		at = max(at, i)
		if d.Brief == "" || d.Setup == nil {
			t.Errorf("%s is incomplete", d.Name)
		}
	}
}
