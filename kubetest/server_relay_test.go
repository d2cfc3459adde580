package kubetest

import (
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A relay passes TCP connections to an API server. It can stop passing bytes of
// open connections without closing them.
type relay struct {
	ln    net.Listener
	to    string
	tasks sync.WaitGroup

	mu        sync.Mutex
	forgotten map[net.Conn]bool // the connections of both sides; true is stalled
}

// newRelay starts a relay that ends with the test.
func newRelay(t *testing.T, api *Server) *relay {
	t.Helper()
	r := &relay{
		ln: must(net.Listen("tcp4", "127.0.0.1:0"))(t), to: strings.TrimPrefix(api.URL(), "https://"),
		forgotten: map[net.Conn]bool{},
	}
	r.tasks.Go(r.accept)
	t.Cleanup(func() {
		r.ln.Close()
		r.mu.Lock()
		for c := range r.forgotten {
			c.Close()
		}
		r.mu.Unlock()
		r.tasks.Wait()
	})
	return r
}

// kubeconfig writes a kubeconfig whose server is the relay.
func (r *relay) kubeconfig(t *testing.T, api *Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	cluster := &clientcmdapi.Cluster{Server: "https://" + r.ln.Addr().String(), CertificateAuthorityData: api.info.CA}
	if err := writeKubeconfig(file, cluster); err != nil {
		t.Fatal(err)
	}
	return file
}

// forget stalls every open connection.
func (r *relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.forgotten {
		r.forgotten[c] = true
	}
}

func (r *relay) accept() {
	for {
		near, err := r.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp4", r.to)
		if err != nil {
			near.Close()
			continue
		}
		r.mu.Lock()
		r.forgotten[near], r.forgotten[far] = false, false
		r.mu.Unlock()
		r.tasks.Go(func() { r.pass(near, far) })
		r.tasks.Go(func() { r.pass(far, near) })
	}
}

// pass copies until one side ends. It discards the bytes of a stalled connection,
// and its end.
func (r *relay) pass(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		silent := r.forgotten[from]
		r.mu.Unlock()
		switch {
		case err != nil && silent:
			return
		case err != nil:
			to.Close()
			return
		case silent:
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			from.Close()
			return
		}
	}
}
