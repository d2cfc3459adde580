package cmd_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// handoverDir returns a directory with a Corefile that has handover, status pages and
// the Service api.
func handoverDir(t *testing.T) (dir, port string) {
	t.Helper()
	dir, port = t.TempDir(), freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(`.:%s {
    bind 127.0.0.1
    handover seamark.sock
    health 127.0.0.1:%s
    kubernetes cluster.local {
        manifests objects
    }
}
`, port, freeport.Reserve(t)))
	if err := os.Mkdir(filepath.Join(dir, "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "objects", "a.yaml"), service)
	return dir, port
}

const service = `apiVersion: v1
kind: Service
metadata: {name: api, namespace: default}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
`

const serviceName = "api.default.svc.cluster.local."

// answers waits until the server at an address has the Service.
func answers(t *testing.T, at string) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("last reply of %s: %s", at, last)
		}
	}()
	chaintest.Eventually(t, "an answer of "+at, func() bool {
		reply, err := ask("udp", at, serviceName, dns.TypeA)
		last = fmt.Sprintf("%v, error %v", reply, err)
		return err == nil && len(reply.Answer) == 1
	})
}

// Process after process takes over from the one before, while clients send queries. No
// query is lost, over UDP, TCP, and persistent connections.
func TestHandoverRestart(t *testing.T) {
	long(t)
	t.Parallel()
	dir, port := handoverDir(t)
	at := "127.0.0.1:" + port
	p := serve(t, dir, "", "-conf", "Corefile", "-pidfile", "pid")
	answers(t, at)
	l := startLoad(t, serviceName, func() string { return at })
	restarts := 0
	for ; !l.done() && !t.Failed(); restarts++ {
		next := serve(t, dir, "", "-conf", "Corefile", "-pidfile", "pid")
		if code := p.exit(); code != 0 {
			t.Fatalf("exit status of the old process: got %d, want 0", code)
		}
		p = next
		l.more(3000)
		if pid, err := os.ReadFile(filepath.Join(dir, "pid")); string(pid) != fmt.Sprintln(p.Process.Pid) {
			t.Errorf("pidfile: got %q, error %v, want %d", pid, err, p.Process.Pid)
		}
	}
	l.wait(restarts)
	for i := range transports {
		if l.counts[i].sent.Load() != l.limit {
			t.Errorf("%s: got %d queries, want %d", transports[i], l.counts[i].sent.Load(), l.limit)
		}
	}
	if n := l.counts[2].connections.Load(); n != 2 {
		t.Errorf("persistent connections: got %d, want 2 that survive every restart", n)
	}
	if restarts < 1 {
		t.Error("no restart")
	}
	p.stop()
	for _, name := range []string{"seamark.sock", "pid"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s after the exit: got error %v, want that it does not exist", name, err)
		}
	}
}

// A process that cannot start leaves the old one as it was: here its Corefile names an
// address that is in use.
func TestHandoverFailedStart(t *testing.T) {
	dir, port := handoverDir(t)
	at := "127.0.0.1:" + port
	p := serve(t, dir, "", "-conf", "Corefile", "-pidfile", "pid")
	answers(t, at)
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	write(t, filepath.Join(dir, "other"), fmt.Sprintf(".:%s {\n bind 127.0.0.1\n handover seamark.sock\n whoami\n}\na.:%d {\n bind 127.0.0.1\n whoami\n}\n", port, used.Addr().(*net.TCPAddr).Port))
	for range 3 {
		if out, stderr, code := run(t, dir, "", "-conf", "other", "-pidfile", "pid"); code != 1 || !strings.Contains(stderr, "address in use") {
			t.Errorf("exit status of the new process: got %d, want 1 and an error about the address\n%s%s", code, out, stderr)
		}
		p.until("Hand-over failed, continuing to serve")
		answers(t, at)
	}
	if pid, err := os.ReadFile(filepath.Join(dir, "pid")); string(pid) != fmt.Sprintln(p.Process.Pid) {
		t.Errorf("pidfile: got %q, error %v, want %d", pid, err, p.Process.Pid)
	}
	next := serve(t, dir, "", "-conf", "Corefile") // the socket still works
	if code := p.exit(); code != 0 {
		t.Errorf("exit status of the old process: got %d, want 0", code)
	}
	next.stop()
}

