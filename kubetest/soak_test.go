package kubetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/kubetest/certs"
	"github.com/seamark/seamark/test/freeport"
)

// TestSoak runs the server's binary between an API server, two upstreams and a client
// of each transport, and makes everything around it fail in an order that a seed determines:
// API responses, the API server itself, an upstream, the Corefile, and the time that
// the process gets. Every query is accounted for:
//
//   - names of Services that do not change, and of the upstream that does not fail,
//     have their only right answer at each moment;
//   - a Service that changes has an answer that was right once, and never an older one
//     than before;
//   - names of the failing upstream are answered or SERVFAIL;
//   - no query is lost;
//   - after each fault the answers are those of the API server's objects.
//
// SOAK is its duration (8s unless set; `make soak` sets it), SOAK_SEED the seed, which
// the test logs. With SOAK_REPORT, a file, it runs a binary of its own, measures what that
// uses, fails if memory, goroutines, files or latency grow, and writes a report.
func TestSoak(t *testing.T) {
	duration, seed := 8*time.Second, uint64(time.Now().UnixNano())
	if text := os.Getenv("SOAK"); text != "" {
		duration = must(time.ParseDuration(text))(t)
	}
	if text := os.Getenv("SOAK_SEED"); text != "" {
		seed = must(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("SOAK=%v SOAK_SEED=%d", duration, seed)
	file := os.Getenv("SOAK_REPORT")
	s := newSoak(t, seed, file != "")
	if s.watch != nil {
		s.tasks.Go(func() { s.watch.run(s.ctx, t, duration/soakSamples) })
	}
	shown := time.Now()
	for start := shown; time.Since(start) < duration && !t.Failed(); {
		s.round()
		if time.Since(shown) > 10*time.Minute {
			shown = time.Now()
			t.Logf("%v: faults: %v", shown.Sub(start).Round(time.Second), s.faults)
		}
	}
	s.finish()
	if s.watch != nil {
		s.watch.report(s, file, duration)
	}
}

// A soak is the state of one TestSoak.
type soak struct {
	*testing.T
	random   *rand.Rand
	api      *Server
	proxy    *Proxy
	writer   clusterWriter
	upstream *faultyUpstream
	server   *process
	watch    *soakWatch    // nil without a report
	pause    time.Duration // between two queries of a client: a load, not a flood
	corefile string
	ports    map[string]string // by the scheme of a server block's key, and of the metrics
	seed     uint64

	attempted atomic.Int64 // the newest version that may be in the API server
	answered  atomic.Int64 // the newest version in an answer

	ctx      context.Context
	stop     context.CancelFunc // stops clients and changes
	tasks    sync.WaitGroup
	accounts []*account
	delays   latencies // from the end of a fault to right answers
	faults   map[string]int
}

// An account is one client's queries, by their outcome.
type account struct {
	client                             string
	sent, right, servfail, wrong, lost int
}

func newSoak(t *testing.T, seed uint64, watched bool) *soak {
	s := &soak{T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), api: start(t), faults: map[string]int{}}
	s.writer = writer(t, s.api)
	s.writer.shop()
	add(t, s.writer.CoreV1().Services("shop"), external("version", "v0.example"))
	s.proxy = must(NewProxy(s.api))(t)
	t.Cleanup(s.proxy.Close)
	s.upstream = newFaultyUpstream(t)
	dir := t.TempDir()
	s.corefile = filepath.Join(dir, "Corefile")
	s.ports = map[string]string{"metrics": freeport.Reserve(t)}
	for _, transport := range soakTransports {
		if s.ports[transport.scheme] == "" {
			s.ports[transport.scheme] = freeport.Reserve(t)
		}
	}
	authority := must(certs.New())(t)
	for name, data := range map[string][]byte{"cert.pem": authority.Cert, "key.pem": authority.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.writeCorefile(s.text(0))
	s.serve(watched)
	s.server.await(shopNames()...)

	s.ctx, s.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { s.stop(); s.tasks.Wait() })
	for i, transport := range soakTransports {
		a := &account{client: transport.name}
		s.accounts = append(s.accounts, a)
		dial := func() (soakConn, error) { return transport.dial("127.0.0.1:" + s.ports[transport.scheme]) }
		s.tasks.Go(func() { s.query(s.ctx, a, i, dial) })
	}
	s.tasks.Go(func() { s.change(s.ctx) })
	return s
}

// serve starts the server: this binary, or one that was built as users build it.
func (s *soak) serve(watched bool) {
	at := "127.0.0.1:" + s.ports[""]
	if s.pause = time.Millisecond; !watched {
		s.server = program(s.T, at, "seamark", nil, "serve", "--conf", s.corefile)
		return
	}

	binary := buildSeamark(s.T)
	s.server = &process{daemon: &daemon{T: s.T, at: at}, ended: make(chan error, 1)}
	s.server.cmd = exec.Command(binary, "serve", "--conf", s.corefile)
	s.server.startCommand("seamark")
	s.pause = 10 * time.Millisecond // what is measured is not the machine's load
	s.watch = &soakWatch{
		metrics: "http://127.0.0.1:" + s.ports["metrics"] + "/metrics",
		pid:     s.server.cmd.Process.Pid, took: map[string][]time.Duration{},
	}
}

// buildSeamark builds the program as users do, without the race detector, and returns its path.
func buildSeamark(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "seamark")
	build := exec.Command("go", "build", "-o", binary, "./cmd/seamark")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building seamark: %v: %s", err, text)
	}
	return binary
}

