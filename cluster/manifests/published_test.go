package manifests

import (
	"testing"

	"github.com/seamark/seamark/cluster"
)

// An object that the options do not select is not missed, and a ClusterNetworkPolicy whose selector is invalid
// is left out.
func TestManifestsPublishedOthers(t *testing.T) {
	b := newBench(t, map[string]string{"all.yaml": `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: odd}
spec: {tier: Admin, priority: 1, subject: {namespaces: {matchExpressions: [{key: a, operator: Odd}]}}}
---
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: even}, spec: {tier: Admin}}
`})
	b.opts = cluster.Options{Published: cluster.SetOf(cluster.Namespaces, cluster.NetworkPolicies)}
	b.read()
	b.says(1, "level=WARN")
	b.says(1, `"Invalid selector, the object selects nothing"`, "name=odd")
	for kind, want := range map[cluster.Kind]int{cluster.Namespaces: 1, cluster.NetworkPolicies: 1} {
		if got := len(b.sink.objects[kind]); got != want {
			t.Errorf("got %d %s, want %d", got, kind, want)
		}
	}
}
