package cmd_test

import (
	"syscall"
	"testing"

	"github.com/miekg/dns"
)

// The directive lameduck keeps a process answering that has been told to stop, and
// lets it end by itself.
func TestLameduckDirective(t *testing.T) {
	p := serve(t, t.TempDir(), ".:0 {\n bind 127.0.0.1\n whoami\n lameduck 1h\n}\n", "-conf", "stdin")
	p.signal(syscall.SIGTERM)
	p.until("shutting down")
	for _, network := range []string{"udp", "tcp"} {
		if reply, err := ask(network, p.ports[0], "a.", dns.TypeA); err != nil || reply.Rcode != 0 {
			t.Errorf("after SIGTERM over %s: %v %v", network, reply, err)
		}
	}
	p = serve(t, t.TempDir(), ".:0 {\n bind 127.0.0.1\n whoami\n lameduck 50ms\n}\n", "-conf", "stdin")
	p.stop()
}
