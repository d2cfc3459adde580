package forward

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// startUpstreams starts upstreams at these addresses, all at one port, because a
// resolv.conf contains no ports.
func startUpstreams(t *testing.T, hosts ...string) (port string) {
	t.Helper()
	for range 20 {
		first, err := net.ListenPacket("udp", hosts[0]+":0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(first.LocalAddr().String())
		sockets := []net.PacketConn{first}
		for _, h := range hosts[1:] {
			c, err := net.ListenPacket("udp", h+":"+port)
			if err != nil {
				break
			}
			sockets = append(sockets, c)
		}
		if len(sockets) < len(hosts) {
			for _, c := range sockets {
				_ = c.Close()
			}
			continue
		}
		for _, c := range sockets {
			host, _, _ := net.SplitHostPort(c.LocalAddr().String())
			last := host[strings.LastIndexByte(host, '.')+1:]
			s := &mdns.Server{PacketConn: c, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
				_ = w.WriteMsg(answerOf(q, last))
			})}
			started, ended := make(chan struct{}), make(chan error, 1)
			s.NotifyStartedFunc = func() { close(started) }
			go func() { ended <- s.ActivateAndServe() }()
			<-started
			t.Cleanup(func() { _ = s.Shutdown(); <-ended })
		}
		return port
	}
	t.Fatalf("no port is free on all of %v, want one", hosts)
	return ""
}

// setPort makes a file's name servers listen at another port than 53.
func setPort(t *testing.T, r *harness, port string) {
	t.Helper()
	n, err := netip.ParseAddrPort("127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.forward {
		r.forward[i].options.destinations[0].port = n.Port()
	}
}

func replaceFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// serveFile forwards to the servers of a resolv.conf, at another port than 53.
func serveFile(t *testing.T, file, port string, log io.Writer) *harness {
	t.Helper()
	b, err := setup(".:53 {\nforward . "+file+"\n}", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r := &harness{t: t}
	r.forward = forwards(b)
	setPort(t, r, port)
	r.serve(b, nil)
	t.Cleanup(func() { r.lot.Close(t.Context()); r.start.Stop() })
	return r
}

// A lockedBuffer is a file that several goroutines may use.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *lockedBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *lockedBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// A resolv.conf that changes under load is followed without losing queries; one that
// is removed or empty changes nothing.
func TestResolvConfChanges(t *testing.T) {
	port := startUpstreams(t, "127.0.0.2", "127.0.0.3")
	file := filepath.Join(t.TempDir(), "resolv.conf")
	replaceFile(t, file, "search x\nnameserver 127.0.0.2\n")
	var log lockedBuffer
	r := serveFile(t, file, port, &log)
	var stop atomic.Bool
	var load sync.WaitGroup
	for c := range 4 {
		load.Go(func() {
			for i := 0; !stop.Load(); i++ {
				if got := r.query(fmt.Sprintf("n%d-%d.example.", c, i), mdns.TypeA); got != "192.0.2.2" && got != "192.0.2.3" {
					t.Errorf("n%d-%d.example. A: got %s, want 192.0.2.2 or 192.0.2.3", c, i, got)
				}
			}
		})
	}
	is := func(hosts ...string) func() bool {
		return func() bool {
			names, _ := r.forward[0].Upstreams()
			for i := range names {
				names[i] = strings.TrimSuffix(names[i], ":"+port)
			}
			return slices.Equal(names, hosts)
		}
	}
	chaintest.Eventually(t, "the first server", is("127.0.0.2"))
	_, changed := r.forward[0].Upstreams()
	replaceFile(t, file, "nameserver 127.0.0.3\n")
	<-changed
	chaintest.Eventually(t, "the second server", is("127.0.0.3"))
	chaintest.Eventually(t, "it answers", func() bool { return r.query("x.example.", mdns.TypeA) == "192.0.2.3" })
	replaceFile(t, file, "nameserver 127.0.0.3\nnameserver 127.0.0.2\nnameserver 127.0.0.3\n")
	chaintest.Eventually(t, "both", is("127.0.0.3", "127.0.0.2"))
	replaceFile(t, file, "# nothing\n")
	chaintest.Eventually(t, "a warning", func() bool { return strings.Contains(log.String(), "No upstream address found") })
	if !is("127.0.0.3", "127.0.0.2")() {
		t.Error("resolv.conf without nameserver lines: the upstreams changed, want the last ones")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	stop.Store(true)
	load.Wait()
	if !is("127.0.0.3", "127.0.0.2")() {
		t.Error("missing resolv.conf: the upstreams changed, want the last ones")
	}
}

// Upstreams that stay keep their state.
func TestSetTargetsKeepsUpstreams(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr)
	r.query("a.example.", mdns.TypeA)
	s := r.forward[0].set
	first := s.current.Load().all[0]
	other := upstreamID{scheme: schemeDNS, addr: netip.MustParseAddrPort("127.0.0.9:53")}
	s.setUpstreams([]upstreamID{other, first.upstreamID})
	if now := s.current.Load().all; len(now) != 2 || now[1] != first {
		t.Error("setUpstreams with a known target: got a new upstream, want the same")
	}
	s.setUpstreams([]upstreamID{other})
	first.mu.Lock()
	defer first.mu.Unlock()
	if !first.retired || len(first.sockets) != 0 {
		t.Error("removed upstream: got sockets, want none")
	}
}

// Host names are looked up repeatedly.
func TestHostnameAddressesChange(t *testing.T) {
	port := startUpstreams(t, "127.0.0.2", "127.0.0.3")
	var host atomic.Value
	host.Store("127.0.0.2")
	resolver := newFakeUpstream(t, func(q *mdns.Msg, _ bool, send func([]byte)) {
		m := new(mdns.Msg).SetReply(q)
		if to := host.Load().(string); q.Question[0].Qtype == mdns.TypeA && to != "" {
			m.Answer = append(m.Answer, rr(q.Question[0].Name+" 1 IN A "+to))
		}
		send(pack(m))
	})
	r := newHarness(t, "forward . up.example.test:"+port+" {\n resolver "+resolver.addr+"\n}")
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")
	again := func(text string) {
		host.Store(text)
		f := newUpdater(r.forward[0].set)
		f.addrs[0], f.current = []netip.Addr{netip.MustParseAddr("127.0.0.2")}, []upstreamID{}
		f.update(t.Context()) // run does this when a lookup is due.
	}
	again("127.0.0.3")
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.3")
	again("")
	r.wantAnswer("c.example.", mdns.TypeA, "192.0.2.2") // The last known address is used.
}

// A host name without an address is logged, and looked up until it has one.
func TestHostnameWithoutAddress(t *testing.T) {
	resolver := newFakeUpstream(t, answerWithCode(mdns.RcodeNameError))
	r := newHarness(t, "forward . up.example.test {\n resolver "+resolver.addr+"\n}")
	m, err := r.ask(query("a.example.", mdns.TypeA), dns.UDP)
	if m.Rcode != mdns.RcodeServerFailure || err == nil || !strings.Contains(err.Error(), "no upstream address is known") {
		t.Errorf("%v %v", m, err)
	}
}

func TestSourceAddress(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr+" {\n source_address 127.0.0.7\n}")
	for _, proto := range []dns.Proto{dns.UDP, dns.TCP} {
		if m, err := r.ask(query("a.example.", mdns.TypeA), proto); err != nil || brief(m) != "192.0.2.1" {
			t.Errorf("a.example. A over %s: got error %v and\n%v\nwant 192.0.2.1", proto, err, m)
		}
	}
	_, from := up.received()
	for _, from := range from {
		if !strings.HasPrefix(from, "127.0.0.7:") {
			t.Errorf("source address: got %s, want 127.0.0.7", from)
		}
	}
}