// The Corefiles may differ: the new process opens the addresses that only its Corefile
// has, and the old one closes the addresses that only its own had. The cache is passed.
func TestHandoverOtherCorefile(t *testing.T) {
	dir, queries := t.TempDir(), atomic.Int64{}
	upstream, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	s := &dns.Server{PacketConn: upstream, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		queries.Add(1)
		r := new(dns.Msg).SetReply(q)
		a, _ := dns.NewRR(q.Question[0].Name + " 300 IN A 192.0.2.1")
		r.Answer = []dns.RR{a}
		_ = w.WriteMsg(r)
	})}
	go func() { defer close(ended); _ = s.ActivateAndServe() }()
	defer func() { upstream.Close(); <-ended }()
	common, old, fresh := freeport.Reserve(t), freeport.Reserve(t), freeport.Reserve(t)
	corefile := func(ports ...string) string {
		text := ""
		for i, port := range ports {
			text += fmt.Sprintf(".:%s {\n bind 127.0.0.1\n cache\n forward . %s\n", port, upstream.LocalAddr())
			if i == 0 {
				text += " handover seamark.sock\n prometheus 127.0.0.1:0\n"
			}
			text += "}\n"
		}
		return text
	}
	resolve := func(network, port string) error {
		reply, err := ask(network, port, "a.example.org.", dns.TypeA)
		if err == nil && len(reply.Answer) != 1 {
			err = fmt.Errorf("got %v, want one address", reply)
		}
		return err
	}
	write(t, filepath.Join(dir, "before"), corefile(common, old))
	write(t, filepath.Join(dir, "after"), corefile(common, fresh))
	p := serve(t, dir, "", "-conf", "before")
	for _, port := range []string{common, old} {
		if err := resolve("udp", port); err != nil {
			t.Fatal(err)
		}
	}
	before := queries.Load()
	next := serve(t, dir, "", "-conf", "after")
	if code := p.exit(); code != 0 {
		t.Errorf("exit status of the old process: got %d, want 0", code)
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, port := range []string{common, fresh} {
			if err := resolve(network, port); err != nil {
				t.Errorf("%s port %s: %v", network, port, err)
			}
		}
		if err := resolve(network, old); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s, the address of the old process only: got %v, want connection refused", network, err)
		}
	}
	if n := queries.Load(); n != before {
		t.Errorf("queries to the upstream: got %d after the hand-over, want none: the cache has the name", n-before)
	}
	next.stop()
}

// With remain the old process ends at a signal.
func TestHandoverRemain(t *testing.T) {
	dir, port := t.TempDir(), freeport.Reserve(t)
	corefile := fmt.Sprintf(".:%s {\n bind 127.0.0.1\n handover seamark.sock {\n  remain\n }\n whoami\n}\n", port)
	p := serve(t, dir, corefile, "-conf", "stdin")
	next := serve(t, dir, corefile, "-conf", "stdin")
	p.until("Handed over, waiting for a signal to end")
	p.stop()
	if reply, err := ask("udp", port, "a.", dns.TypeA); err != nil || reply.Rcode != dns.RcodeSuccess {
		t.Errorf("a. A: got %v, error %v, want an answer of the new process", reply, err)
	}
	next.stop()
}

// Processes that start at once take over from each other, and one remains.
func TestHandoverConcurrentStarts(t *testing.T) {
	dir, port := handoverDir(t)
	var running []*process
	var mu sync.Mutex
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			p := serve(t, dir, "", "-conf", "Corefile")
			mu.Lock()
			defer mu.Unlock()
			running = append(running, p)
		})
	}
	starts.Wait()
	if len(running) != 4 {
		t.FailNow()
	}
	ended := func() (n int) {
		for _, p := range running {
			select {
			case <-p.done:
				n++
			default:
			}
		}
		return n
	}
	chaintest.Eventually(t, "three processes end", func() bool { return ended() == 3 })
	answers(t, "127.0.0.1:"+port)
	for _, p := range running {
		select {
		case <-p.done:
			if code := p.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit status of a process that was replaced: got %d, want 0", code)
			}
		default:
			p.stop()
		}
	}
}

// A process that was killed has its addresses for a moment longer than its socket for successors.
func TestHandoverKilledHasAddress(t *testing.T) {
	dir, port := handoverDir(t)
	path := filepath.Join(dir, "seamark.sock")
	socket, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	socket.SetUnlinkOnClose(false)
	_ = socket.Close()
	held, err := net.ListenPacket("udp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}

	p := launch(t, program.Command(t, dir, "-conf", "Corefile"), os.Stderr, "")
	p.until("trying again")
	_ = held.Close()
	p.greeting()
	answers(t, "127.0.0.1:"+port)
	p.stop()
}

// Whenever one of the two processes is killed, the other one answers.
func TestHandoverKilled(t *testing.T) {
	long(t)
	t.Parallel()
	for _, victim := range []string{"new", "old"} {
		t.Run(victim, func(t *testing.T) {
			dir, port := handoverDir(t)
			random := rand.New(rand.NewPCG(1, 2))
			p := serve(t, dir, "", "-conf", "Corefile")
			answers(t, "127.0.0.1:"+port)
			failures, replaced := 0, 0
			for range 8 {
				next := program.Command(t, dir, "-conf", "Corefile")
				next.Stdout, next.Stderr = io.Discard, io.Discard
				if err := next.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(random.Int64N(int64(150 * time.Millisecond)))) // the moment of the failure
				switch victim {
				case "old":
					_ = p.Process.Kill()
					<-p.done
					answers(t, "127.0.0.1:"+port)
					p = serve(t, dir, "", "-conf", "Corefile") // takes over from the new one
					if err := next.Wait(); err != nil {
						t.Errorf("the process that was replaced: %v", err)
					}
				case "new":
					_ = next.Process.Kill()
					_ = next.Wait()
					failures++
					chaintest.Eventually(t, "an answer of the old process, or its end", func() bool {
						select {
						case <-p.done: // it was replaced before the new process was killed
							if code := p.ProcessState.ExitCode(); code != 0 {
								t.Errorf("exit status of the process that was replaced: got %d, want 0", code)
							}
							replaced++
							p = serve(t, dir, "", "-conf", "Corefile")
						default:
						}
						reply, err := ask("udp", port, serviceName, dns.TypeA)
						return err == nil && len(reply.Answer) == 1
					})
				}
			}
			t.Logf("%d failures; the process was replaced before %d of them", failures, replaced)
			p.stop()
		})
	}
}
