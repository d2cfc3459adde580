package kubetest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/kubetest/gate"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A skyDNS is a process of the command skydns.
type skyDNS struct {
	*process
	metrics string // URL of the metrics
}

func startSkyDNS(t *testing.T, etcd string, env []string, more ...string) *skyDNS {
	t.Helper()
	port, metrics := freeport.Reserve(t), freeport.Reserve(t)
	env = append([]string{"PROMETHEUS_PORT=" + metrics, "ETCD_MACHINES=" + etcd, "SKYDNS_ADDR=127.0.0.1:" + port, "SKYDNS_DOMAIN=skydns.test."}, env...)
	return &skyDNS{program(t, "127.0.0.1:"+port, "skydns", env, more...), "http://127.0.0.1:" + metrics}
}

func (s *keyReader) putKey(key, value string) {
	s.Helper()
	if _, err := s.client.Put(s.Context(), key, value); err != nil {
		s.Fatal(err)
	}
}

func (s *keyReader) deleteKey(key string, options ...clientv3.OpOption) {
	s.Helper()
	if _, err := s.client.Delete(s.Context(), key, options...); err != nil {
		s.Fatal(err)
	}
}

// The command has SkyDNS's flags, environment, records, special names and metrics, and
// ends with SIGTERM.
func TestSkyDNS(t *testing.T) {
	t.Parallel()
	s := startKeyReader(t)
	world := upstream(t, "www.example. 60 IN A 203.0.113.1", "1.113.0.203.in-addr.arpa. 60 IN PTR www.example.", "short. 60 IN A 203.0.113.9")
	s.put("test/skydns/east/web/1", `{"host":"10.0.0.1","port":80}`)
	s.put("test/skydns/west/web/1", `{"host":"10.0.0.2","port":80}`)
	s.put("test/skydns/dns/ns/ns1", `{"host":"10.0.0.5"}`)
	s.put("test/skydns/self", `{"host":"10.0.0.6"}`)
	s.put("arpa/in-addr/10/0/0/1", `{"host":"web.east.skydns.test."}`)
	s.putKey("/other/test/skydns/web", `{"host":"10.9.0.1"}`)
	p := startSkyDNS(t, s.at, nil, "-nameservers="+world, "-local=self.skydns.test", "-hostmaster=me.example.")
	p.await(lookupA("web.east.skydns.test", "NOERROR 10.0.0.1"))
	p.check(
		lookupA("web.*.skydns.test", "NOERROR 10.0.0.1 10.0.0.2"), lookupA("any.west.skydns.test", "NOERROR 10.0.0.2"), lookupA("missing.skydns.test", "NXDOMAIN"),
		lookupSRV("east.skydns.test", "NOERROR 10 100 80 1.web.east.skydns.test."),
		lookup{"skydns.test", dns.TypeNS, "NOERROR ns1.ns.dns.skydns.test."},
		lookupA("local.dns.skydns.test", "NOERROR 10.0.0.6"), lookupPTR("1.0.0.10.in-addr.arpa", "NOERROR web.east.skydns.test."),
		lookupPTR("1.113.0.203.in-addr.arpa", "NOERROR www.example."), lookupA("www.example", "NOERROR 203.0.113.1"),
		lookupA("missing.example", "NXDOMAIN"), lookupA("short", "SERVFAIL"),
	)
	if got := p.ttl(lookupA("web.east.skydns.test", "")); got != 3600 {
		t.Errorf("TTL of web.east.skydns.test: got %d, want 3600", got)
	}
	reply := must(exchangeUDP(new(dns.Msg).SetQuestion("skydns.test.", dns.TypeSOA), p.at))(t)
	if !strings.Contains(reply.String(), "me.example.") {
		t.Errorf("SOA of skydns.test: got %s, want the hostmaster me.example.", reply)
	}
	for series, least := range map[string]float64{
		`skydns_skydns_dns_request_count_total{system="auth"}`: 10, `skydns_skydns_dns_request_count_total{system="recursive"}`: 2,
		`skydns_skydns_dns_error_count_total{system="auth",cause="nxdomain"}`: 1, `skydns_skydns_dns_request_duration_seconds_count{system="auth"}`: 1,
		"process_resident_memory_bytes": 1 << 20,
	} {
		if n := value(t, p.metrics, series); n < least {
			t.Errorf("%s: got %v, want at least %v", series, n, least)
		}
	}
	p.terminate()

	// -no-rec forwards nothing. Other flags, and the names of the metrics.
	p = startSkyDNS(t, s.at, []string{"PROMETHEUS_NAMESPACE=a", "PROMETHEUS_SUBSYSTEM=b", "PROMETHEUS_PATH=/m", "SKYDNS_NAMESERVERS=" + world}, "--no-rec", "-path-prefix=other", "-round-robin=false", "-etcd3", "-scache=5")
	p.await(lookupA("web.skydns.test", "NOERROR 10.9.0.1"))
	p.check(lookupA("www.example", "SERVFAIL"), lookupPTR("1.113.0.203.in-addr.arpa", "SERVFAIL"))
	if _, text := page(t, p.metrics+"/m"); !strings.Contains(text, `a_b_dns_request_count_total{system="auth"}`) {
		t.Errorf("got metrics\n%s\nwant names that start with a_b_", text)
	}
	p.terminate()

	// -ndots=1 forwards single labels; -rcache caches answers of upstreams.
	p = startSkyDNS(t, s.at, []string{"SKYDNS_NDOTS=1", "SKYDNS_NAMESERVERS=" + world}, "-rcache=100", "-rcache-ttl=60", "-ns-rotate=false")
	p.await(lookupA("short", "NOERROR 203.0.113.9"), lookupA("web.east.skydns.test", "NOERROR 10.0.0.1"))
	if got := p.ttl(lookupA("web.east.skydns.test", "")); got > 60 {
		t.Errorf("TTL with -rcache-ttl=60: got %d, want at most 60", got)
	}
	p.terminate()
}

