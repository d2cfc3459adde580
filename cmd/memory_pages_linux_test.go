package cmd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/memorygroup"
)

// A pageAttack is what hostile clients of a status page send over each of their connections. They
// open another one when the server closes it.
type pageAttack struct {
	page         string // health, prometheus, admin or pprof
	first, again string // again is sent every 20 ms
	reads        bool   // the replies
	halfClosed   bool   // after first
}

func pageAttacks() map[string]pageAttack {
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }
	post := func(header string) string {
		return "POST /metrics HTTP/1.1\r\nHost: localhost\r\n" + header + "\r\n\r\n"
	}
	// A SETTINGS frame, then PING frames (RFC 9113 §6.5, §6.7).
	const settings, ping = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"

	return map[string]pageAttack{
		"idle":              {page: "health"},
		"slow header":       {page: "health", first: "GET /health HTTP/1.1\r\n", again: "X: y\r\n"},
		"long header":       {page: "prometheus", first: "GET /metrics HTTP/1.1\r\nX: " + strings.Repeat("x", 31<<10)},
		"slow body":         {page: "prometheus", first: post("Content-Length: 1000000000"), again: "x"},
		"chunks":            {page: "prometheus", first: post("Transfer-Encoding: chunked"), again: "1000\r\n" + strings.Repeat("x", 4096) + "\r\n"},
		"preface of HTTP/2": {page: "admin", first: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings, again: strings.Repeat(ping, 100)},
		"TLS to plain HTTP": {page: "admin", first: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 500)},
		"unread metrics":    {page: "prometheus", first: strings.Repeat(get("/metrics"), 500)},
		"small requests":    {page: "health", first: strings.Repeat(get("/health"), 500), again: get("/health")},
		"half-closed":       {page: "prometheus", first: strings.Repeat(get("/metrics"), 20), halfClosed: true},
		"scrapes":           {page: "prometheus", first: get("/metrics"), again: get("/metrics"), reads: true},
		"unread records":    {page: "admin", first: strings.Repeat(get("/v1/records?zone=cluster.local"), 20)},
		"records":           {page: "admin", first: get("/v1/records"), again: get("/v1/records?zone=cluster.local&type=A"), reads: true},
		"unread cache":      {page: "admin", first: strings.Repeat(get("/v1/cache?limit=100000"), 20)},
		"unread tail":       {page: "admin", first: get("/v1/tail")},
		"status":            {page: "admin", first: get("/v1/status"), again: get("/v1/top?by=names&limit=100000"), reads: true},
		"unread web page":   {page: "admin", first: strings.Repeat(get("/"), 50)},
		"web pages":         {page: "admin", first: get("/records?zone=cluster.local"), again: get("/") + get("/queries"), reads: true},
		"explanations":      {page: "admin", first: get("/v1/explain?name=svc1.ns1.svc.cluster.local&type=A"), again: get("/v1/explain?name=x.example"), reads: true},
		"profiles":          {page: "pprof", first: get("/debug/pprof/heap") + get("/debug/pprof/goroutine?debug=2")},
	}
}

// run opens connections of a client to an address, one after the other, until ctx ends.
func (a pageAttack) run(ctx context.Context, client int, address string) {
	for ctx.Err() == nil {
		if conn, err := from(client).DialContext(ctx, "tcp", address); err == nil {
			a.use(ctx, conn.(*net.TCPConn))
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// use uses a connection until the server closes it or ctx ends.
func (a pageAttack) use(ctx context.Context, conn *net.TCPConn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetReadBuffer(4096)
	closed := make(chan struct{})
	if a.reads {
		go func() {
			defer close(closed)
			_, _ = io.Copy(io.Discard, conn)
		}()
		defer func() { conn.Close(); <-closed }()
	}

	if _, err := io.WriteString(conn, a.first); err != nil {
		return
	}
	if a.halfClosed {
		_ = conn.CloseWrite()
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && ctx.Err() == nil; sleep(ctx, 20*time.Millisecond) {
		if _, err := io.WriteString(conn, a.again); err != nil {
			return
		}
		select {
		case <-closed:
			return
		default:
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Clients attack the status pages in every way at once, beside a cluster of 10,000 Services with
// 150,000 endpoints: the kernel kills no process, each probe of a kubelet is answered, and so are
// names of the server's own data.
func TestMemoryPagesAttacked(t *testing.T) {
	long(t)
	bound.Only(t) // the attacks need processors
	binary := buildServer(t)
	for _, limit := range []int{64 << 20, 170 << 20} {
		t.Run(fmt.Sprint(limit>>20), func(t *testing.T) {
			f, g := newFill(t), memorygroup.New(t, limit)
			pages := map[string]string{"prometheus": f.pages}
			for _, name := range []string{"health", "admin", "pprof"} {
				pages[name] = "127.0.0.1:" + freeport.Reserve(t)
				f.directives += fmt.Sprintf(" %s %s\n", name, pages[name])
			}
			write(t, filepath.Join(f.dir, "Corefile"), f.corefile())
			c := exec.CommandContext(t.Context(), binary, "-conf", "Corefile")
			c.Dir = f.dir
			g.Add(c)
			p := start(t, c, os.Stderr, "")
			t.Logf("with the cluster alone: %s", g)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var tasks sync.WaitGroup
			client := 0
			for _, attack := range pageAttacks() {
				for range 10 {
					client++
					tasks.Go(func() { attack.run(ctx, client, pages[attack.page]) })
				}
			}
			sleep(ctx, 5*time.Second)

			measuring, measured := context.WithTimeout(ctx, 10*time.Second)
			probes := 0
			tasks.Go(func() {
				for ; measuring.Err() == nil; sleep(measuring, 100*time.Millisecond) {
					probes++
					if got, err := probe("127.0.0.1", "http://"+pages["health"]+"/health"); got != "OK" {
						t.Errorf("probe %d: got %q, error %v, want OK", probes, got, err)
					}
				}
			})
			took, lost := f.own(measuring)
			measured()
			cancel()
			tasks.Wait()

			slowest := survived(t, g, took, lost, fmt.Sprint(probes, " probes"))
			bound.AtMost(t, "the 99th percentile of the answers", slowest, 20*time.Millisecond)
			if reply, err := ask("udp", f.ports["dns"], "svc1.ns1.svc.cluster.local.", dns.TypeA); err != nil || len(reply.Answer) != 1 {
				t.Errorf("svc1.ns1.svc.cluster.local. A afterwards: got %v, error %v, want an address", reply, err)
			}
			p.stop()
			<-p.done
			t.Logf("processor time of the server in about 15s: %v", p.ProcessState.UserTime()+p.ProcessState.SystemTime())
		})
	}
}
