package cmd_test

import (
	"syscall"
	"testing"

	"github.com/miekg/dns"
)

// With the directive lameduck, a process answers after SIGTERM until the time has
// passed, and then ends.
func TestLameduckDirective(t *testing.T) {
	p := serve(t, t.TempDir(), ".:0 {\n bind 127.0.0.1\n whoami\n lameduck 1h\n}\n", "-conf", "stdin")
	p.signal(syscall.SIGTERM)
	p.until("Shutting down")
	for _, network := range []string{"udp", "tcp"} {
		if reply, err := ask(network, p.ports[0], "a.", dns.TypeA); err != nil || reply.Rcode != 0 {
			t.Errorf("query over %s after SIGTERM: got %v, error %v, want NOERROR", network, reply, err)
		}
	}
	p = serve(t, t.TempDir(), ".:0 {\n bind 127.0.0.1\n whoami\n lameduck 50ms\n}\n", "-conf", "stdin")
	p.stop()
}
