package index

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

func TestProgrammed(t *testing.T) {
	ix := load(newTestIndex(), namespaceObject("shop"), clusterIP("shop", "api", "http 80/tcp", "10.96.0.1"),
		headless("shop", "db"), slice("shop", "db-1", "db", "", "10.0.0.1"),
		&cluster.Service{Namespace: "shop", Name: "set", Headless: true, Selector: true}, slice("shop", "set-1", "set", "", "10.0.0.2"),
		external("shop", "away", "www.example.com"), clusterIP("hidden", "api", "", "10.96.0.2"))
	ix.Programmed(cluster.Key{Namespace: "shop", Name: "api"}, time.Second) // No metric counts the change.
	var r metrics.Registry
	ix.latency = newLatency(&r)
	for _, name := range strings.Fields("shop/api shop/db shop/set shop/set shop/away shop/missing hidden/api nowhere/x") {
		ns, name, _ := strings.Cut(name, "/")
		ix.Programmed(cluster.Key{Namespace: ns, Name: name}, 3*time.Millisecond)
	}
	ix.Programmed(cluster.Key{Namespace: "shop", Name: "api"}, -time.Second) // the clocks of the machines differ
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const name = "coredns_kubernetes_dns_programming_duration_seconds"
	for kind, want := range map[string]string{"cluster_ip": "2", "headless_with_selector": "2", "headless_without_selector": "1"} {
		if line := fmt.Sprintf("%s_count{service_kind=%q} %s\n", name, kind, want); !strings.Contains(text.String(), line) {
			t.Errorf("want %s\n%s", line, text.String())
		}
	}
	for _, line := range []string{
		name + `_sum{service_kind="cluster_ip"} 0.003`, name + `_bucket{service_kind="cluster_ip",le="0.002"} 1`,
		name + `_bucket{service_kind="cluster_ip",le="0.004"} 2`, name + `_bucket{service_kind="cluster_ip",le="524.288"} 2`,
	} {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("want %s\n%s", line, text.String())
		}
	}
}
