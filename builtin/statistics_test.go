package builtin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/compat/sidecar"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
)

// A counted is a server with dnsmasq's statistics.
type counted struct {
	t    *testing.T
	addr string
	own  int // queries for statistics so far, which count as hits
}

// texts returns the answer for NAME.bind.
func (c *counted) texts(name string) []string {
	c.t.Helper()
	m := new(dns.Msg).SetQuestion(name+".bind.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	reply, _, err := (&dns.Client{Timeout: patience}).Exchange(m, c.addr)
	if err != nil || len(reply.Answer) != 1 {
		c.t.Fatalf("%s.bind: got error %v, reply %v; want TXT records", name, err, reply)
	}
	c.own++
	return reply.Answer[0].(*dns.TXT).Txt
}

func (c *counted) number(name string) int {
	c.t.Helper()
	texts := c.texts(name)
	n, err := strconv.Atoi(texts[0])
	if err != nil || len(texts) != 1 {
		c.t.Fatalf("%s.bind: got %q, want one number", name, texts)
	}
	return n
}

// counts waits until the server has counted these hits, apart from queries for
// statistics, and misses: a query is counted after its reply has been sent.
func (c *counted) counts(hits, misses int) (ok bool, got string) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		m := c.number("misses")
		own := c.own
		h := c.number("hits") - own
		if h == hits && m == misses {
			return true, ""
		}
		if h+m > hits+misses || time.Now().After(end) {
			return false, fmt.Sprintf("%d hits and %d misses", h, m)
		}
	}
}

// Hits, misses and the texts are as in dnsmasq.
func TestStatisticsOfDnsmasq(t *testing.T) {
	up := net.JoinHostPort("127.0.0.1", strconv.Itoa(start(t, `.:53 {
		template IN A no.example {
			rcode NXDOMAIN
			authority "example. 60 IN SOA ns.example. host.example. 1 60 60 60 60"
		}
		template IN A {
			answer "{{ .Name }} 300 IN A 192.0.2.1"
		}
	}`, "127.0.0.1")))
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("192.0.2.9 written.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	port := start(t, ".:53 {\nchaos {\nstatistics\n}\ncache {\nsuccess 60\ndenial 40\n}\ntemplate IN ANY local.example {\nrcode NXDOMAIN\n}\nhosts "+hosts+
		" {\nfallthrough\n}\nforward . "+up+"\n}", "127.0.0.1")
	servers := map[string]func(*testing.T) string{
		"Seamark": func(*testing.T) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) },
		"dnsmasq": func(t *testing.T) string { return dnsmasq(t, hosts, up) },
	}
	for name, address := range servers {
		t.Run(name, func(t *testing.T) {
			addr := address(t)
			c, hits, misses := &counted{t: t, addr: addr}, 0, 0
			for _, step := range []struct {
				name  string
				qtype uint16
				class uint16
				hit   bool
			}{
				{"written.example.", dns.TypeA, dns.ClassINET, true},
				{"9.2.0.192.in-addr.arpa.", dns.TypePTR, dns.ClassINET, true},
				{"written.example.", dns.TypeAAAA, dns.ClassINET, name == "Seamark"}, // dnsmasq forwards types that hosts lacks
				{"www.example.", dns.TypeA, dns.ClassINET, false},
				{"www.example.", dns.TypeA, dns.ClassINET, true},
				{"WWW.example.", dns.TypeA, dns.ClassINET, true},
				{"other.example.", dns.TypeA, dns.ClassINET, false},
				{"any.local.example.", dns.TypeA, dns.ClassINET, true},
				{"version.bind.", dns.TypeTXT, dns.ClassCHAOS, true},
				{"no.example.", dns.TypeA, dns.ClassINET, false},
				{"no.example.", dns.TypeA, dns.ClassINET, true},
			} {
				m := new(dns.Msg).SetQuestion(step.name, step.qtype)
				m.Question[0].Qclass = step.class
				if _, _, err := (&dns.Client{Timeout: patience}).Exchange(m, addr); err != nil {
					t.Fatal(err)
				}
				if step.hit {
					hits++
				} else {
					misses++
				}
				if ok, got := c.counts(hits, misses); !ok {
					t.Fatalf("%s %s: got %s, want %d hits and %d misses", step.name, dns.TypeToString[step.qtype], got, hits, misses)
				}
			}
			if n := c.number("insertions"); n < 3 {
				t.Errorf("insertions.bind: got %d, want at least 3", n)
			}
			if size, out := c.number("cachesize"), c.number("evictions"); size != 100 || out != 0 {
				t.Errorf("cachesize.bind %d, evictions.bind %d; want 100, 0", size, out)
			}
			if n := c.number("auth"); n != 0 {
				t.Errorf("auth.bind: got %d, want 0", n)
			}
			var sent int // a query may be sent twice
			texts := c.texts("servers")
			if _, err := fmt.Sscanf(texts[0], strings.Replace(up, ":", "#", 1)+" %d 0", &sent); err != nil || len(texts) != 1 || sent < misses {
				t.Errorf("servers.bind: got %q (%v), want %s with at least %d queries", texts, err, up, misses)
			}
			if text := c.texts("copyright"); !regexp.MustCompile(`^Copyright \(c\) \S+`).MatchString(text[0]) {
				t.Errorf("copyright.bind: got %q, want a copyright notice", text)
			}
		})
	}
}

