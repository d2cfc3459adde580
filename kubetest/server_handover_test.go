package kubetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
)

// While the API server does not respond, a process that takes over answers from the
// objects of the old one, which leaves the file of the snapshot to it. Later changes are seen.
func TestServerHandoverWithoutAPI(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	w.shop()
	proxy := must(NewProxy(api))(t)
	t.Cleanup(proxy.Close)
	dir := t.TempDir()
	corefile := filepath.Join(dir, "Corefile")
	text := ". {\n handover " + filepath.Join(dir, "seamark.sock") + "\n errors\n kubernetes cluster.local in-addr.arpa {\n  endpoint " + proxy.URL() + "\n  snapshot " + filepath.Join(dir, "snapshot") + "\n }\n}\n"
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := "127.0.0.1:" + freeport.Reserve(t)
	run := func() *process {
		return program(t, at, "seamark", nil, "serve", "--listen", at, "--conf", corefile)
	}
	old := run()
	old.await(unchangedNames()...)
	var written os.FileInfo
	chaintest.Eventually(t, "a snapshot", func() bool {
		var err error
		written, err = os.Stat(filepath.Join(dir, "snapshot"))
		return err == nil
	})
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
		// The new process has received no list, so it writes nothing either.
		if now, err := os.Stat(filepath.Join(dir, "snapshot")); err != nil || !os.SameFile(written, now) {
			t.Errorf("the snapshot after the exit of the old process: got error %v or another file, want the same", err)
		}
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
