package sidecar

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/operate/query"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
)

func TestStatisticsPoll(t *testing.T) {
	var c fakeDnsmasq
	log, lines := bufferLog()
	r := new(metrics.Registry)
	s := newStatistics(listen(t, c.reply), r, "kubedns", log)
	poll := func(want ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.poll(ctx)
		wantLines(t, metricsText(t, r), want...)
	}
	wantLines(t, metricsText(t, r), "kubedns_dnsmasq_hits 0", "kubedns_dnsmasq_misses 0", "kubedns_dnsmasq_evictions 0", "kubedns_dnsmasq_insertions 0",
		"kubedns_dnsmasq_max_size 0", "kubedns_dnsmasq_errors 0")

	c.set(map[string]uint64{"hits": 10, "misses": 20, "evictions": 30, "insertions": 40, "cachesize": 1000})
	poll("kubedns_dnsmasq_hits 10", "kubedns_dnsmasq_misses 20", "kubedns_dnsmasq_evictions 30", "kubedns_dnsmasq_insertions 40",
		"kubedns_dnsmasq_max_size 1000", "kubedns_dnsmasq_errors 0",
		"# TYPE kubedns_dnsmasq_hits counter", "# TYPE kubedns_dnsmasq_misses counter", "# TYPE kubedns_dnsmasq_evictions counter",
		"# TYPE kubedns_dnsmasq_insertions counter", "# TYPE kubedns_dnsmasq_max_size gauge", "# TYPE kubedns_dnsmasq_errors counter")
	poll("kubedns_dnsmasq_hits 10", "kubedns_dnsmasq_insertions 40")

	c.set(map[string]uint64{"hits": 11, "misses": 22, "evictions": 33, "insertions": 44, "cachesize": 500})
	poll("kubedns_dnsmasq_hits 11", "kubedns_dnsmasq_misses 22", "kubedns_dnsmasq_evictions 33", "kubedns_dnsmasq_insertions 44",
		"kubedns_dnsmasq_max_size 500")

	// Lower values after a restart.
	c.set(map[string]uint64{"hits": 5, "misses": 0, "evictions": 32, "insertions": 1, "cachesize": 500})
	poll("kubedns_dnsmasq_hits 16", "kubedns_dnsmasq_misses 22", "kubedns_dnsmasq_evictions 65", "kubedns_dnsmasq_insertions 45")

	// One invalid value discards the poll.
	for i, invalid := range []string{"", "-1", "1.5", "many", "18446744073709551616"} {
		c.set(map[string]uint64{"hits": 100, "misses": 100, "evictions": 100, "insertions": 100, "cachesize": 9})
		c.setText("insertions", invalid)
		poll("kubedns_dnsmasq_hits 16", "kubedns_dnsmasq_insertions 45", "kubedns_dnsmasq_max_size 500", fmt.Sprintf("kubedns_dnsmasq_errors %d", i+1))
	}
	c.set(map[string]uint64{"hits": 100, "misses": 100, "evictions": 100, "insertions": 100, "cachesize": 9})
	poll("kubedns_dnsmasq_hits 111", "kubedns_dnsmasq_misses 122", "kubedns_dnsmasq_evictions 133", "kubedns_dnsmasq_insertions 144",
		"kubedns_dnsmasq_max_size 9", "kubedns_dnsmasq_errors 5")

	if got := strings.Count(lines.String(), "\n"); got != 3 {
		t.Errorf("%d log lines, want 3 (first success, first failure, next success):\n%s", got, lines)
	}
	if !strings.Contains(lines.String(), "insertions.bind.: ") || !strings.Contains(lines.String(), "REFUSED without a TXT record") {
		t.Errorf("got log\n%s\nwant insertions.bind. and a REFUSED reply in it", lines)
	}
}

// Each poll counts one failure if the server is not dnsmasq.
func TestStatisticsInvalidReplies(t *testing.T) {
	for name, r := range map[string]reply{
		"no reply": silence,
		"garbage":  func(*dns.Msg, string) [][]byte { return [][]byte{[]byte("hits")} },
		"another ID": func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Id++ }, m.Question[0].Name+" CH TXT 1")}
		},
		"A record": func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, nil, m.Question[0].Name+" CH A 192.0.2.1")}
		},
		"another name": always("version.bind. CH TXT 1"),
	} {
		t.Run(name, func(t *testing.T) {
			log, _ := bufferLog()
			registry := new(metrics.Registry)
			s := newStatistics(listen(t, r), registry, "", log)
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				s.poll(ctx)
				cancel()
			}
			wantLines(t, metricsText(t, registry), "dnsmasq_errors 2", "dnsmasq_hits 0", "dnsmasq_max_size 0")
		})
	}
}

