package machinery

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"maps"
	"net/http"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience bounds the wait for an event that should come at once.
const patience = time.Minute

// Several servers, one after the other and two at once, leave no goroutine behind.
func TestStartStopLeavesNoGoroutine(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	cycle := func() {
		srv, err := Start(context.Background(), t.TempDir())
		if err != nil {
			t.Error(err)
			return
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: srv.certs.Pool()}}
		resp, err := (&http.Client{Transport: transport}).Get(srv.URL() + "/api/v1/pods?watch=1")
		if err != nil {
			t.Error(err)
		} else {
			defer resp.Body.Close() // the server stops with a watch open
		}
		srv.Stop()
		srv.Stop() // does nothing
		transport.CloseIdleConnections()
		if err := srv.StartAPI(context.Background()); err == nil {
			t.Error("StartAPI after Stop: got no error, want one")
		}
	}
	cycle() // starts the goroutines that a process has once
	before := runtime.NumGoroutine()
	for range 3 {
		cycle()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		cycle()
	}()
	cycle()
	<-done
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		buf := make([]byte, 1<<20)
		t.Errorf("goroutines: got %[2]d, want %[1]d as before:\n%[3]s", before, n, buf[:runtime.Stack(buf, true)])
	}
}

func TestServiceImportCopySharesNothing(t *testing.T) {
	list := &ServiceImportList{Items: []ServiceImport{{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       ServiceImportSpec{IPs: []string{"1"}, Ports: []ServiceImportPort{{AppProtocol: new("h2c")}}},
		Status:     ServiceImportStatus{Clusters: []ServiceImportCluster{{Cluster: "east"}}},
	}}}
	want, _ := json.Marshal(list)
	c := list.DeepCopyObject().(*ServiceImportList)
	if got, _ := json.Marshal(c); string(got) != string(want) {
		t.Errorf("copy: got %s, want %s", got, want)
	}
	i := &c.Items[0]
	maps.Copy(i.Labels, map[string]string{"a": "c"})
	i.Spec.IPs[0], *i.Spec.Ports[0].AppProtocol, i.Status.Clusters[0].Cluster = "2", "x", "west"
	i.Spec.Ports[0].Port = 1
	if got, _ := json.Marshal(list); string(got) != string(want) {
		t.Errorf("original after a change of its copy: got %s, want %s", got, want)
	}
}
