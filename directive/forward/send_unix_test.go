//go:build unix

package forward

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
)

// A socket whose send buffer is full loses queries, which are sent to the next upstream
// as if the upstream had not replied. They do not wait for room in the buffer.
func TestSocketBufferFull(t *testing.T) {
	healthy := newFakeUpstream(t, answerWithAddress("53"))
	var mu sync.Mutex
	var ends []*os.File
	full := func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(address, "192.0.2.1:") {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		// A socket pair whose other end is not read, with the smallest buffer.
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
		if err == nil {
			err = syscall.SetsockoptInt(pair[0], syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1)
		}
		if err != nil {
			return nil, err
		}
		near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
		defer func() { _ = near.Close() }()
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, far)
		return net.FileConn(near)
	}
	b, err := setup(".:53 {\nforward . 192.0.2.1 "+healthy.addr+" {\n policy sequential\n max_fails 0\n}\n}", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Dial = full
	r := &harness{t: t}
	r.serve(b, nil)
	defer func() {
		r.lot.Close(t.Context())
		r.start.Stop()
		for _, f := range ends {
			_ = f.Close()
		}
	}()
	const n = 500 // more than the sockets hold
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			name := fmt.Sprintf("n%d.example.", i)
			if reply, _ := r.ask(query(name, mdns.TypeA), dns.UDP); brief(reply) != "192.0.2.53" {
				t.Errorf("%s: got %s, want the answer of the second upstream", name, brief(reply))
			}
		})
	}
	clients.Wait()
}
