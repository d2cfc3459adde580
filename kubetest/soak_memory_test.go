package kubetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/memorygroup"
)

// TestSoakMemory runs the server in a memory control group of 64 MB with 10,000
// Services and 150,000 endpoints, while the API server restarts without its history,
// the Corefile is reloaded, clients query 3,000 names a second of a silent upstream and
// others send 20,000 queries a second whose replies they do not read. The server must
// neither be killed nor give a wrong answer; queries may be lost, since the kernel drops
// some of a flood.
//
// It takes a minute and SOAK, and needs root, so it runs with `make soak` alone.
func TestSoakMemory(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("it takes minutes; make soak runs it")
	}
	duration := must(time.ParseDuration(os.Getenv("SOAK")))(t)
	group := memorygroup.New(t, 64<<20)
	binary := buildSeamark(t)
	s := &soak{T: t, api: start(t), upstream: newFaultyUpstream(t), ports: map[string]string{"": freeport.Reserve(t)}}
	s.upstream.fault.Store(int32(silent))
	s.writer = writer(t, s.api)
	s.writer.shop()
	s.writer.largeCluster()
	s.proxy = must(NewProxy(s.api))(t)
	t.Cleanup(s.proxy.Close)
	s.corefile = filepath.Join(t.TempDir(), "Corefile")
	s.writeCorefile(s.text(0))
	at := "127.0.0.1:" + s.ports[""]
	s.server = runInGroup(t, group, at, binary, "serve", "--conf", s.corefile)
	s.server.await(shopNames()...)
	t.Logf("with %d Services: %s", largeServices, group)

	ctx, stop := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	var attack, flood atomic.Int64
	for i := range 10 {
		tasks.Go(func() {
			s.flood(ctx, i, 300, &attack, func(n int) string { return fmt.Sprintf("n%d-%d.failing.test.", i, n) })
		})
	}
	for i := range 4 {
		tasks.Go(func() {
			s.flood(ctx, 100+i, 5000, &flood, func(n int) string { return "web.shop.svc.cluster.local." })
		})
	}
	asked, lost := 0, 0
	random := rand.New(rand.NewPCG(1, 0))
	nextRestart := time.Now().Add(5 * time.Second)
	client := &dns.Client{Timeout: time.Second}
	for end := time.Now().Add(duration); time.Now().Before(end); {
		s.writeCorefile(s.text(random.IntN(100)))
		s.signal(syscall.SIGHUP)
		for _, q := range shopNames() {
			reply, _, err := client.Exchange(q.message(), at)
			asked++
			if err != nil {
				lost++
			} else if got := answer(reply, nil); got != q.want {
				t.Errorf("%s: got %s, want %s", q, got, q.want)
			}
		}
		if time.Now().After(nextRestart) {
			if err := s.api.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.restartAPI()()
			nextRestart = time.Now().Add(20 * time.Second)
		}
		select {
		case <-s.server.ended:
			t.Fatalf("the server ended, want it to run: %s", group)
		case <-time.After(time.Second):
		}
	}
	t.Logf("sent %d queries for the silent upstream and %d others; of %d queries that waited for a reply, %d got none; %s",
		attack.Load(), flood.Load(), asked, lost, group)
	if lost == asked {
		t.Errorf("none of %d queries was answered, want some", asked)
	}
	stop()
	tasks.Wait()
	s.server.await(shopNames()...)
	t.Logf("afterwards: %s", group)
	s.server.terminate()
}

// largeServices is the number of Services of a large cluster.
const largeServices = 10000

// largeCluster creates 9,000 Services with a cluster IP and ten endpoints each, and
// 1,000 headless ones with sixty.
func (w clusterWriter) largeCluster() {
	w.Helper()
	for i := range 50 {
		add(w.T, w.CoreV1().Namespaces(), namespace(fmt.Sprintf("ns%d", i)))
	}
	var next atomic.Int64
	var writers sync.WaitGroup
	for range 32 {
		writers.Go(func() {
			for i := int(next.Add(1)); i <= largeServices && !w.Failed(); i = int(next.Add(1)) {
				if err := w.largeService(i); err != nil {
					w.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if w.Failed() {
		w.FailNow()
	}
}

func (w clusterWriter) largeService(i int) error {
	ns, name, n := fmt.Sprintf("ns%d", i%50), fmt.Sprintf("svc%d", i), 10
	var ips []string
	if i%10 == 0 {
		n = 60
	} else {
		ips = []string{fmt.Sprintf("10.64.%d.%d", i/250, i%250)}
	}
	endpoints := make([]string, n)
	for j := range endpoints {
		endpoints[j] = fmt.Sprintf("10.%d.%d.%d", 128+i/250, i%250, j)
	}
	_, err := w.CoreV1().Services(ns).Create(w.Context(), service(name, ips...), metav1.CreateOptions{})
	if err == nil {
		_, err = w.DiscoveryV1().EndpointSlices(ns).Create(w.Context(), slice(name+"-1", name, endpoints...), metav1.CreateOptions{})
	}
	return err
}

// flood sends queries from an address of its own and does not read the replies.
func (s *soak) flood(ctx context.Context, from, rate int, sent *atomic.Int64, name func(int) string) {
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 2, byte(from))}}
	conn, err := d.Dial("udp", s.server.at)
	if err != nil {
		s.Error(err)
		return
	}
	defer conn.Close()
	const perTick = 100 // ticks in a second
	tick := time.NewTicker(time.Second / perTick)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for range rate / perTick {
			packet, err := new(dns.Msg).SetQuestion(name(n), dns.TypeA).Pack()
			if err != nil {
				s.Error(err)
				return
			}
			n++
			if _, err := conn.Write(packet); err == nil {
				sent.Add(1)
			}
		}
	}
}

// runInGroup runs a program in a control group until the test ends.
func runInGroup(t *testing.T, g *memorygroup.Group, at, binary string, args ...string) *process {
	t.Helper()
	p := &process{daemon: &daemon{T: t, at: at}, ended: make(chan error, 1)}
	p.cmd = exec.Command(binary, args...)
	g.Add(p.cmd)
	p.startCommand("seamark")
	return p
}
