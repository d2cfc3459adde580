package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/metrics"
)

// Every request is counted by method, code and host, including failed ones, and
// so is the wait for the limit of requests per second.
func TestRequestsAreCounted(t *testing.T) {
	a := serve(t, &fakeServer{refuse: func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/services") {
			return http.StatusForbidden
		}
		return 0
	}})
	away := httptest.NewServer(nil)
	away.Close()
	var reg metrics.Registry
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	start := func(endpoint string) *recorder {
		f := new(recorder)
		running.Go(func() {
			runMonitored(ctx, cluster.Options{Endpoint: endpoint, QPS: 1000}, f, f, &reg, defaultTimeouts())
		})
		return f
	}
	f := start(a.URL)
	f.waitForLog(t, "forbidden")
	f.waitForCall(t, "listed namespaces ")
	start(away.URL).waitForLog(t, "unreachable")
	cancel()
	running.Wait()
	var text strings.Builder
	if err := reg.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	here, _ := url.Parse(a.URL)
	there, _ := url.Parse(away.URL)
	for _, line := range []string{
		`coredns_kubernetes_rest_client_requests_total{method="GET",code="200",host="%s"} `,
		`coredns_kubernetes_rest_client_requests_total{method="GET",code="403",host="%s"} `,
		`coredns_kubernetes_rest_client_requests_total{method="GET",code="<error>",host="%s"} `,
		`coredns_kubernetes_rest_client_request_duration_seconds_count{verb="GET",host="%s"} `,
		`coredns_kubernetes_rest_client_rate_limiter_duration_seconds_count{verb="GET",host="%s"} `,
	} {
		host := here.Host
		if strings.Contains(line, "<error>") {
			host = there.Host
		}
		if line = fmt.Sprintf(line, host); !strings.Contains(text.String(), line) {
			t.Errorf("metrics: got\n%s\nwant %s", text.String(), line)
		}
	}
}

// A timingSink is a Sink that records the ages of changes.
type timingSink struct {
	recordingSink
	took map[cluster.Key]time.Duration
}

func (s *timingSink) Programmed(of cluster.Key, took time.Duration) { s.took[of] = took }

// Changes delivered by a watch are timed if they have the annotation; objects of
// lists are not.
func TestProgrammed(t *testing.T) {
	sink := &timingSink{took: map[cluster.Key]time.Duration{}}
	source := newSource(new(metrics.Registry))
	source.timed = sink
	s := &store{source: source, kinds: []cluster.Kind{cluster.Slices, cluster.ImportSlices}, sink: wholeCluster(sink, source.Monitor)}
	sliceWith := func(service, trigger string, labels map[string]string) *decodedObject {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: service + "-1", Labels: labels}
		if trigger != "" {
			meta.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": trigger}
		}
		return decoded(t, codecFor(cluster.Options{Multicluster: true}, cluster.Slices, t.Errorf), inProtobuf(t, &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: "IPv4"}))
	}
	slice := func(service, trigger string) *decodedObject {
		return sliceWith(service, trigger, map[string]string{discoveryv1.LabelServiceName: service})
	}
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339Nano) }
	s.startList()
	s.list.put(&slice("listed", ago(time.Hour)).Decoded)
	s.endList("")
	s.put(slice("added", ago(time.Hour)))
	s.put(slice("changed", ago(24*time.Hour)))
	s.put(slice("silent", ""))
	s.put(slice("wrong", "yesterday"))
	s.delete(slice("gone", ago(time.Hour)))
	imported := sliceWith("imported", ago(time.Hour), map[string]string{api.LabelImportService: "imported", api.LabelImportCluster: "east"})
	s.put(imported)
	if len(sink.took) != 2 || sink.took[cluster.Key{Namespace: "shop", Name: "added"}].Round(time.Hour) != time.Hour || sink.took[cluster.Key{Namespace: "shop", Name: "changed"}].Round(time.Hour) != 24*time.Hour {
		t.Errorf("ages of changes: got %v, want an hour for added and a day for changed", sink.took)
	}
}
