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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/compat/sidecar"
)

// A counted is a server that tells dnsmasq's statistics.
type counted struct {
	t    *testing.T
	addr string
	own  int // questions for its numbers so far: they are hits
}

// texts asks for NAME.bind.
func (c *counted) texts(name string) []string {
	c.t.Helper()
	m := new(dns.Msg).SetQuestion(name+".bind.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	reply, _, err := new(dns.Client).Exchange(m, c.addr)
	if err != nil || len(reply.Answer) != 1 {
		c.t.Fatalf("%s.bind: %v %v", name, err, reply)
	}
	c.own++
	return reply.Answer[0].(*dns.TXT).Txt
}

func (c *counted) number(name string) int {
	c.t.Helper()
	texts := c.texts(name)
	n, err := strconv.Atoi(texts[0])
	if err != nil || len(texts) != 1 {
		c.t.Fatalf("%s.bind: %q", name, texts)
	}
	return n
}

// counts waits until there have been so many hits, but for questions for numbers,
// and misses: a query is counted when its reply has gone.
func (c *counted) counts(hits, misses int) (ok bool, got string) {
	c.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
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

// What is a hit and what is a miss is what it is for the real dnsmasq, and the texts
// have its form.
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
	servers := map[string]string{"Seamark": net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if theirs := dnsmasq(t, hosts, up); theirs != "" {
		servers["dnsmasq"] = theirs
	}
	for name, addr := range servers {
		t.Run(name, func(t *testing.T) {
			c, hits, misses := &counted{t: t, addr: addr}, 0, 0
			for _, step := range []struct {
				name  string
				qtype uint16
				class uint16
				hit   bool
			}{
				{"written.example.", dns.TypeA, dns.ClassINET, true},
				{"9.2.0.192.in-addr.arpa.", dns.TypePTR, dns.ClassINET, true},
				{"written.example.", dns.TypeAAAA, dns.ClassINET, name == "Seamark"}, // dnsmasq asks for types that hosts has not
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
				if _, _, err := new(dns.Client).Exchange(m, addr); err != nil {
					t.Fatal(err)
				}
				if step.hit {
					hits++
				} else {
					misses++
				}
				if ok, got := c.counts(hits, misses); !ok {
					t.Fatalf("%s %s: %s, want %d and %d", step.name, dns.TypeToString[step.qtype], got, hits, misses)
				}
			}
			if n := c.number("insertions"); n < 3 {
				t.Errorf("%d insertions", n)
			}
			if size, out := c.number("cachesize"), c.number("evictions"); size != 100 || out != 0 {
				t.Errorf("a size of %d and %d evictions", size, out)
			}
			if n := c.number("auth"); n != 0 {
				t.Errorf("auth.bind: %d", n)
			}
			var sent int // a question may be sent twice
			texts := c.texts("servers")
			if _, err := fmt.Sscanf(texts[0], strings.Replace(up, ":", "#", 1)+" %d 0", &sent); err != nil || len(texts) != 1 || sent < misses {
				t.Errorf("servers.bind: %v: %q, want that %s was sent %d", err, texts, up, misses)
			}
			if text := c.texts("copyright"); !regexp.MustCompile(`^Copyright \(c\) \S+`).MatchString(text[0]) {
				t.Errorf("copyright.bind: %q", text)
			}
		})
	}
}

// dnsmasq starts the real one, with a cache of 100, on a port of its own; "" if
// there is none on this machine.
func dnsmasq(t *testing.T, hosts, upstream string) (addr string) {
	t.Helper()
	program, err := exec.LookPath("dnsmasq")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/dnsmasq")
	}
	if err != nil {
		if os.Getenv("SEAMARK_TEST_DNSMASQ") != "" {
			t.Fatal("there is no dnsmasq: install Debian's dnsmasq-base, or your system's like")
		}
		return ""
	}
	port := freePort(t)
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
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr) // which counts nothing
		if err == nil {
			_ = conn.Close()
			return addr
		}
		if time.Now().After(end) {
			t.Fatalf("dnsmasq does not answer: %v", err)
		}
	}
}

// freePort is one of the loopback interface that nobody has just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// kube-dns's sidecar can read the statistics.
func TestStatisticsForSidecar(t *testing.T) {
	port := start(t, ".:53 {\nchaos {\nstatistics\n}\ncache {\nsuccess 1000\ndenial 0\n}\nforward . "+upstream(t)+"\n}", "127.0.0.1")
	for range 3 {
		if got := ask(t, "udp", trusted, "127.0.0.1", port, "www.example.org"); got != secretOK {
			t.Fatal(got)
		}
	}
	page := net.JoinHostPort("127.0.0.1", freePort(t))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- sidecar.Run(ctx, sidecar.Options{
			Dnsmasq: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Poll: time.Second, // which is how long a question may take, too
			Listen: page, Path: "/metrics", Namespace: "kubedns", Log: slog.New(slog.DiscardHandler),
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	body := ""
	for end := time.Now().Add(10 * time.Second); !strings.Contains(body, "\nkubedns_dnsmasq_max_size 1000\n") && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if reply, err := http.Get("http://" + page + "/metrics"); err == nil {
			text, _ := io.ReadAll(reply.Body)
			reply.Body.Close()
			body = string(text)
		}
	}
	hits := 0
	for line := range strings.Lines(body) {
		_, _ = fmt.Sscanf(line, "kubedns_dnsmasq_hits %d", &hits)
	}
	if hits < 2 {
		t.Errorf("%d hits, want the two from the cache and the sidecar's own", hits)
	}
	for _, line := range []string{"misses 1", "insertions 1", "evictions 0", "max_size 1000", "errors 0"} {
		if !strings.Contains(body, "\nkubedns_dnsmasq_"+line+"\n") {
			t.Errorf("the sidecar does not show %s:\n%s", line, body)
		}
	}
}