// The configuration in etcd overrides the flags, and is followed; an invalid one
// is logged once, and the previous one is kept.
func TestSkyDNSConfiguration(t *testing.T) {
	t.Parallel()
	s := startKeyReader(t)
	world := upstream(t, "www.example. 60 IN A 203.0.113.1")
	s.put("test/skydns/web", `{"host":"10.0.0.1"}`)
	s.put("test/other/web", `{"host":"10.0.0.2"}`)
	s.put("config", `{"ttl":77,"no_rec":true}`)
	p := startSkyDNS(t, s.at, nil, "-nameservers="+world)
	p.await(lookupA("web.skydns.test", "NOERROR 10.0.0.1"))
	if got := p.ttl(lookupA("web.skydns.test", "")); got != 77 {
		t.Errorf("TTL of web.skydns.test: got %d, want 77", got)
	}
	load := p.startLoad(lookupA("web.skydns.test", "NOERROR 10.0.0.1"))
	s.put("config", fmt.Sprintf(`{"ttl":78,"nameservers":[%q],"read_timeout":1000000000,"unknown":1}`, world))
	p.await(lookupA("www.example", "NOERROR 203.0.113.1"))
	for _, wrong := range []string{`{"ttl":`, `{"ttl":"x"}`, `{"ttl":1,"dnssec":"Kskydns"}`, `{"ttl":1,"domain":"{"}`, `{"ttl":1,"nameservers":["a"]}`} {
		before := p.logs("Invalid configuration in etcd")
		s.put("config", wrong)
		chaintest.Eventually(t, "the invalid configuration "+wrong+" in the log", func() bool { return p.logs("Invalid configuration in etcd", "/skydns/config") == before+1 })
		p.check(lookupA("www.example", "NOERROR 203.0.113.1"))
		if got := p.ttl(lookupA("web.skydns.test", "")); got != 78 {
			t.Errorf("TTL with the configuration %s: got %d, want 78", wrong, got)
		}
	}
	if n := p.logs("Invalid value in etcd"); n > 0 {
		t.Errorf("log lines about the configuration as a message: got %d, want 0", n)
	}
	load.stop()
	s.put("config", `{"domain":"other.test."}`)
	p.await(lookupA("web.other.test", "NOERROR 10.0.0.2"), lookupA("web.skydns.test", "NXDOMAIN"))
	s.deleteKey("/skydns/config")
	p.await(lookupA("web.skydns.test", "NOERROR 10.0.0.1"), lookupA("web.other.test", "NXDOMAIN"), lookupA("www.example", "NOERROR 203.0.113.1"))
	p.terminate()
}