// dnsmasq starts dnsmasq with a cache of 100 entries on a free port.
func dnsmasq(t *testing.T, hosts, upstream string) (addr string) {
	t.Helper()
	program := debian.Program(t, "dnsmasq")
	port := freeport.Reserve(t)
	args := []string{"-k", "-C", "/dev/null", "--pid-file=", "--log-facility=-", "--no-resolv", "--no-hosts", "--addn-hosts=" + hosts, "--listen-address=127.0.0.1",
		"--bind-interfaces", "--port=" + port, "--cache-size=100", "--local=/local.example/", "--server=" + strings.Replace(upstream, ":", "#", 1)}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	c := exec.CommandContext(t.Context(), program, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	addr = net.JoinHostPort("127.0.0.1", port)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr) // which is not counted
		if err == nil {
			_ = conn.Close()
			return addr
		}
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for dnsmasq: %v", err)
		}
	}
}

// kube-dns's sidecar reads the statistics.
func TestStatisticsForSidecar(t *testing.T) {
	port := start(t, ".:53 {\nchaos {\nstatistics\n}\ncache {\nsuccess 1000\ndenial 0\n}\nforward . "+upstream(t)+"\n}", "127.0.0.1")
	for range 3 {
		if got := ask(t, "udp", trusted, "127.0.0.1", port, "www.example.org"); got != secretOK {
			t.Fatalf("www.example.org A: got %s, want %s", got, secretOK)
		}
	}
	// The sidecar reads the numbers once: the queries must have been counted.
	c := &counted{t: t, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if ok, got := c.counts(2, 1); !ok {
		t.Fatalf("got %s, want 2 hits and 1 miss", got)
	}
	page := net.JoinHostPort("127.0.0.1", freeport.Reserve(t))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- sidecar.Run(ctx, sidecar.Options{
			Dnsmasq: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Poll: time.Minute, // Poll also limits the time of a query
			Listen: page, Path: "/metrics", Namespace: "kubedns", Log: slog.New(slog.DiscardHandler),
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// The page may be read while the sidecar updates one metric after the other.
	lines := []string{"misses 1", "insertions 1", "evictions 0", "max_size 1000", "errors 0"}
	body, missing, hits := "", lines, 0
	for end := time.Now().Add(time.Minute); (hits < 2 || len(missing) > 0) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		reply, err := http.Get("http://" + page + "/metrics")
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		body = string(text)
		missing = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(body, "\nkubedns_dnsmasq_"+line+"\n") })
		for line := range strings.Lines(body) {
			_, _ = fmt.Sscanf(line, "kubedns_dnsmasq_hits %d", &hits)
		}
	}
	if hits < 2 || len(missing) > 0 {
		t.Errorf("the sidecar's metrics have %d hits, want at least 2, and lack %q:\n%s", hits, missing, body)
	}
}
