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
)

func TestStatistics(t *testing.T) {
	var c cache
	log, lines := quiet()
	r := new(metrics.Registry)
	s := newStatistics(listen(t, c.reply), r, "kubedns", log)
	turn := func(wait time.Duration, want ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		s.poll(ctx)
		wants(t, shown(t, r), want...)
	}
	const right = 10 * time.Second
	wants(t, shown(t, r), "kubedns_dnsmasq_hits 0", "kubedns_dnsmasq_misses 0", "kubedns_dnsmasq_evictions 0", "kubedns_dnsmasq_insertions 0",
		"kubedns_dnsmasq_max_size 0", "kubedns_dnsmasq_errors 0")

	c.say(map[string]uint64{"hits": 10, "misses": 20, "evictions": 30, "insertions": 40, "cachesize": 1000})
	turn(right, "kubedns_dnsmasq_hits 10", "kubedns_dnsmasq_misses 20", "kubedns_dnsmasq_evictions 30", "kubedns_dnsmasq_insertions 40",
		"kubedns_dnsmasq_max_size 1000", "kubedns_dnsmasq_errors 0",
		"# TYPE kubedns_dnsmasq_hits counter", "# TYPE kubedns_dnsmasq_misses counter", "# TYPE kubedns_dnsmasq_evictions counter",
		"# TYPE kubedns_dnsmasq_insertions counter", "# TYPE kubedns_dnsmasq_max_size gauge", "# TYPE kubedns_dnsmasq_errors counter")
	turn(right, "kubedns_dnsmasq_hits 10", "kubedns_dnsmasq_insertions 40")

	c.say(map[string]uint64{"hits": 11, "misses": 22, "evictions": 33, "insertions": 44, "cachesize": 500})
	turn(right, "kubedns_dnsmasq_hits 11", "kubedns_dnsmasq_misses 22", "kubedns_dnsmasq_evictions 33", "kubedns_dnsmasq_insertions 44",
		"kubedns_dnsmasq_max_size 500")

	// It has been restarted: what it counts begins again.
	c.say(map[string]uint64{"hits": 5, "misses": 0, "evictions": 32, "insertions": 1, "cachesize": 500})
	turn(right, "kubedns_dnsmasq_hits 16", "kubedns_dnsmasq_misses 22", "kubedns_dnsmasq_evictions 65", "kubedns_dnsmasq_insertions 45")

	// A round with one wrong answer counts nothing but the failure.
	for i, wrong := range []string{"", "-1", "1.5", "many", "18446744073709551616"} {
		c.say(map[string]uint64{"hits": 100, "misses": 100, "evictions": 100, "insertions": 100, "cachesize": 9})
		c.put("insertions", wrong)
		turn(right, "kubedns_dnsmasq_hits 16", "kubedns_dnsmasq_insertions 45", "kubedns_dnsmasq_max_size 500", fmt.Sprintf("kubedns_dnsmasq_errors %d", i+1))
	}
	c.say(map[string]uint64{"hits": 100, "misses": 100, "evictions": 100, "insertions": 100, "cachesize": 9})
	turn(right, "kubedns_dnsmasq_hits 111", "kubedns_dnsmasq_misses 122", "kubedns_dnsmasq_evictions 133", "kubedns_dnsmasq_insertions 144",
		"kubedns_dnsmasq_max_size 9", "kubedns_dnsmasq_errors 5")

	if got := strings.Count(lines.String(), "\n"); got != 3 {
		t.Errorf("%d lines in the log, want those of the first success, the first failure and the end of failures:\n%s", got, lines)
	}
	if !strings.Contains(lines.String(), "insertions.bind.: ") || !strings.Contains(lines.String(), "REFUSED without a TXT record") {
		t.Errorf("the log is\n%s", lines)
	}
}

