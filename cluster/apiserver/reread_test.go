package apiserver

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/metrics"
)

// A forgetful is a Sink that keeps the function for objects that it has not kept.
type forgetful struct {
	recorder
	read atomic.Pointer[cluster.ReadObject]
}

func (s *forgetful) SetReader(read cluster.ReadObject) { s.read.Store(&read) }

// An object is read again by a list of one object, with the labels of the watched ones.
func TestReread(t *testing.T) {
	var refused atomic.Int32 // the status for requests with a selector of the name
	a := serve(t, &fakeServer{
		objects: map[string]string{"configmaps": namesAndMore},
		refuse: func(r *http.Request) int {
			if r.URL.Query().Has("fieldSelector") {
				return int(refused.Load())
			}
			return 0
		},
	})
	s := new(forgetful)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o := cluster.Options{Endpoint: a.URL, ConfigMapLabels: "dns=yes"}
		runMonitored(ctx, o, s, &s.recorder, new(metrics.Registry), defaultTimeouts())
	}()
	defer func() {
		cancel()
		<-ended
	}()
	s.waitForCall(t, "listed configmaps bank/more shop/names")
	read := *s.read.Load()

	got, err := read(t.Context(), cluster.ConfigMaps, cluster.Key{Namespace: "shop", Name: "names"})
	if m, ok := got.(*cluster.ConfigMap); err != nil || !ok || m.Data["hosts"] != "10.0.0.1 a\n" {
		t.Errorf("ConfigMap shop/names: got %+v and error %v, want its data", got, err)
	}
	requests := slices.DeleteFunc(a.received(), func(r *http.Request) bool { return !r.URL.Query().Has("fieldSelector") })
	if len(requests) != 1 || requests[0].URL.String() !=
		"/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dnames&labelSelector=dns%3Dyes" {
		t.Errorf("got requests %v, want one list of the object", requests)
	}

	if got, err := read(t.Context(), cluster.ConfigMaps, cluster.Key{Namespace: "shop", Name: "none"}); got != nil || err != nil {
		t.Errorf("ConfigMap shop/none: got %v and error %v, want neither", got, err)
	}
	if _, err := read(t.Context(), cluster.Pods, cluster.Key{}); err == nil || err.Error() != "pods are not watched" {
		t.Errorf("Pod: got error %v", err)
	}
	refused.Store(http.StatusForbidden)
	if _, err := read(t.Context(), cluster.ConfigMaps, cluster.Key{Namespace: "shop", Name: "names"}); err == nil ||
		err.Error() != "forbidden: the server may not list configmaps" {
		t.Errorf("without permission: got error %v", err)
	}
}
