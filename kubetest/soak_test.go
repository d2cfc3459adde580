package kubetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
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
	"github.com/seamark/seamark/test/freeport"
)

// TestSoak runs the server's binary between an API server, two upstreams and four
// clients, and makes everything around it fail in an order that a seed determines:
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
// the test logs.
func TestSoak(t *testing.T) {
	duration, seed := 8*time.Second, uint64(time.Now().UnixNano())
	if text := os.Getenv("SOAK"); text != "" {
		duration = must(time.ParseDuration(text))(t)
	}
	if text := os.Getenv("SOAK_SEED"); text != "" {
		seed = must(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("SOAK=%v SOAK_SEED=%d", duration, seed)
	s := newSoak(t, seed)
	for end := time.Now().Add(duration); time.Now().Before(end) && !t.Failed(); {
		s.round()
	}
	s.finish()
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
	corefile string

	attempted atomic.Int64 // the newest version that may be in the API server
	answered  atomic.Int64 // the newest version in an answer

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

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{T: t, random: rand.New(rand.NewPCG(seed, 0)), api: start(t), faults: map[string]int{}}
	s.writer = writer(t, s.api)
	s.writer.shop()
	add(t, s.writer.CoreV1().Services("shop"), external("version", "v0.example"))
	s.proxy = must(NewProxy(s.api))(t)
	t.Cleanup(s.proxy.Close)
	s.upstream = newFaultyUpstream(t)
	s.corefile = filepath.Join(t.TempDir(), "Corefile")
	s.writeCorefile(s.text(0))
	port := freeport.Reserve(t)
	s.server = program(t, "127.0.0.1:"+port, "seamark", nil, "serve", "--listen", "127.0.0.1:"+port, "--conf", s.corefile)
	s.server.await(shopNames()...)

	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	t.Cleanup(func() { stop(); s.tasks.Wait() })
	for i, client := range []string{"udp", "tcp", "udp new socket", "tcp new connection"} {
		a := &account{client: client}
		s.accounts = append(s.accounts, a)
		s.tasks.Go(func() { s.query(ctx, a, i) })
	}
	s.tasks.Go(func() { s.change(ctx) })
	return s
}

// text returns a Corefile. Texts with different numbers differ in what is cached.
func (s *soak) text(n int) string {
	return fmt.Sprintf(`cluster.local in-addr.arpa {
 errors
 kubernetes cluster.local in-addr.arpa {
  endpoint %s
 }
}
healthy.test {
 cache %d
 forward . %s
}
failing.test {
 cache %d
 forward . %s
}
`, s.proxy.URL(), 5+n%5, s.upstream.healthy, 5+n%3, s.upstream.failing)
}

func (s *soak) writeCorefile(text string) {
	s.Helper()
	if err := os.WriteFile(s.corefile, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// query sends queries one after the other until ctx ends.
func (s *soak) query(ctx context.Context, a *account, n int) {
	network, each, _ := strings.Cut(a.client, " ")
	// A forward to an upstream that fails takes up to five seconds.
	client := &dns.Client{Net: network, Timeout: 4 * replyTime}
	var conn *dns.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	names := shopNames()
	for i := 0; ctx.Err() == nil; i++ {
		if conn == nil {
			var err error
			if conn, err = client.Dial(s.server.at); err != nil {
				s.Errorf("%s: %v", a.client, err)
				return
			}
		}
		var got string
		send := func(q lookup) {
			reply, _, err := client.ExchangeWithConn(q.message(), conn)
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
			send(q)
			right = got == q.want
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
		case <-time.After(time.Millisecond): // a load, not a flood
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