// A reload with the same options keeps the upstreams and their sockets.
func TestReloadKeepsUpstreams(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r := newHarness(t, "forward . "+up.addr+" {\n max_concurrent 5\n}")
	r.query("a.example.", mdns.TypeA)
	before := r.forward[0].set
	again := func(text string) {
		b, err := setup(".:53 {\n"+text+"\n}", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		old := r.lot
		r.serve(b, r.start)
		old.Close(t.Context())
	}
	again("forward . " + up.addr + " {\n max_concurrent 7\n except lan\n}\nforward lan " + up.addr)
	if r.forward[0].set != before || r.forward[1].set != before {
		t.Error("reload with the same upstream options: got another set, want the same")
	}
	r.query("b.example.", mdns.TypeA)
	if _, _, ports := up.counts(); ports != 1 {
		t.Errorf("got queries from %d sockets, want 1: the set was not kept", ports)
	}
	again("forward . " + up.addr + " {\n expire 1s\n}")
	if r.forward[0].set == before || before.ctx.Err() == nil {
		t.Errorf("reload with other upstream options: got the same set %v, and error %v of the old set's context; want another set and a stopped one", r.forward[0].set == before, before.ctx.Err())
	}
	r.wantAnswer("c.example.", mdns.TypeA, "192.0.2.1")
}

// Stop ends every goroutine and socket.
func TestStopEndsQueries(t *testing.T) {
	quiet, fine := newFakeUpstream(t, noReply), newFakeUpstream(t, answerWithAddress("1"))
	count := func() int { return runtime.NumGoroutine() }
	files := func() int { all, _ := os.ReadDir("/proc/self/fd"); return len(all) }
	goroutines, open := count(), files()
	for _, text := range []string{
		"forward . " + quiet.addr + " " + fine.addr + " {\n read_timeout 50ms\n health_check 10ms\n}",
		"forward . " + quiet.addr + " {\n force_tcp\n}",
		"forward . " + fine.addr + " {\n force_tcp\n}",
		"forward . tls://" + quiet.addr,
		"forward . https://" + quiet.addr,
		"forward . localhost:1",
	} {
		b, err := setup(".:53 {\n"+text+"\n}", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r := &harness{t: t}
		r.serve(b, nil)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { r.query(fmt.Sprintf("n%d.example.", i), mdns.TypeA) })
		}
		chaintest.Eventually(t, "all wait", func() bool { return exchanges(r.forward[0].set) > 0 || fine.queryCount() > 0 })
		r.start.Stop()
		all.Wait()
		r.lot.Close(t.Context())
	}
	quiet.closeConns()
	fine.closeConns()
	chaintest.Eventually(t, "goroutines have ended", func() bool { return count() <= goroutines })
	chaintest.Eventually(t, "sockets are closed", func() bool { return files() <= open })
}