// A dnsmasq that says nothing, or another thing, is a failure once per round.
func TestStatisticsOfNobody(t *testing.T) {
	for name, r := range map[string]reply{
		"silence": silence,
		"garbage": func(*dns.Msg, string) [][]byte { return [][]byte{[]byte("hits")} },
		"ids": func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Id++ }, m.Question[0].Name+" CH TXT 1")}
		},
		"address": func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, nil, m.Question[0].Name+" CH A 192.0.2.1")}
		},
		"name": always("version.bind. CH TXT 1"),
	} {
		t.Run(name, func(t *testing.T) {
			log, _ := quiet()
			registry := new(metrics.Registry)
			s := newStatistics(listen(t, r), registry, "", log)
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				s.poll(ctx)
				cancel()
			}
			wants(t, shown(t, registry), "dnsmasq_errors 2", "dnsmasq_hits 0", "dnsmasq_max_size 0")
		})
	}
}

// What the real dnsmasq says is counted, over a SIGHUP, which sets back some of its
// numbers, and over its end.
func TestRealDnsmasq(t *testing.T) {
	program, err := exec.LookPath("dnsmasq")
	if err != nil {
		if program = "/usr/sbin/dnsmasq"; !runs(program) {
			if os.Getenv("SEAMARK_TEST_DNSMASQ") != "" {
				t.Fatal("there is no dnsmasq: install Debian's dnsmasq-base, or your system's like")
			}
			t.Skip("there is no dnsmasq") // CI does not let this pass
		}
	}
	upstream := listen(t, func(m *dns.Msg, _ string) [][]byte {
		return [][]byte{pack(m, nil, m.Question[0].Name+" 300 IN A 192.0.2.1")}
	})
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("192.0.2.9 written.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
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
			if reply, err := exchange(t.Context(), addr, m); err != nil || len(reply.Answer) != 1 {
				t.Fatalf("%s: %v, %v", name, reply, err)
			}
		}
	}
	log, _ := quiet()
	r := new(metrics.Registry)
	s := newStatistics(addr, r, "kubedns", log)
	value := func(i int) uint64 { return s.counters[i].Value() }
	const hits, misses, insertions = 0, 1, 3
	ready := func() {
		t.Helper()
		for range 500 {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			_, err := s.ask(ctx, sizeName)
			cancel()
			if err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatal("dnsmasq does not start")
	}

	d := start()
	defer func() { stop(d) }()
	ready()
	ask("a.example.", "b.example.", "c.example.", "a.example.", "b.example.", "written.example.")
	s.poll(t.Context())
	wants(t, shown(t, r), "kubedns_dnsmasq_max_size 1234", "kubedns_dnsmasq_misses 3", "kubedns_dnsmasq_errors 0")
	if value(hits) < 3 || value(insertions) < 3 {
		t.Errorf("%d hits, %d insertions", value(hits), value(insertions))
	}

	// SIGHUP empties the cache and sets back insertions, not misses.
	inserted := value(insertions)
	if err := d.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		n, err := s.ask(t.Context(), counted[insertions].name)
		if err != nil || i == 500 {
			t.Fatalf("%d insertions 5 seconds after SIGHUP, %v", n, err)
		}
		if n < s.last[insertions] {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	ask("a.example.")
	s.poll(t.Context())
	wants(t, shown(t, r), "kubedns_dnsmasq_misses 4")
	if value(insertions) <= inserted {
		t.Errorf("%d insertions after %d", value(insertions), inserted)
	}

	// While it is away the numbers stand.
	stop(d)
	s.poll(t.Context())
	wants(t, shown(t, r), "kubedns_dnsmasq_misses 4", "kubedns_dnsmasq_max_size 1234", "kubedns_dnsmasq_errors 1")
	d = start()
	ready()
	ask("a.example.", "d.example.")
	s.poll(t.Context())
	wants(t, shown(t, r), "kubedns_dnsmasq_misses 6", "kubedns_dnsmasq_errors 1")
}

func runs(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// freePort is one that nobody listens on, by UDP and TCP, for the moment.
func freePort(t *testing.T) string {
	t.Helper()
	for range 20 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		tcp.Close()
		if err == nil {
			udp.Close()
			_, port, _ := net.SplitHostPort(tcp.Addr().String())
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}
