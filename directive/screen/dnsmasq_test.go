package screen

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
)

// dnsmasq starts a dnsmasq without cache that forwards to upstream, and returns its
// address.
func dnsmasq(t *testing.T, upstream netip.AddrPort, args ...string) (addr string) {
	t.Helper()
	program := debian.Program(t, "dnsmasq")
	m := new(mdns.Msg).SetQuestion("version.bind.", mdns.TypeTXT)
	m.Question[0].Qclass = mdns.ClassCHAOS
	client := &mdns.Client{Timeout: 100 * time.Millisecond}
	for range 20 { // another process may take the port
		port := freeport.Reserve(t)
		argv := []string{"--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--log-facility=-", "--no-resolv", "--no-hosts", "--cache-size=0",
			"--listen-address=127.0.0.1", "--bind-interfaces", "--port=" + port, fmt.Sprintf("--server=%s#%d", upstream.Addr(), upstream.Port())}
		if os.Getuid() == 0 {
			argv = append(argv, "--user=root")
		}
		for _, a := range args {
			argv = append(argv, strings.ReplaceAll(a, "UPSTREAM", fmt.Sprintf("%s#%d", upstream.Addr(), upstream.Port())))
		}
		c := exec.Command(program, argv...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		t.Cleanup(func() {
			_ = c.Process.Kill() // it may have ended
			<-ended
		})
		addr = "127.0.0.1:" + port
		for deadline := time.Now().Add(time.Minute); len(ended) == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if reply, _, err := client.Exchange(m, addr); err == nil && strings.Contains(reply.String(), "dnsmasq-") {
				return addr
			}
		}
	}
	t.Fatal("dnsmasq did not start in 20 attempts")
	return ""
}

// A comparison is a configuration of dnsmasq and of screen, and the queries to compare.
// The queries in other have different answers on purpose.
type comparison struct {
	args, options string
	records       string // of the records directive, the same as in args
	queries       string // NAME TYPE..., one name on each line
	other         string
}

const answers = `
? good.test A
good.test. 60 A 192.88.99.1
? both.test A
both.test. 60 A 192.88.99.1
both.test. 60 A 10.0.0.1
? p127.test A
p127.test. 60 A 127.1.2.3
? p0.test A
p0.test. 60 A 0.0.0.0
? p01.test A
p01.test. 60 A 0.1.2.3
? p172.test A
p172.test. 60 A 172.31.255.255
? n172.test A
n172.test. 60 A 172.32.0.0
? p192.test A
p192.test. 60 A 192.168.255.1
? p169.test A
p169.test. 60 A 169.254.0.1
? p100.test A
p100.test. 60 A 100.64.0.1
? doc1.test A
doc1.test. 60 A 192.0.2.1
? doc2.test A
doc2.test. 60 A 198.51.100.1
? doc3.test A
doc3.test. 60 A 203.0.113.1
? p198.test A
p198.test. 60 A 198.18.0.1
? p255.test A
p255.test. 60 A 255.255.255.255
? n255.test A
n255.test. 60 A 255.255.255.254
? p224.test A
p224.test. 60 A 224.0.0.1
? one.test AAAA
one.test. 60 AAAA ::1
? zero.test AAAA
zero.test. 60 AAAA ::
? fd.test AAAA
fd.test. 60 AAAA fdff::1
? fc.test AAAA
fc.test. 60 AAAA fcff::1
? fe80.test AAAA
fe80.test. 60 AAAA febf::1
? fec0.test AAAA
fec0.test. 60 AAAA fec0::1
? feff.test AAAA
feff.test. 60 AAAA feff::1
? ff02.test AAAA
ff02.test. 60 AAAA ff02::1
? doc6.test AAAA
doc6.test. 60 AAAA 2001:db8::1
? m10.test AAAA
m10.test. 60 AAAA ::ffff:10.0.0.1
? m127.test AAAA
m127.test. 60 AAAA ::ffff:127.0.0.1
? m0.test AAAA
m0.test. 60 AAAA ::ffff:0.0.0.0
? m192.test AAAA
m192.test. 60 AAAA ::ffff:192.88.99.1
? c10.test AAAA
c10.test. 60 AAAA ::10.0.0.1
? nat.test AAAA
nat.test. 60 AAAA 64:ff9b::10.0.0.1
? alias.test A
alias.test. 60 CNAME evil.other.
evil.other. 60 A 10.0.0.1
? alias.ok.test A
alias.ok.test. 60 CNAME evil.other.
evil.other. 60 A 10.0.0.1
? inward.test A
inward.test. 60 CNAME x.ok.test.
x.ok.test. 60 A 10.0.0.1
? ok.test A
ok.test. 60 A 127.0.0.1
? xok.test A
xok.test. 60 A 10.0.0.1
? any.test ANY
any.test. 60 A 10.0.0.1
any.test. 60 TXT x
? mx.test MX
mx.test. 60 MX 10 both.test.
+both.test. 60 A 10.0.0.1
? svc.test HTTPS
svc.test. 60 HTTPS 1 . ipv4hint=10.0.0.1
? six.test AAAA
six.test. 60 AAAA 2600::1
six.test. 60 AAAA 2600::2
? six.test ANY
six.test. 60 A 192.88.99.1
six.test. 60 AAAA 2600::1
six.test. 60 TXT x
? only6.test ANY
only6.test. 60 AAAA 2600::1
? alias6.test AAAA
alias6.test. 60 CNAME b.test.
b.test. 60 CNAME c.test.
c.test. 60 AAAA 2600::1
? mx6.test MX
mx6.test. 60 MX 10 six.test.
+six.test. 60 AAAA 2600::1
? svc6.test HTTPS
svc6.test. 60 HTTPS 1 . alpn=h2 ipv6hint=2600::1
? nx.test AAAA NXDOMAIN
^test. 60 SOA a. b. 1 2 3 4 5
? nxalias.test AAAA NXDOMAIN
nxalias.test. 60 CNAME nx.test.
^test. 60 SOA a. b. 1 2 3 4 5
? no6.test AAAA
^test. 60 SOA a. b. 1 2 3 4 5
? wrong.test AAAA REFUSED
`

