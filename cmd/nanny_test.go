package cmd_test

import (
	"bufio"
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
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

func TestNannyCommandLine(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "stubDomains"), `{"acme.local": ["192.0.2.1", "ns.default.svc.cluster.local"]}`)
	write(t, filepath.Join(dir, "upstreamNameservers"), `["192.0.2.8:5353"]`)
	odd := t.TempDir()
	write(t, filepath.Join(odd, "stubDomains"), `{"acme.local": ["192.0.2.256"]}`)
	const base = "dnsmasq-nanny --print-corefile --lameduck=0s "
	for _, c := range []struct {
		args, out, err string // what they contain
		code           int
	}{
		{"dnsmasq-nanny --help", "--restartDnsmasq", "", 0},
		{"dnsmasq-nanny --version", "Seamark-test\nlinux/", "", 0},
		{"dnsmasq-nanny -- --version", "Seamark-test\nlinux/", "", 0},
		{"dnsmasq-nanny -- --help", "-c, --cache-size=VALUE", "", 0},
		{"dnsmasq-nanny -- --test -k", "syntax check OK\n", "", 0},
		{base, "forward . /etc/resolv.conf", "", 0},
		{base + "-- -R", "hosts /etc/hosts", "", 0},
		{"dnsmasq-nanny --print-corefile -v=2 -logtostderr --restartDnsmasq=true -kubednsServer=127.0.0.1 -syncInterval=3s -configDir=/a/b -- -R", "    lameduck 5s\n", "", 0},
		{base + "-restartDnsmasq -kubednsServer=127.0.0.1 -configDir=/a/b -- -R", "kubedns_config /a/b {\n        period 10s\n        join_upstreams\n        resolver 127.0.0.1:53\n        default none\n", "", 0},
		{base + "-configDir=" + dir + " -dnsmasqExec=/x -- -R --server=/cluster.local/127.0.0.1#10053", "    forward acme.local 192.0.2.1:53 ns.default.svc.cluster.local:53 {\n        failover SERVFAIL REFUSED\n        resolver 127.0.0.1:10053\n    }\n", "", 0},
		{base + "-configDir=" + odd + " -- -R", "    forward acme.local 192.0.2.256.invalid:53 {\n", "", 0},
		{base + "-configDir=" + dir + " -- -S 192.0.2.9", "    forward . 192.0.2.9:53 192.0.2.8:5353 {\n", "", 0},
		{"dnsmasq-nanny -k", "", "unknown shorthand flag: 'k'", 2},
		{"dnsmasq-nanny word", "", "unknown word \"word\": write dnsmasq's options after --", 2},
		{"dnsmasq-nanny --nonsense -- -k", "", "unknown flag: --nonsense", 2},
		{"dnsmasq-nanny -- --dnssec --nonsense", "", "--dnssec: not served: answers are not validated: use an upstream that validates, whose AD bit is passed on\n--nonsense: unknown option\n", 2},
		{"dnsmasq-nanny -- --test --conf-file=/nowhere", "", "open /nowhere: no such file or directory", 2},
		{"dnsmasq-nanny -kubednsServer=kube-dns", "", "-kubednsServer: want IP:PORT, got \"kube-dns\"", 2},
		{"dnsmasq-nanny -syncInterval=0s -logInterval=-1s -configDir=x --lameduck=2h", "", "-syncInterval: want 10ms..24h0m0s, got 0s\n-logInterval: want 0s or more, got -1s\n--lameduck: want 0s..1h0m0s, got 2h0m0s\n-configDir: want a directory that starts with / or ., got \"x\"", 2},
		{"dnsmasq-nanny -configDir= -- -a 192.0.2.77 -p 5399 -R", "", "no interface of this machine has that address", 1},
	} {
		out, stderr, code := run(t, t.TempDir(), "", strings.Fields(c.args)...)
		if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.err) || code != c.code || c.err == "" && stderr != "" {
			t.Errorf("%s: exit %d, want %d\nout %s\nerr %s", c.args, code, c.code, out, stderr)
		}
	}
}

// A nannyProcess runs the command dnsmasq-nanny.
type nannyProcess struct {
	*testing.T
	*exec.Cmd
	dir, port string // the directory of the ConfigMap; the port of the server
	log       chan string
}

// startUpstream starts a server that replies with address to every A query.
func startUpstream(t *testing.T, address string) (at string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		r := new(dns.Msg).SetReply(m)
		if m.Question[0].Qtype == dns.TypeA {
			rr, _ := dns.NewRR(m.Question[0].Name + " 300 A " + address)
			r.Answer = append(r.Answer, rr)
		}
		_ = w.WriteMsg(r)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.ActivateAndServe()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return conn.LocalAddr().String()
}

// newNanny returns a process of the binary, called dnsmasq-nanny, that has not been
// started.
func newNanny(t *testing.T, flags, options string) *nannyProcess {
	t.Helper()
	n := &nannyProcess{T: t, dir: t.TempDir(), port: freeport.Reserve(t), log: make(chan string, 1000)}
	args := append(strings.Fields("-v=2 -logtostderr -configDir="+n.dir+" "+flags), "--", "-k", "-h", "-R", "-p", n.port, "-a", "127.0.0.1")
	n.Cmd = program.Command(t, t.TempDir(), append(args, strings.Fields(options)...)...)
	n.Args[0] = "/usr/bin/dnsmasq-nanny"
	return n
}

