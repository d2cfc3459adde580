package cmd_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
)

// Valid and invalid Corefiles alternate while clients send queries over UDP, TCP and
// persistent connections. No query is lost, and no connection is closed.
func TestReloadQueries(t *testing.T) {
	long(t)
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service)
	corefile := filepath.Join(dir, "Corefile")
	valid := func(n int) string {
		return fmt.Sprintf(".:0 {\n bind 127.0.0.1\n errors\n cache %d\n kubernetes cluster.local {\n  manifests .\n  ttl %d\n }\n}\n", 10+n%5, 5+n%3)
	}
	write(t, corefile, valid(0))
	p := serve(t, dir, "", "-conf", "Corefile")
	at := "127.0.0.1:" + p.ports[0]
	answers(t, at)
	l := startLoad(t, serviceName, func() string { return at })
	reloads := 0
	for n := 1; (reloads < 2 || !l.done()) && !t.Failed(); n++ {
		text, result := valid(n), "Reloading complete"
		if n%2 == 0 {
			text, result = ".:0 {\n bind 127.0.0.1\n nonsense\n}\n", "Reload failed"
		}
		write(t, corefile, text)
		p.signal(syscall.SIGHUP)
		p.until(result)
		reloads++
		l.more(200)
	}
	l.wait(reloads)
	if reloads < 2 {
		t.Errorf("got %d reloads, want a valid and an invalid Corefile", reloads)
	}
	if n := l.counts[2].connections.Load(); n != 2 {
		t.Errorf("persistent connections: got %d, want 2 that survive every reload", n)
	}
	p.stop()
}