// The counters of the real dnsmasq survive SIGHUP, which resets some of them, and a
// restart.
func TestStatisticsRealDnsmasq(t *testing.T) {
	program := debian.Program(t, "dnsmasq")
	upstream := listen(t, func(m *dns.Msg, _ string) [][]byte {
		return [][]byte{pack(m, nil, m.Question[0].Name+" 300 IN A 192.0.2.1")}
	})
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("192.0.2.9 written.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	port := freeport.Reserve(t)
	addr := net.JoinHostPort("127.0.0.1", port)
	start := func() *exec.Cmd {
		host, upstreamPort, _ := net.SplitHostPort(upstream)
		args := []string{"-k", "-C", "/dev/null", "--pid-file=", "--log-facility=-", "--no-resolv", "--no-hosts", "--addn-hosts=" + hosts,
			"--listen-address=127.0.0.1", "--bind-interfaces", "--port=" + port, "--cache-size=1234", "--server=" + host + "#" + upstreamPort}
		if os.Getuid() == 0 {
			args = append(args, "--user=root")
		}
		c := exec.CommandContext(t.Context(), program, args...)
		c.Stderr = os.Stderr
		if !testing.Verbose() {
			c.Stderr = nil
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	stop := func(c *exec.Cmd) {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	ask := func(names ...string) {
		t.Helper()
		for _, name := range names {
			m := new(dns.Msg)
			m.SetQuestion(name, dns.TypeA)
			if reply, err := query.Exchange(t.Context(), addr, m); err != nil || len(reply.Answer) != 1 {
				t.Fatalf("query %s: got %v, error %v, want one record", name, reply, err)
			}
		}
	}
	log, _ := bufferLog()
	r := new(metrics.Registry)
	s := newStatistics(addr, r, "kubedns", log)
	value := func(i int) uint64 { return s.counters[i].Value() }
	const hits, misses, insertions = 0, 1, 3
	ready := func() {
		t.Helper()
		for range 6000 {
			ctx, cancel := context.WithTimeout(t.Context(), query.Timeout)
			_, err := s.query(ctx, sizeName)
			cancel()
			if err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatal("dnsmasq does not answer after 6000 attempts")
	}

	d := start()
	defer func() { stop(d) }()
	ready()
	ask("a.example.", "b.example.", "c.example.", "a.example.", "b.example.", "written.example.")
	s.poll(t.Context())
	wantLines(t, metricsText(t, r), "kubedns_dnsmasq_max_size 1234", "kubedns_dnsmasq_misses 3", "kubedns_dnsmasq_errors 0")
	if value(hits) < 3 || value(insertions) < 3 {
		t.Errorf("got %d hits and %d insertions, want at least 3 of each", value(hits), value(insertions))
	}

	// SIGHUP empties the cache and resets insertions, not misses.
	inserted := value(insertions)
	if err := d.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		n, err := s.query(t.Context(), counters[insertions].name)
		if err != nil || i == 6000 {
			t.Fatalf("got %d insertions after SIGHUP (error %v), want fewer than %d", n, err, s.last[insertions])
		}
		if n < s.last[insertions] {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	ask("a.example.")
	s.poll(t.Context())
	wantLines(t, metricsText(t, r), "kubedns_dnsmasq_misses 4")
	if value(insertions) <= inserted {
		t.Errorf("got %d insertions after SIGHUP, want more than %d", value(insertions), inserted)
	}

	// The counters keep their values while dnsmasq is down.
	stop(d)
	s.poll(t.Context())
	wantLines(t, metricsText(t, r), "kubedns_dnsmasq_misses 4", "kubedns_dnsmasq_max_size 1234", "kubedns_dnsmasq_errors 1")
	d = start()
	ready()
	ask("a.example.", "d.example.")
	s.poll(t.Context())
	wantLines(t, metricsText(t, r), "kubedns_dnsmasq_misses 6", "kubedns_dnsmasq_errors 1")
}