func (n *nannyProcess) start() {
	n.Helper()
	stderr, err := n.StderrPipe()
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		n.Fatal(err)
	}
	go func() {
		defer close(n.log)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			n.log <- lines.Text()
		}
	}()
}

// stop sends SIGTERM and checks that the exit status is 0.
func (n *nannyProcess) stop() {
	n.Helper()
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		n.Fatal(err)
	}
	for range n.log {
	}
	if err := n.Wait(); err != nil {
		n.Errorf("after SIGTERM: got %v, want exit status 0", err)
	}
}

func (n *nannyProcess) put(key, value string) {
	n.Helper()
	spare := filepath.Join(n.TempDir(), "spare")
	write(n.T, spare, value)
	if err := os.Rename(spare, filepath.Join(n.dir, key)); err != nil {
		n.Fatal(err)
	}
}

// awaitAddress waits until the A query for a name has one address.
func (n *nannyProcess) awaitAddress(name, address string) {
	n.Helper()
	last := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		r, err := ask("udp", n.port, name, dns.TypeA)
		if err != nil {
			last = err.Error()
			continue
		}
		last = ""
		for _, rr := range r.Answer {
			last += rr.(*dns.A).A.String()
		}
		if last == address {
			return
		}
	}
	n.Fatalf("%s A: got %q after a minute, want %q", name, last, address)
}

// awaitBoth waits until queries for new names have returned both addresses.
func (n *nannyProcess) awaitBoth(one, other string) {
	n.Helper()
	seen := map[string]bool{}
	deadline := time.Now().Add(time.Minute)
	for i := 0; !seen[one] || !seen[other]; i++ {
		if time.Now().After(deadline) {
			n.Fatalf("addresses of %d names: got %v, want %s and %s", i, seen, one, other)
		}
		time.Sleep(time.Millisecond)
		r, err := ask("udp", n.port, fmt.Sprintf("new%d.example.", i), dns.TypeA)
		if err == nil && len(r.Answer) == 1 {
			seen[r.Answer[0].(*dns.A).A.String()] = true
		}
	}
}

// awaitLog waits for a line of the log that contains text.
func (n *nannyProcess) awaitLog(text string) {
	n.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case line, ok := <-n.log:
			if !ok {
				n.Fatalf("the process ended without the log line %q", text)
			}
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			n.Fatalf("no log line %q within a minute", text)
		}
	}
}

// Changes of the ConfigMap and of a hosts file are served without a restart.
func TestNanny(t *testing.T) {
	rest, acme := startUpstream(t, "198.18.0.1"), startUpstream(t, "198.18.0.2")
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, "10.0.0.1 db.corp.example\n")
	n := newNanny(t, "-restartDnsmasq=true -logInterval=100ms --lameduck=0s",
		"--all-servers --server="+strings.ReplaceAll(rest, ":", "#")+" --addn-hosts="+key)
	n.put("stubDomains", `{"acme.local": ["`+acme+`"]}`)
	n.start()
	n.awaitLog("--all-servers: a query is sent to the next upstream")
	n.awaitAddress("www.acme.local.", "198.18.0.2")
	n.awaitAddress("www.example.", "198.18.0.1")
	n.awaitAddress("db.corp.example.", "10.0.0.1")
	write(t, key, "10.0.0.2 db.corp.example\n")
	n.awaitAddress("db.corp.example.", "10.0.0.2")
	n.put("stubDomains", `{"other.local": ["`+acme+`"]}`)
	n.awaitAddress("www.other.local.", "198.18.0.2")
	n.awaitAddress("www.acme.local.", "198.18.0.1")
	n.put("stubDomains", `{"other.local": ["$$$$"]}`)
	n.awaitLog("$$$$")
	n.awaitAddress("www2.other.local.", "198.18.0.2")
	// Upstreams are used in addition to the server of the command line, as in dnsmasq.
	n.put("upstreamNameservers", `["`+acme+`"]`)
	n.put("stubDomains", `{}`)
	n.awaitLog("Upstream statistics upstream=" + acme)
	n.awaitBoth("198.18.0.1", "198.18.0.2")
	n.stop()
}

// Without -restartDnsmasq the ConfigMap of the start stays in use.
func TestNannyWithoutRestart(t *testing.T) {
	rest, acme := startUpstream(t, "198.18.0.1"), startUpstream(t, "198.18.0.2")
	n := newNanny(t, "--lameduck=0s", "--server="+strings.ReplaceAll(rest, ":", "#"))
	n.put("stubDomains", `{"acme.local": ["`+acme+`"]}`)
	n.start()
	n.awaitAddress("www.acme.local.", "198.18.0.2")
	n.put("stubDomains", `{"other.local": ["`+acme+`"]}`)
	n.awaitLog("has changed; -restartDnsmasq=false keeps the old configuration")
	n.awaitAddress("www2.acme.local.", "198.18.0.2")
	n.awaitAddress("www.other.local.", "198.18.0.1")
	n.stop()
}
