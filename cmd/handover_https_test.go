package cmd_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// A heldUpstream is a DNS server that holds its replies while its gate is closed.
type heldUpstream struct {
	net.PacketConn
	gate    atomic.Pointer[chan struct{}]
	mu      sync.Mutex
	queries map[string]bool
}

func newHeldUpstream(t *testing.T) *heldUpstream {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &heldUpstream{PacketConn: conn, queries: map[string]bool{}}
	u.hold()()
	s := &dns.Server{PacketConn: conn, Handler: u}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	return u
}

// hold closes the gate. It returns the function that opens it.
func (u *heldUpstream) hold() (release func()) {
	gate := make(chan struct{})
	u.gate.Store(&gate)
	return sync.OnceFunc(func() { close(gate) })
}

func (u *heldUpstream) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	u.mu.Lock()
	u.queries[strings.ToLower(q.Question[0].Name)] = true // forward sends names in mixed case
	u.mu.Unlock()
	gate := *u.gate.Load()
	<-gate
	r := new(dns.Msg).SetReply(q)
	a, _ := dns.NewRR(q.Question[0].Name + " 300 IN A 192.0.2.1")
	r.Answer = []dns.RR{a}
	_ = w.WriteMsg(r)
}

// count returns how many names with a prefix were queried.
func (u *heldUpstream) count(prefix string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name := range u.queries {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// exchangeHTTPS sends a query by POST or GET, and returns an error unless the reply has one
// address.
func exchangeHTTPS(c *http.Client, method, at, name string) error {
	q := new(dns.Msg).SetQuestion(name, dns.TypeA)
	q.Id = 0
	packet, err := q.Pack()
	if err != nil {
		return err
	}
	url := "https://" + at + "/dns-query"
	if method == http.MethodGet {
		url += "?dns=" + base64.RawURLEncoding.EncodeToString(packet)
	}
	var body io.Reader
	if method == http.MethodPost {
		body = bytes.NewReader(packet)
	}
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/dns-message")
	response, err := c.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	m := new(dns.Msg)
	if err == nil && response.StatusCode == http.StatusOK {
		err = m.Unpack(reply)
	}
	if err != nil || response.StatusCode != http.StatusOK || len(m.Answer) != 1 {
		return fmt.Errorf("%s %s %s: got status %s, %v, error %v; want one address", response.Proto, method, name, response.Status, m, err)
	}
	return nil
}

// awaitsTurn waits until a process that starts is about to take over: it waits for the
// lock, which the test holds.
func (p *process) awaitsTurn(lock string) {
	p.t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd", p.Process.Pid)
	if _, err := os.Stat(fds); err != nil {
		return // a system without them
	}
	chaintest.Eventually(p.t, "the process to wait for "+lock, func() bool {
		open, _ := filepath.Glob(fds + "/*")
		return slices.ContainsFunc(open, func(fd string) bool {
			to, _ := os.Readlink(fd)
			return filepath.Base(to) == filepath.Base(lock)
		})
	})
}

// Queries over HTTPS that wait for an upstream while another process takes over get their
// replies from the old one. So do the queries that clients send meanwhile.
func TestHandoverHTTPS(t *testing.T) {
	long(t)
	t.Parallel()
	const clients, parked = 4, 4
	whole := t // a process may outlive the part of the test that starts it
	u := newHeldUpstream(t)
	dir, port, https := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t)
	writeCertificate(t, dir)
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(".:%s https://.:%s {\n bind 127.0.0.1\n tls cert.pem key.pem\n handover seamark.sock\n forward . %s {\n prefer_udp\n }\n}\n", port, https, u.LocalAddr()))
	at := "127.0.0.1:" + https
	p := serve(t, dir, "", "-conf", "Corefile")
	for i, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(protocol, func(t *testing.T) {
			var all []*http.Client
			for range clients {
				protocols := new(http.Protocols)
				protocols.SetHTTP1(i == 0)
				protocols.SetHTTP2(i == 1)
				transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: protocols}
				t.Cleanup(transport.CloseIdleConnections)
				all = append(all, &http.Client{Transport: transport, Timeout: time.Minute})
			}
			for restart := range 4 {
				prefix := fmt.Sprintf("p%d-%d-", i, restart)
				// A query waits for its upstream for five seconds. To start a process may take
				// longer, so the queries are sent when it is about to take over.
				socket := filepath.Join(dir, "seamark.sock")
				unlock, err := watch.Lock(t.Context(), socket)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(unlock)
				next := launch(whole, program.Command(whole, dir, "-conf", "Corefile"), os.Stderr, "")
				next.awaitsTurn(socket + ".lock")
				release := u.hold()
				t.Cleanup(release)
				errs := make(chan error, clients*parked)
				for n := range clients * parked {
					// Clients do not send a POST request again.
					go func() {
						errs <- exchangeHTTPS(all[n%clients], http.MethodPost, at, fmt.Sprintf("%s%d.example.", prefix, n))
					}()
				}
				chaintest.Eventually(t, "all queries at the upstream", func() bool { return u.count(prefix) == clients*parked })
				unlock()
				next.greeting()
				release()
				// Some queries are sent while the old process ends.
				var during sync.WaitGroup
				for n := range clients {
					during.Go(func() {
						for k := range 20 {
							if err := exchangeHTTPS(all[n], http.MethodGet, at, fmt.Sprintf("d%d-%d-%d.example.", restart, n, k)); err != nil {
								t.Errorf("restart %d, query after the hand-over: %v", restart, err)
							}
						}
					})
				}
				for range clients * parked {
					if err := <-errs; err != nil {
						t.Errorf("restart %d: %v", restart, err)
					}
				}
				during.Wait()
				if code := p.exit(); code != 0 {
					t.Errorf("exit status of the old process: got %d, want 0", code)
				}
				p = next
			}
		})
	}
	p.stop()
}
