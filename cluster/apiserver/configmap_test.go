package apiserver

import (
	"net/http"
	"testing"

	"github.com/seamark/seamark/cluster"
)

const custom = `{"metadata":{"namespace":"dns","name":"custom"},"data":{"hosts":"10.0.0.1 a\n"},"binaryData":{"more":"MTAuMC4wLjIgYgo="}}`

// Only the named object is requested.
func TestLiveConfigMap(t *testing.T) {
	for _, old := range []bool{false, true} {
		a := serve(t, &fakeServer{old: old, objects: map[string]string{"configmaps": custom + `,{"metadata":{"namespace":"dns","name":"other"}}`}})
		f, stop := watchCluster(t, cluster.Options{Endpoint: a.URL, ConfigMap: "dns/custom"})
		f.waitForCall(t, "listed configmaps dns/custom")
		stop()
		for _, r := range a.received() {
			if q := r.URL.Query(); r.URL.Path != "/api/v1/namespaces/dns/configmaps" || q.Get("fieldSelector") != "metadata.name=custom" || q.Get("labelSelector") != "" {
				t.Errorf("got request %s, want only ConfigMap dns/custom", r.URL)
			}
		}
	}
}

// A missing object is an empty list.
func TestLiveConfigMapMissing(t *testing.T) {
	f, _ := watchCluster(t, cluster.Options{Endpoint: serve(t, &fakeServer{}).URL, ConfigMap: "dns/custom"})
	f.waitForCall(t, "listed configmaps ")
}

func TestLiveConfigMapForbidden(t *testing.T) {
	a := serve(t, &fakeServer{refuse: func(*http.Request) int { return http.StatusForbidden }})
	f, _ := watchCluster(t, cluster.Options{Endpoint: a.URL, ConfigMap: "dns/custom"})
	f.waitForLog(t, `"List or watch forbidden, grant both to the service account" kind=ConfigMap namespace=dns name=custom verb=list`)
}