// text returns a Corefile. Texts with different numbers differ in what is cached.
func (s *soak) text(n int) string {
	keys := func(zone string) string {
		all := zone + ":" + s.ports[""]
		for scheme, port := range s.ports {
			if scheme != "" && scheme != "metrics" {
				all += fmt.Sprintf(" %s://%s:%s", scheme, zone, port)
			}
		}
		return all
	}
	common := " bind 127.0.0.1\n"
	if port := s.ports["metrics"]; port != "" {
		dir := filepath.Dir(s.corefile)
		common += fmt.Sprintf(" tls %s/cert.pem %s/key.pem\n prometheus 127.0.0.1:%s\n", dir, dir, port)
	}
	return fmt.Sprintf(`%[1]s %[2]s {
%[3]s errors
 kubernetes cluster.local in-addr.arpa {
  endpoint %[4]s
 }
}
%[5]s {
%[3]s cache %[6]d
 forward . %[7]s
}
%[8]s {
%[3]s cache %[9]d
 forward . %[10]s
}
`, keys("cluster.local"), keys("in-addr.arpa"), common, s.proxy.URL(),
		keys("healthy.test"), 5+n%5, s.upstream.healthy, keys("failing.test"), 5+n%3, s.upstream.failing)
}

func (s *soak) writeCorefile(text string) {
	s.Helper()
	if err := os.WriteFile(s.corefile, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// query sends queries one after the other until ctx ends.
func (s *soak) query(ctx context.Context, a *account, n int, dial func() (soakConn, error)) {
	_, each, _ := strings.Cut(a.client, " ")
	var conn soakConn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	names := shopNames()
	for i := 0; ctx.Err() == nil; i++ {
		if conn == nil {
			var err error
			if conn, err = dial(); err != nil {
				s.Errorf("%s: %v", a.client, err)
				return
			}
		}
		var got string
		send := func(q lookup) {
			reply, err := conn.exchange(context.WithoutCancel(ctx), q.message())
			got = answer(reply, err)
			a.sent++
			if err != nil {
				a.lost++
				s.Errorf("%s: %s: got error %v, want a reply", a.client, q, err)
				_ = conn.Close()
				conn = nil
			}
		}
		right := false
		var q lookup
		switch i % 8 {
		case 0:
			q = lookupA(fmt.Sprintf("n%d-%d.healthy.test", n, i), "NOERROR 192.0.2.1")
			send(q)
			right = got == q.want
		case 1:
			q = lookupA("same.healthy.test", "NOERROR 192.0.2.1")
			send(q)
			right = got == q.want
		case 2:
			// Not each time: such a query may take seconds.
			if i%80 != 2 {
				continue
			}
			q = lookupA(fmt.Sprintf("n%d-%d.failing.test", n, i), "NOERROR 192.0.2.1")
			send(q)
			right = got == q.want
			if got == "SERVFAIL" {
				a.servfail++
				continue
			}
		case 3:
			q = lookup{"version.shop.svc.cluster.local", dns.TypeCNAME, "a version"}
			least := s.answered.Load()
			send(q)
			var version int64
			if _, err := fmt.Sscanf(got, "NOERROR v%d.example.", &version); err == nil {
				right = least <= version && version <= s.attempted.Load()
				q.want = fmt.Sprintf("v%d to v%d", least, s.attempted.Load())
			}
			for old := s.answered.Load(); version > old && !s.answered.CompareAndSwap(old, version); old = s.answered.Load() {
			}
		case 4:
			q = lookupA("flips.shop.svc.cluster.local", "NOERROR 10.0.7.1 or NXDOMAIN")
			send(q)
			right = got == "NOERROR 10.0.7.1" || got == "NXDOMAIN"
		default:
			q = names[i%len(names)]
			began := time.Now()
			send(q)
			right = got == q.want
			s.watch.answered(a.client, time.Since(began))
		}
		switch {
		case right:
			a.right++
		case conn != nil: // a lost query is counted
			a.wrong++
			s.Errorf("%s: %s: got %s, want %s", a.client, q, got, q.want)
		}
		if each != "" && conn != nil {
			_ = conn.Close()
			conn = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.pause):
		}
	}
}

// change changes two Services until ctx ends. Errors of an API server that is down are
// ignored.
func (s *soak) change(ctx context.Context) {
	services := s.writer.CoreV1().Services("shop")
	for i := int64(1); ctx.Err() == nil; i++ {
		if v, err := services.Get(ctx, "version", metav1.GetOptions{}); err == nil {
			s.attempted.Store(i)
			v.Spec.ExternalName = fmt.Sprintf("v%d.example", i)
			_, _ = services.Update(ctx, v, metav1.UpdateOptions{})
		}
		if i%2 == 0 {
			_, _ = services.Create(ctx, service("flips", "10.0.7.1"), metav1.CreateOptions{})
		} else {
			_ = services.Delete(ctx, "flips", metav1.DeleteOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// round makes one or two faults, ends them, and waits for right answers.
func (s *soak) round() {
	all := s.allFaults()
	var ends []func()
	for range 1 + s.random.IntN(2) {
		f := all[s.random.IntN(len(all))]
		s.faults[f.what]++
		if end := f.begin(); end != nil {
			ends = append(ends, end)
		}
	}
	time.Sleep(time.Duration(100+s.random.IntN(1000)) * time.Millisecond) // the fault's duration
	for _, end := range slices.Backward(ends) {
		end()
	}
	began := time.Now()
	name := fmt.Sprintf("fresh%d", len(s.delays))
	add(s.T, s.writer.CoreV1().Services("shop"), service(name, "10.0.8.1"))
	s.server.await(lookupA(name+".shop.svc.cluster.local", "NOERROR 10.0.8.1"))
	s.delays = append(s.delays, time.Since(began))
	remove(s.T, s.writer.CoreV1().Services("shop"), name)
	s.server.await(lookupA(name+".shop.svc.cluster.local", "NXDOMAIN"))
}

// A soakFault is a fault; begin returns a function that ends it, if it does not end
// by itself.
type soakFault struct {
	what  string
	begin func() (end func())
}

func (s *soak) allFaults() []soakFault {
	faults := func(f Faults) func() func() {
		return func() func() {
			s.proxy.Set(f)
			s.proxy.Cut()
			return func() { s.proxy.Set(Faults{}) }
		}
	}
	upstream := func(f upstreamFault) func() func() {
		return func() func() {
			s.upstream.fault.Store(int32(f))
			return func() { s.upstream.fault.Store(int32(answers)) }
		}
	}
	only := [][]string{nil, {"services"}, {"endpointslices"}, {"namespaces"}}[s.random.IntN(4)]
	return []soakFault{
		{"API requests stall", faults(Faults{Stall: true, Only: only})},
		{"open watches stall", func() func() {
			s.proxy.Set(Faults{Stall: true, Only: only})
			return func() { s.proxy.Set(Faults{}) }
		}},
		{"slow API", faults(Faults{Delay: 200 * time.Millisecond, Only: only})},
		{"401", faults(Faults{Unauthorized: true, Only: only})},
		{"403", faults(Faults{Forbidden: []string{"services"}})},
		{"garbage", faults(Faults{Garbage: true, Only: only})},
		{"cut responses", faults(Faults{CutAfter: 1 + s.random.IntN(2000), Only: only})},
		{"cut connections", func() func() { s.proxy.Cut(); return nil }},
		{"API server down", s.restartAPI},
		{"410", func() func() {
			if err := s.api.Compact(s.Context()); err != nil {
				s.Fatal(err)
			}
			return s.restartAPI()
		}},
		{"upstream silent", upstream(silent)},
		{"upstream late", upstream(late)},
		{"upstream fails", upstream(fails)},
		{"upstream truncates", upstream(truncates)},
		{"upstream sends garbage", upstream(sendsGarbage)},
		{"reload", func() func() {
			s.writeCorefile(s.text(s.random.IntN(100)))
			s.signal(syscall.SIGHUP)
			return nil
		}},
		{"invalid Corefile", func() func() {
			s.writeCorefile(". {\n nonsense\n}\n")
			s.signal(syscall.SIGHUP)
			return nil
		}},
		{"process stopped", func() func() {
			s.signal(syscall.SIGSTOP)
			return func() { s.signal(syscall.SIGCONT) }
		}},
	}
}

func (s *soak) restartAPI() func() {
	s.api.StopAPI()
	return func() {
		if err := s.api.StartAPI(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *soak) signal(sig syscall.Signal) {
	s.Helper()
	if err := s.server.cmd.Process.Signal(sig); err != nil {
		s.Fatal(err)
	}
}

// finish stops clients and changes, compares the answers with the API server's
// objects, and reports.
func (s *soak) finish() {
	s.stop()
	s.tasks.Wait()
	services := s.writer.CoreV1().Services("shop")
	version := must(services.Get(s.Context(), "version", metav1.GetOptions{}))(s.T)
	flips := lookupA("flips.shop.svc.cluster.local", "NXDOMAIN")
	if _, err := services.Get(s.Context(), "flips", metav1.GetOptions{}); err == nil {
		flips.want = "NOERROR 10.0.7.1"
	}
	s.server.await(append(shopNames(), flips,
		lookup{"version.shop.svc.cluster.local", dns.TypeCNAME, "NOERROR " + version.Spec.ExternalName + "."},
		lookupA("again.failing.test", "NOERROR 192.0.2.1"))...)
	for _, a := range s.accounts {
		s.Logf("%-18s %d queries: %d right, %d SERVFAIL of the failing upstream, %d wrong, %d lost",
			a.client, a.sent, a.right, a.servfail, a.wrong, a.lost)
		if a.right < 20 {
			s.Errorf("%s: got %d right answers, want at least 20", a.client, a.right)
		}
	}
	s.Logf("faults: %v", s.faults)
	s.Logf("from the end of a fault to right answers: %s", s.delays)
	s.server.terminate()
}

// The faults of an upstream.
type upstreamFault int32

const (
	answers upstreamFault = iota
	silent
	late
	fails
	truncates // by UDP
	sendsGarbage
)

// A faultyUpstream is two servers that answer 192.0.2.1 for every name. The one at
// failing has the fault.
type faultyUpstream struct {
	healthy, failing string
	fault            atomic.Int32
}

func newFaultyUpstream(t *testing.T) *faultyUpstream {
	t.Helper()
	u := &faultyUpstream{}
	u.healthy = serveDNS(t, func(w dns.ResponseWriter, m *dns.Msg) { _ = w.WriteMsg(u.reply(m)) })
	u.failing = serveDNS(t, func(w dns.ResponseWriter, m *dns.Msg) {
		reply := u.reply(m)
		_, udp := w.RemoteAddr().(*net.UDPAddr)
		switch upstreamFault(u.fault.Load()) {
		case silent:
			return
		case late:
			time.Sleep(300 * time.Millisecond) // the fault
		case fails:
			reply.Rcode, reply.Answer = dns.RcodeServerFailure, nil
		case truncates:
			if udp {
				reply.Truncated, reply.Answer = true, nil
			}
		case sendsGarbage:
			_, _ = w.Write([]byte{byte(m.Id >> 8), byte(m.Id), 0x81, 0x80, 0, 1, 0, 9, 0, 0, 0, 0, 0xC0, 0xC0})
			return
		}
		_ = w.WriteMsg(reply)
	})
	return u
}

func (u *faultyUpstream) reply(m *dns.Msg) *dns.Msg {
	reply := new(dns.Msg).SetReply(m)
	reply.RecursionAvailable = true
	reply.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5},
		A:   net.IPv4(192, 0, 2, 1),
	}}
	return reply
}