// Answers are the same as those of dnsmasq.
func TestSameAnswersAsDnsmasq(t *testing.T) {
	w := parseAnswers(t, answers)
	addressed := "good.test A\nboth.test A\np127.test A\np0.test A\np01.test A\np172.test A\nn172.test A\np192.test A\np169.test A\np100.test A\n" +
		"doc1.test A\ndoc2.test A\ndoc3.test A\np198.test A\np255.test A\nn255.test A\np224.test A\none.test AAAA\nzero.test AAAA\nfd.test AAAA\nfc.test AAAA\n" +
		"fe80.test AAAA\nfec0.test AAAA\nfeff.test AAAA\nff02.test AAAA\ndoc6.test AAAA\nm10.test AAAA\nm127.test AAAA\nm0.test AAAA\nm192.test AAAA\n" +
		"c10.test AAAA\nnat.test AAAA\nalias.test A\nalias.ok.test A\ninward.test A\nok.test A\nxok.test A\nnx.test AAAA\nno6.test AAAA"
	for name, c := range map[string]comparison{
		"local": {
			args: "--local=/local.test/ --server=/fwd.local.test/UPSTREAM --server=/std.local.test/# --local=/in.fwd.local.test/ --local=/arpa.local/ --host-record=a.b.local.test,10.0.0.1",
			options: `local local.test in.fwd.local.test arpa.local
				except fwd.local.test std.local.test`,
			records: "a.b.local.test 0 A 10.0.0.1",
			queries: `local.test A TXT SOA ANY
				a.b.local.test A
				b.local.test A TXT
				test TXT
				c.b.local.test A
				x.local.test A AAAA TXT DS SRV
				y.x.local.test PTR
				xlocal.test TXT
				fwd.local.test TXT
				x.fwd.local.test TXT
				std.local.test TXT
				y.x.std.local.test TXT
				in.fwd.local.test TXT
				x.in.fwd.local.test TXT
				arpa.local PTR
				. TXT`,
		},
		"plain": {
			args:    "--domain-needed --server=/plain/UPSTREAM --local=/home/ --host-record=a.above,10.0.0.1",
			options: "plain_names\nexcept plain\nlocal home",
			records: "a.above 0 A 10.0.0.1",
			queries: "word A AAAA ANY TXT\nplain A AAAA TXT\nx.plain TXT\nhome A TXT\nx.home TXT\nabove A AAAA\na.above A\n. ANY TXT",
		},
		"reverse": {
			args:    "--bogus-priv --server=/20.10.in-addr.arpa/UPSTREAM --local=/21.10.in-addr.arpa/ --ptr-record=9.9.9.10.in-addr.arpa,host.test",
			options: "private_reverse\nexcept 20.10.in-addr.arpa\nlocal 21.10.in-addr.arpa",
			records: "9.9.9.10.in-addr.arpa 0 PTR host.test",
			queries: reverseNames("0.0.0.0", "0.1.2.3", "9.255.255.255", "10.1.2.3", "11.0.0.0", "172.15.0.1", "172.16.0.0", "172.31.255.255", "172.32.0.0",
				"192.168.3.4", "192.167.0.1", "169.254.1.2", "127.0.0.1", "127.1.2.3", "192.0.2.7", "192.0.3.7", "198.51.100.7", "203.0.113.7", "198.18.0.1",
				"100.64.0.1", "255.255.255.255", "255.255.255.254", "224.0.0.1", "192.0.0.1", "240.0.0.1", "8.8.8.8", "10.20.1.2", "10.21.1.2",
				"::1", "::", "::2", "fd00::1", "fc00::1", "fe80::1", "febf::1", "fec0::1", "feff::1", "ff02::1", "2001:db8::1", "2001:db9::1",
				"::ffff:10.0.0.1", "::ffff:8.8.8.8", "64:ff9b::10.0.0.1", "2600::1") + `
				10.in-addr.arpa SOA
				20.10.in-addr.arpa PTR
				21.10.in-addr.arpa PTR TXT
				99.10.in-addr.arpa PTR TXT
				168.192.in-addr.arpa PTR
				172.in-addr.arpa PTR
				16.172.in-addr.arpa PTR
				3.3.10.in-addr.arpa PTR
				32/1.10.in-addr.arpa PTR
				256.2.2.10.in-addr.arpa PTR
				x.4.3.2.10.in-addr.arpa PTR
				4.3.2.10.in-addr.arpa TXT A NS CNAME ANY
				9.9.9.10.in-addr.arpa PTR
				in-addr.arpa PTR
				ip6.arpa PTR
				d.f.ip6.arpa PTR
				f.ip6.arpa PTR
				8.e.f.ip6.arpa PTR
				c.e.f.ip6.arpa PTR
				b._dns-sd._udp.0.0.0.10.in-addr.arpa PTR`,
			// Not an address.
			other: "256.2.2.10.in-addr.arpa PTR",
		},
		"rebind": {
			args: "--stop-dns-rebind --rebind-domain-ok=/ok.test/", options: "rebind ok.test", queries: addressed + "\nany.test ANY\nsvc.test HTTPS\nmx.test MX",
			other: "any.test ANY\nsvc.test HTTPS\nmx.test MX",
		},
		"rebind but localhost": {
			args: "--stop-dns-rebind --rebind-localhost-ok", options: "rebind\nrebind_localhost_ok", queries: addressed,
		},
		"filter": {
			args: "--filter-AAAA --host-record=own.test,fd00::1", options: "drop AAAA", records: "own.test 0 AAAA fd00::1",
			queries: "own.test AAAA\ngood.test A\nsix.test AAAA ANY\nonly6.test ANY\nalias6.test AAAA\nmx6.test MX\nsvc6.test HTTPS\nnx.test AAAA\nnxalias.test AAAA\nno6.test AAAA\nwrong.test AAAA",
			// The SOA record, and the additional section.
			other: "six.test AAAA\nonly6.test ANY\nalias6.test AAAA\nmx6.test MX",
		},
		"filter both": {
			args: "--filter-AAAA --filter-A", options: "drop A AAAA", queries: "six.test ANY\nnx.test AAAA\nno6.test AAAA",
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr := dnsmasq(t, listen(t, w), strings.Fields(c.args)...)
			lines := "screen {\n" + c.options + "\n}\n"
			if c.records != "" {
				lines += "records {\n" + c.records + "\n}\n"
			}
			r := run(t, lines, w)
			for line := range strings.Lines(c.queries) {
				fields := strings.Fields(line)
				for _, qtype := range fields[1:] {
					m := new(mdns.Msg).SetQuestion(mdns.Fqdn(fields[0]), mdns.StringToType[qtype])
					m.SetEdns0(1232, false)
					reply, _, err := (&mdns.Client{Timeout: 20 * time.Second}).Exchange(m, addr)
					if err != nil {
						t.Fatal(err)
					}
					theirs, ours := digest(reply), digest(r.exchange(mdns.Fqdn(fields[0]), qtype, time.Now()))
					ours = strings.Replace(ours, " aa ra", " aa", 1) // own records have RA in dnsmasq
					theirs = strings.Replace(theirs, " aa ra", " aa", 1)
					differ := strings.Contains("\n"+c.other+"\n", "\n"+fields[0]+" "+qtype+"\n")
					if (theirs == ours) == differ {
						t.Errorf("%s %s, want a difference: %v\ndnsmasq %s\nscreen  %s", fields[0], qtype, differ, theirs, ours)
					}
				}
			}
		})
	}
}

// reverseNames returns PTR queries for the addresses.
func reverseNames(addrs ...string) string {
	var lines []string
	for _, a := range addrs {
		name, _ := mdns.ReverseAddr(a)
		if strings.HasPrefix(a, "::ffff:") { // the library treats these as IPv4
			b := netip.MustParseAddr(a).As16()
			name = "ip6.arpa."
			for _, c := range b {
				name = fmt.Sprintf("%x.%x.", c&15, c>>4) + name
			}
		}
		lines = append(lines, name+" PTR")
	}
	return strings.Join(lines, "\n")
}