// Stub zones in etcd are added, changed and deleted, and precede local names;
// they are those of the configured domain.
func TestSkyDNSStubZones(t *testing.T) {
	t.Parallel()
	s := startKeyReader(t)
	one := upstream(t, "a.stub.example. 60 IN A 203.0.113.1", "web.skydns.test. 60 IN A 203.0.113.7")
	two := upstream(t, "a.stub.example. 60 IN A 203.0.113.2", "b.east.example. 60 IN A 203.0.113.3")
	stub := func(at string) string {
		host, port, _ := net.SplitHostPort(at)
		return fmt.Sprintf(`{"host":%q,"port":%s}`, host, port)
	}
	s.put("test/skydns/web", `{"host":"10.0.0.1"}`)
	s.put("test/skydns/dns/stub/example/stub/1", stub(one))
	p := startSkyDNS(t, s.at, nil, "-stubzones", "-no-rec")
	p.await(lookupA("a.stub.example", "NOERROR 203.0.113.1"), lookupA("web.skydns.test", "NOERROR 10.0.0.1"))
	load := p.startLoad(lookupA("web.skydns.test", "NOERROR 10.0.0.1"))
	s.put("test/skydns/dns/stub/example/stub/1", stub(two))
	p.await(lookupA("a.stub.example", "NOERROR 203.0.113.2"))
	s.put("test/skydns/dns/stub/example/east/1", stub(two))
	p.await(lookupA("b.east.example", "NOERROR 203.0.113.3"))
	for key, value := range map[string]string{"example/bad/1": `{"host":"a.name"}`, "example/json/1": `{`, "odd {zone}/1": stub(one), "1": stub(one)} {
		s.put("test/skydns/dns/stub/"+key, value)
		chaintest.Eventually(t, "the invalid key "+key+" in the log", func() bool { return p.logs("Invalid configuration in etcd", "/dns/stub/"+key) > 0 })
	}
	p.check(lookupA("b.east.example", "NOERROR 203.0.113.3"), lookupA("a.stub.example", "NOERROR 203.0.113.2"))
	s.deleteKey("/skydns/test/skydns/dns/stub/example/east/1")
	chaintest.Eventually(t, "the deletion of a stub zone", func() bool { return p.ask("udp", lookupA("b.east.example", "")) != "NOERROR 203.0.113.3" })
	load.stop()
	s.put("test/skydns/dns/stub/test/skydns/1", stub(one))
	p.await(lookupA("web.skydns.test", "NOERROR 203.0.113.7"))
	s.deleteKey("/skydns/test/skydns/dns/stub/", clientv3.WithPrefix())
	p.await(lookupA("web.skydns.test", "NOERROR 10.0.0.1"))
	s.put("test/other/dns/stub/example/stub/1", stub(one))
	s.put("config", `{"domain":"other.test"}`)
	p.await(lookupA("a.stub.example", "NOERROR 203.0.113.1"))
	p.terminate()
}

