package apiserver

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seamark/seamark/cluster"
)

const (
	namesAndMore = `{"metadata":{"namespace":"shop","name":"names","labels":{"dns":"yes"}},"data":{"hosts":"10.0.0.1 a\n"}},` +
		`{"metadata":{"namespace":"bank","name":"more"},"data":{}}`
	webRecords = `{"metadata":{"namespace":"shop","name":"web"},"spec":{"endpoints":[` +
		`{"dnsName":"web.example.com","recordType":"A","targets":["10.0.0.1"]}]}}`
)

// Objects with records are requested by themselves: ConfigMaps by their labels, in protobuf, and
// DNSEndpoints in JSON, of the cluster or of each namespace.
func TestLiveRecords(t *testing.T) {
	for namespaces, paths := range map[string][]string{
		"":          {"/api/v1/configmaps", "/apis/externaldns.k8s.io/v1alpha1/dnsendpoints"},
		"bank,shop": {"/api/v1/namespaces/bank/configmaps", "/api/v1/namespaces/shop/configmaps", "/apis/externaldns.k8s.io/v1alpha1/namespaces/bank/dnsendpoints", "/apis/externaldns.k8s.io/v1alpha1/namespaces/shop/dnsendpoints"},
	} {
		a := serve(t, &fakeServer{objects: map[string]string{"configmaps": namesAndMore, "dnsendpoints": webRecords}})
		f, stop := watchCluster(t, cluster.Options{
			Endpoint: a.URL, ConfigMapLabels: "dns=yes", DNSEndpoints: true, Namespaces: namespaces, Labels: "tier=front",
		})
		f.waitForCall(t, "listed configmaps bank/more shop/names")
		f.waitForCall(t, "listed dnsendpoints shop/web")
		stop()

		requested := map[string]bool{}
		for _, r := range a.received() {
			requested[r.URL.Path] = true
			selector, form := "dns=yes", "application/vnd.kubernetes.protobuf"
			if strings.HasSuffix(r.URL.Path, "dnsendpoints") {
				selector, form = "", "application/json"
			}
			if got := r.URL.Query().Get("labelSelector"); got != selector || !strings.HasPrefix(r.Header.Get("Accept"), form) {
				t.Errorf("%s: got label selector %q and Accept %q, want %q and %s", r.URL, got, r.Header.Get("Accept"), selector, form)
			}
		}
		for _, path := range paths {
			if !requested[path] {
				t.Errorf("namespaces %q: %s was not requested", namespaces, path)
			}
			delete(requested, path)
		}
		if len(requested) > 0 {
			t.Errorf("namespaces %q: got further requests %v, want none", namespaces, requested)
		}
	}
}

// Without its definition there is no DNSEndpoint, and the feed counts as listed. A definition that is
// installed later is found; when it is removed, the objects are deleted.
func TestLiveDefinition(t *testing.T) {
	for _, namespaces := range []string{"", "bank,shop"} {
		var defined atomic.Bool
		a := serve(t, &fakeServer{
			objects: map[string]string{"dnsendpoints": webRecords},
			refuse: func(r *http.Request) int {
				if strings.HasSuffix(r.URL.Path, "dnsendpoints") && !defined.Load() {
					return http.StatusNotFound
				}
				return 0
			},
		})
		f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, DNSEndpoints: true, Namespaces: namespaces})
		f.waitForCall(t, "listed dnsendpoints ")
		f.waitForLog(t, `"Resource not defined in the API server, retrying" kind=DNSEndpoint`)

		defined.Store(true)
		f.waitForCall(t, "put dnsendpoints shop/web")
		f.waitForLog(t, `"List or watch recovered" kind=DNSEndpoint`)

		defined.Store(false)
		a.change("dnsendpoints", webRecords, 0)
		f.waitFor(t, "no DNSEndpoint", func() bool { return len(f.sink.has[cluster.DNSEndpoints]) == 0 })

		defined.Store(true)
		f.waitFor(t, "a DNSEndpoint", func() bool { return len(f.sink.has[cluster.DNSEndpoints]) == 1 })
	}
}

// The removal of a definition deletes most objects, and so has to be confirmed as a list has.
func TestLiveDefinitionConfirmed(t *testing.T) {
	var defined atomic.Bool
	defined.Store(true)
	a := serve(t, &fakeServer{
		objects: map[string]string{"dnsendpoints": webRecords},
		refuse: func(*http.Request) int {
			if !defined.Load() {
				return http.StatusNotFound
			}
			return 0
		},
	})
	f := &comparingSink{objects: map[cluster.Key]bool{}, records: true}
	runUntilCleanup(t, cluster.Options{Endpoint: a.URL, DNSEndpoints: true}, f, &f.recorder, shortTimeouts())
	f.waitForCall(t, "listed dnsendpoints shop/web")
	defined.Store(false)
	a.change("dnsendpoints", webRecords, 0)
	f.waitForLog(t, "List lacks most of the known objects")
	f.waitForLog(t, "Another list lacks most of the known objects, deleting them")
	f.waitForCall(t, "listed dnsendpoints ")
}

// A definition that is missing is listed once: the data has no other state until it is installed.
func TestLiveDefinitionListedOnce(t *testing.T) {
	var requests atomic.Int32
	a := serve(t, &fakeServer{refuse: func(*http.Request) int {
		requests.Add(1)
		return http.StatusNotFound
	}})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, DNSEndpoints: true})
	f.waitFor(t, "five requests", func() bool { return requests.Load() >= 5 })
	f.do(func() {
		if got := strings.Join(f.sink.lines, "\n"); got != "listed dnsendpoints " {
			t.Errorf("got the calls\n%s\nwant one empty list", got)
		}
	})
}

// The log names the rule that is missing.
func TestLiveRecordsForbidden(t *testing.T) {
	a := serve(t, &fakeServer{refuse: func(*http.Request) int { return http.StatusForbidden }})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, ConfigMapLabels: "dns", DNSEndpoints: true})
	f.waitForLog(t, `rule="{apiGroups: [\"\"], resources: [configmaps], verbs: [list, watch]}"`)
	f.waitForLog(t, `rule="{apiGroups: [\"externaldns.k8s.io\"], resources: [dnsendpoints], verbs: [list, watch]}"`)

	f, _ = watchCluster(t, cluster.Options{Endpoint: a.URL, ConfigMap: "dns/custom"})
	f.waitForLog(t, `rule="{apiGroups: [\"\"], resources: [configmaps], resourceNames: [custom], verbs: [list, watch]}"`)
}
