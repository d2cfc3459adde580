package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// A traced is a Sink that keeps the function for origins.
type traced struct {
	recorder
	read atomic.Pointer[cluster.ReadOrigin]
}

func (s *traced) SetOrigins(read cluster.ReadOrigin) { s.read.Store(&read) }

// An origin is requested by a list of one object, of its metadata only.
func TestOrigin(t *testing.T) {
	var refused atomic.Int32 // the status for requests with a selector of the name
	a := serve(t, &fakeServer{
		objects: map[string]string{
			"services": `{"metadata":{"namespace":"shop","name":"other","resourceVersion":"1"}},` +
				`{"metadata":{"namespace":"shop","name":"web","resourceVersion":"17","creationTimestamp":"2026-01-02T03:04:05Z"}}`,
			"namespaces": `{"metadata":{"name":"shop","resourceVersion":"3"}}`,
		},
		refuse: func(r *http.Request) int {
			if r.URL.Query().Has("fieldSelector") {
				return int(refused.Load())
			}
			return 0
		},
	})
	s := new(traced)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runMonitored(ctx, cluster.Options{Endpoint: a.URL}, s, &s.recorder, new(metrics.Registry), defaultTimeouts())
	}()
	defer func() {
		cancel()
		<-ended
	}()
	s.waitForCall(t, "listed services shop/other shop/web")
	read := *s.read.Load()
	web := cluster.Key{Namespace: "shop", Name: "web"}

	o, err := read(t.Context(), cluster.Services, web)
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); err != nil || o.ResourceVersion != "17" || !o.Created.Equal(want) || o.File != "" {
		t.Errorf("Service shop/web: got %+v and error %v, want version 17 and %v", o, err, want)
	}
	// The lists and watches of other kinds may begin meanwhile; they select no object.
	ofObjects := func() []*http.Request {
		return slices.DeleteFunc(a.received(), func(r *http.Request) bool { return !r.URL.Query().Has("fieldSelector") })
	}
	requests := ofObjects()
	if len(requests) != 1 {
		t.Fatalf("got %d requests, want 1", len(requests))
	}
	if r := requests[0]; r.Method != "GET" || r.URL.Path != "/api/v1/namespaces/shop/services" || r.URL.RawQuery != "fieldSelector=metadata.name%3Dweb" ||
		!strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		t.Errorf("got the request %s %s with Accept %q, want a list of the metadata of one object", r.Method, r.URL, r.Header.Get("Accept"))
	}
	if o, err := read(t.Context(), cluster.Namespaces, cluster.Key{Name: "shop"}); err != nil || o.ResourceVersion != "3" || !o.Created.IsZero() {
		t.Errorf("Namespace shop: got %+v and error %v, want version 3", o, err)
	}
	for _, c := range []struct {
		kind   cluster.Kind
		key    cluster.Key
		status int
		want   string
	}{
		{cluster.Services, cluster.Key{Namespace: "shop", Name: "none"}, 0, "the API server does not have the object any more"},
		{cluster.Pods, web, 0, "pods are not watched"},
		{cluster.Services, web, http.StatusForbidden, "forbidden: the server may not list services"},
		{cluster.Slices, web, http.StatusForbidden, "forbidden: the server may not list endpointslices.discovery.k8s.io"},
		{cluster.Services, web, http.StatusServiceUnavailable, "503 Service Unavailable"},
	} {
		refused.Store(int32(c.status))
		if o, err := read(t.Context(), c.kind, c.key); err == nil || err.Error() != c.want || o != (cluster.Origin{}) {
			t.Errorf("%s %s with status %d: got %+v and error %v, want %q", c.kind, c.key, c.status, o, err, c.want)
		}
	}
	short, end := context.WithTimeout(t.Context(), -time.Second)
	defer end()
	if _, err := read(short, cluster.Services, web); err == nil || err.Error() != "no response from the API server in time" {
		t.Errorf("ended context: got error %v", err)
	}
	refused.Store(0)
	limited := 0
	before := len(ofObjects())
	begin := time.Now()
	for range 2 * originBurst {
		if _, err := read(t.Context(), cluster.Services, web); err != nil && strings.HasPrefix(err.Error(), "more than 5 requests a second") {
			limited++
		}
	}
	sent, most := len(ofObjects())-before, originBurst+int(originRate*(time.Since(begin).Seconds()+1))
	if limited == 0 || sent > most {
		t.Errorf("got %d requests, and %d that were not sent, want at most %d", sent, limited, most)
	}
}
