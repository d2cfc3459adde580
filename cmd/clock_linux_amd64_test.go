package cmd_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
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

// A countingUpstream answers every A query with a TTL of a minute, names that begin with
// short with one of five seconds, and none while it is silent.
type countingUpstream struct {
	address string
	count   atomic.Int64
	silent  atomic.Bool
}

func startCountingUpstream(t *testing.T) *countingUpstream {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &countingUpstream{address: conn.LocalAddr().String()}
	s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if u.silent.Load() {
			return
		}
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			u.count.Add(1)
			ttl := 60
			if strings.HasPrefix(strings.ToLower(q.Question[0].Name), "short") {
				ttl = 5
			}
			rr, _ := dns.NewRR(fmt.Sprintf("%s %d A 192.0.2.1", q.Question[0].Name, ttl))
			m.Answer = append(m.Answer, rr)
		}
		_ = w.WriteMsg(m)
	})}
	var running sync.WaitGroup
	running.Go(func() { _ = s.ActivateAndServe() })
	t.Cleanup(func() { conn.Close(); running.Wait() })
	return u
}

// A clockServer is a server with a cache, an upstream, and a hosts file whose metric shows the
// system's clock.
type clockServer struct {
	*process
	*testing.T
	upstream *countingUpstream
	hosts    string
	metrics  string
}

func newClockServer(t *testing.T) *clockServer {
	dir := t.TempDir()
	s := &clockServer{T: t, upstream: startCountingUpstream(t), hosts: filepath.Join(dir, "hosts"), metrics: "127.0.0.1:" + freeport.Reserve(t)}
	write(t, s.hosts, "192.0.2.2 own.example.org\n")
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(
		".:0 {\n bind 127.0.0.1\n prometheus %s\n hosts %s {\n  fallthrough\n }\n cache\n forward . %s {\n  health_check 100ms\n }\n}\n", s.metrics, s.hosts, s.upstream.address))
	s.process = serve(t, dir, "", "-conf", "Corefile")
	return s
}

// ttl returns the TTL of the only record of a name, or a negative number without one.
func (s *clockServer) ttl(name string) int {
	reply, err := ask("udp", s.ports[0], name, dns.TypeA)
	if err != nil || len(reply.Answer) != 1 {
		return -1
	}
	return int(reply.Answer[0].Header().Ttl)
}

// now returns the time at which, by its own clock, the server has read the hosts file,
// which has changed.
func (s *clockServer) now() time.Time {
	s.Helper()
	name := fmt.Sprintf("h%d.example.org", time.Now().UnixNano())
	write(s.T, s.hosts, "192.0.2.2 own.example.org\n192.0.2.3 "+name+"\n")
	chaintest.Eventually(s.T, "the changed hosts file", func() bool { return s.ttl(name+".") == 3600 })
	reply, err := http.Get("http://" + s.metrics + "/metrics")
	if err != nil {
		s.Fatal(err)
	}
	defer reply.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(reply.Body)
	_, after, _ := strings.Cut(text.String(), "\ncoredns_hosts_reload_timestamp_seconds ")
	value, _, _ := strings.Cut(after, "\n")
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil {
		s.Fatalf("coredns_hosts_reload_timestamp_seconds: %v in\n%s", err, &text)
	}
	return time.Unix(int64(seconds), 0)
}

// check compares the TTL of a cached name with the time since it was cached, and checks that
// the upstream is neither asked again nor considered down. A name expires, and failure and
// recovery of the upstream are noticed.
func (s *clockServer) check(cached string, since time.Time) {
	s.Helper()
	before := s.upstream.count.Load()
	earliest := time.Since(since)
	got := s.ttl(cached)
	latest := time.Since(since)
	if least, most := 60-int(latest.Seconds())-1, 60-int(earliest.Seconds()); got < least || got > most || s.upstream.count.Load() != before {
		s.Errorf("%s A: got TTL %d, and %d queries to the upstream; want a TTL from %d to %d from the cache", cached, got, s.upstream.count.Load()-before, least, most)
	}
	if got := s.ttl("new.example."); got != 60 {
		s.Errorf("a new name: got TTL %d, want 60", got)
	}
	const short = "short.example."
	if got := s.ttl(short); got != 5 {
		s.Errorf("%s: got TTL %d, want 5", short, got)
	}
	before, start := s.upstream.count.Load(), time.Now()
	chaintest.Eventually(s.T, short+" to expire", func() bool { return s.ttl(short) > 0 && s.upstream.count.Load() > before })
	if took := time.Since(start); took < 4*time.Second {
		s.Errorf("%s with a TTL of 5 s expired after %v", short, took)
	}
	s.upstream.silent.Store(true)
	failed := false
	chaintest.Eventually(s.T, "the upstream to be considered down", func() bool {
		begin := time.Now()
		failed = failed || s.ttl(fmt.Sprintf("down%d.example.", begin.UnixNano())) < 0
		return failed && time.Since(begin) < 100*time.Millisecond
	})
	s.upstream.silent.Store(false)
	chaintest.Eventually(s.T, "the upstream to be considered up", func() bool {
		return s.ttl(fmt.Sprintf("up%d.example.", time.Now().UnixNano())) == 60
	})
}

// Steps of the system's clock, of an hour in both directions, change no TTL, expiry or health
// check.
func TestClockSteps(t *testing.T) {
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			s := newClockServer(t)
			defer s.stop()
			step := program.StepClock(t, s.Process.Pid)
			const cached = "cached.example."
			since := time.Now()
			if got := s.ttl(cached); got != 60 {
				t.Fatalf("%s: got TTL %d, want 60", cached, got)
			}
			step(d)
			if off := time.Until(s.now()) - d; off.Abs() > time.Minute {
				t.Fatalf("after a step of %v: the clock of the process is off by %v", d, off)
			}
			s.check(cached, since)
		})
	}
}

// A process that was stopped, for a minute in make soak, continues with TTLs that are right,
// and asks its upstream.
func TestStoppedProcess(t *testing.T) {
	long(t)
	t.Parallel()
	duration := 3 * time.Second
	if os.Getenv("SOAK") != "" {
		duration = time.Minute
	}
	s := newClockServer(t)
	defer s.stop()
	const expired = "expired.example."
	if got := s.ttl(expired); got != 60 {
		t.Fatalf("%s: got TTL %d, want 60", expired, got)
	}
	s.signal(syscall.SIGSTOP)
	program.AwaitState(t, s.Process.Pid, "T")
	start := time.Now()
	<-time.After(duration) // the process is to be stopped for so long
	s.signal(syscall.SIGCONT)
	if got, most := s.ttl(expired), 60-int(time.Since(start).Seconds()); duration < time.Minute && got > most || got <= 0 || duration >= time.Minute && got != 60 {
		t.Errorf("%s, after %v: got TTL %d, want at most %d, or 60 from the upstream", expired, duration, got, most)
	}
	since := time.Now()
	if got := s.ttl("cached.example."); got != 60 {
		t.Errorf("cached.example.: got TTL %d, want 60", got)
	}
	s.check("cached.example.", since)
}
