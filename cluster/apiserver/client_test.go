package apiserver

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/seamark/seamark/cluster"
)

// The memory of a client that is no longer used is freed: a reload with other options and a
// changed kubeconfig make new ones.
func TestClientIsFreed(t *testing.T) {
	unused := func() weak.Pointer[client] {
		c := newClient(cluster.Options{Endpoint: "https://127.0.0.1:1"}, nil, nil)
		if err := c.load(); err != nil {
			t.Fatal(err)
		}
		return weak.Make(c)
	}()
	for deadline := time.Now().Add(time.Minute); unused.Value() != nil; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("the client is still in memory")
		}
	}
}