// The flags for TLS and a password work. The program starts without etcd, and keeps
// running when etcd becomes unavailable.
func TestSkyDNSAccess(t *testing.T) {
	t.Parallel()
	c := newDNSStore(t, EtcdOptions{TLS: true, Username: "dns", Password: "secret"})
	c.putStableNames()
	cert, key, ca := c.ClientTLS()
	flags := []string{"-tls-pem=" + cert, "-tls-key=" + key, "-ca-cert=" + ca, "-username=dns", "-no-rec"}
	all := strings.Join(c.Endpoints(), ",")
	p := startSkyDNS(t, all, []string{"ETCD_PASSWORD=secret"}, flags...)
	p.await(stableNames()...)
	env := startSkyDNS(t, all, []string{"ETCD_TLSPEM=" + cert, "ETCD_TLSKEY=" + key, "ETCD_CACERT=" + ca, "ETCD_USERNAME=dns", "ETCD_PASSWORD=secret"})
	env.await(stableNames()...)
	wrong := startSkyDNS(t, all, []string{"ETCD_PASSWORD=guess"}, flags...)
	chaintest.Eventually(t, "the authentication failure in the log", func() bool { return wrong.logs("etcd failed, retrying", "authentication failed") > 0 })
	if strings.Contains(wrong.log()+p.log(), "guess") || strings.Contains(wrong.log()+p.log(), "secret") {
		t.Errorf("got the log\n%s%s\nwant it without passwords", wrong.log(), p.log())
	}
	for member := range EtcdMembers {
		c.Clients(member, gate.Refused)
	}
	late := startSkyDNS(t, all, []string{"ETCD_PASSWORD=secret"}, flags...)
	chaintest.Eventually(t, "SERVFAIL without etcd", func() bool { return late.ask("udp", stableNames()[0]) == "SERVFAIL" })
	p.check(stableNames()...)
	c.Heal()
	late.await(stableNames()...)
	for _, one := range []*skyDNS{p, env, wrong, late} {
		one.terminate()
	}
}

// SIGTERM ends the program while etcd accepts connections and does not reply.
func TestSkyDNSTerminatedWithoutEtcd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for _, more := range [][]string{nil, {"-username=u", "-password=p"}} {
		// Each program has a listener of its own: a second connection of the program
		// before would be accepted in place of the first one of this program.
		silent := must(net.Listen("tcp4", "127.0.0.1:0"))(t)
		defer silent.Close()
		p := startSkyDNS(t, "http://"+silent.Addr().String(), nil, more...)
		_ = silent.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
		conn, err := silent.Accept() // the program runs and waits for etcd
		if err != nil {
			t.Fatalf("%v: got error %v, want a connection to etcd", more, err)
		}
		defer conn.Close()
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-p.ended:
			if err != nil {
				t.Errorf("%v: after SIGTERM: got %v, want exit status 0", more, err)
			}
			p.ended <- err
		case <-time.After(patience):
			t.Fatalf("%v: not ended %v after SIGTERM", more, patience)
		}
	}
}

// An accepted connection shows that the program runs and waits for etcd.
func TestSkyDNSInvalidFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, env, want string }{
		{"-dnssec=Kskydns", "", "-dnssec: this command does not sign answers"},
		{"-systemd", "", "-systemd: skydns does not accept sockets from systemd"},
		{"", "SKYDNS_SYSTEMD=true", "SKYDNS_SYSTEMD: skydns does not accept sockets from systemd"},
		{"-discover=x", "", "-discover: members are not discovered"},
		{"", "GRAPHITE_SERVER=x", "GRAPHITE_SERVER: the server does not push statistics"},
		{"", "SKYDNS_NDOTS=x", "SKYDNS_NDOTS: want a number"},
		{"", "PROMETHEUS_PORT=x", "PROMETHEUS_PORT: want a port"},
		{"-addr=x -domain=. -ndots=500 -machines=ftp://x", "", "-addr: want IP:PORT"},
		{"-addr=x -domain=. -ndots=500 -machines=ftp://x", "", "-domain: want a name"},
		{"-addr=x -domain=. -ndots=500 -machines=ftp://x", "", "-ndots: want 0..127"},
		{"-addr=x -domain=. -ndots=500 -machines=ftp://x", "", "want a URL"},
		{"-tls-pem=x", "", "a certificate needs its key"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		p := exec.CommandContext(ctx, must(exec.LookPath("/proc/self/exe"))(t), append([]string{"skydns"}, strings.Fields(c.args)...)...)
		p.Env = append(p.Environ(), "SEAMARK_TEST_MAIN=1", c.env)
		out, err := p.CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("skydns %s with %s: got error %v and\n%s\nwant %s", c.args, c.env, err, out, c.want)
		}
	}
}
