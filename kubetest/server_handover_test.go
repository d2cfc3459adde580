package kubetest

import (
	"github.com/seamark/seamark/test/freeport"
	"os"
	"path/filepath"
	"testing"
)

// While the API server does not respond, a process that takes over answers from the
// objects of the old one. Later changes are seen.
func TestServerHandoverWithoutAPI(t *testing.T) {
	api := start(t)
	w := writer(t, api)
	w.shop()
	proxy := must(NewProxy(api))(t)
	t.Cleanup(proxy.Close)
	dir := t.TempDir()
	corefile := filepath.Join(dir, "Corefile")
	text := ". {\n handover " + filepath.Join(dir, "seamark.sock") + "\n errors\n kubernetes cluster.local in-addr.arpa {\n  endpoint " + proxy.URL() + "\n }\n}\n"
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := "127.0.0.1:" + freeport.Reserve(t)
	run := func() *process {
		return program(t, at, "seamark", nil, "serve", "--listen", at, "--conf", corefile)
	}
	old := run()
	old.await(unchangedNames()...)
	load := old.startLoad(unchangedNames()...)
	proxy.Set(Faults{Stall: true})
	proxy.Cut()
	var successor *process
	for range 2 { // The second process receives objects that the first one received from the old process.
		successor = run()
		if err := <-old.ended; err != nil {
			t.Errorf("old process: got %v, want exit status 0", err)
		}
		old.ended <- nil
		old = successor
	}
	successor.check(unchangedNames()...)
	if successor.logs("Answering from a snapshot") != 1 || successor.logs("Took over from another process") != 1 {
		t.Errorf("log: got %s, want that it took over and answers from a snapshot", successor.log())
	}
	add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
	remove(t, w.CoreV1().Services("shop"), "bank")
	proxy.Set(Faults{})
	successor.await(lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"), lookupA("bank.shop.svc.cluster.local", "NXDOMAIN"))
	load.stop()
	successor.terminate()
}

// unchangedNames returns the queries for shop whose answers do not change in the test.
func unchangedNames() (names []lookup) {
	for _, q := range shopNames() {
		if q.name != "bank.shop.svc.cluster.local" {
			names = append(names, q)
		}
	}
	return names
}
