package cmd_test

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// What the cluster of these tests has.
const convertCluster = `
kind: Namespace
apiVersion: v1
metadata: {name: shop}
---
kind: Service
apiVersion: v1
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]}
---
kind: Service
apiVersion: v1
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, ports: [{name: sql, port: 5432, protocol: TCP}]}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 5432, protocol: TCP}]
endpoints:
- {addresses: [10.1.0.1], hostname: one, conditions: {ready: true}}
- {addresses: [10.1.0.2], conditions: {ready: true}}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints: [{addresses: [10.1.0.3], conditions: {ready: true}}]
---
kind: Service
apiVersion: v1
metadata: {name: outside, namespace: shop}
spec: {type: ExternalName, externalName: target.acme.local}
---
kind: Service
apiVersion: v1
metadata: {name: elsewhere, namespace: shop}
spec: {type: ExternalName, externalName: target.example.org}
---
kind: Node
apiVersion: v1
metadata: {name: node, labels: {topology.kubernetes.io/zone: z1, topology.kubernetes.io/region: r1}}
`

// convertQuestions are put to servers that must give equal answers. No two have the
// same name outside, so that what one leaves in a cache does not age the next.
var convertQuestions = func() []string {
	return strings.Split(strings.TrimSpace(`
web.shop.svc.cluster.local A
wEb.Shop.svc.cluster.local A
web.shop.svc.cluster.local AAAA
web.shop.svc.cluster.local TXT
_http._tcp.web.shop.svc.cluster.local SRV
web.shop.svc.cluster.local SRV
db.shop.svc.cluster.local A
_sql._tcp.db.shop.svc.cluster.local SRV
one.db.shop.svc.cluster.local A
10-1-0-2.db.shop.svc.cluster.local A
*.shop.svc.cluster.local A
10-1-2-3.shop.pod.cluster.local A
none.shop.svc.cluster.local A
shop.svc.cluster.local A
none.svc.cluster.local MX
cluster.local SOA
dns-version.cluster.local TXT
10.0.96.10.in-addr.arpa PTR
1.0.1.10.in-addr.arpa PTR
9.9.9.10.in-addr.arpa PTR
1.2.0.192.in-addr.arpa PTR
1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa PTR
outside.shop.svc.cluster.local A
elsewhere.shop.svc.cluster.local A
outside.shop.svc.cluster.local CNAME
web.shop.myfed.svc.cluster.local A
none.shop.myfed.svc.cluster.local A
one.acme.local A
two.acme.local TXT
missing.acme.local A
deep.in.corp.acme.local A
deep.corp.cluster.local A
one.example.org A
two.example.org AAAA
many.example.org A
missing.example.org A
plain A
local A
`), "\n")
}()

// An elder is a server on the loopback interface that knows some names, whatever
// zone they are in, and says with each answer who it is.
func elder(t *testing.T, who string) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		r := new(dns.Msg).SetReply(m)
		r.RecursionAvailable = true
		q := m.Question[0]
		first, _, _ := strings.Cut(strings.ToLower(q.Name), ".")
		rr := func(data string) dns.RR {
			made, err := dns.NewRR(q.Name + " 300 " + dns.TypeToString[q.Qtype] + " " + data)
			if err != nil {
				panic(err)
			}
			return made
		}
		switch {
		case first == "missing" || first == "local":
			r.Rcode = dns.RcodeNameError
			soa, _ := dns.NewRR(". 300 SOA " + who + ". h. 1 2 3 4 5")
			r.Ns = append(r.Ns, soa)
		case q.Qtype == dns.TypeA && first == "many":
			for i := range 60 {
				r.Answer = append(r.Answer, rr(fmt.Sprintf("192.0.2.%d", i)))
			}
		case q.Qtype == dns.TypeA:
			r.Answer = append(r.Answer, rr(map[string]string{"stub": "192.0.2.1", "corp": "192.0.2.2", "upstream": "192.0.2.3"}[who]))
		case q.Qtype == dns.TypeAAAA:
			r.Answer = append(r.Answer, rr("2001:db8::1"))
		case q.Qtype == dns.TypePTR:
			r.Answer = append(r.Answer, rr(who+".example."))
		case q.Qtype == dns.TypeTXT:
			r.Answer = append(r.Answer, rr(who))
		}
		size := 512
		if opt := m.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		if w.LocalAddr().Network() == "udp" {
			r.Truncate(size)
		}
		_ = w.WriteMsg(r)
	})
	for _, s := range []*dns.Server{{Listener: l, Handler: answer}, {PacketConn: conn, Handler: answer}} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.ActivateAndServe()
		}()
		t.Cleanup(func() {
			_ = s.Shutdown()
			<-ended
		})
	}
	return l.Addr().String()
}

// here makes a Corefile one that can be served by a test: the cluster is a folder,
// and the addresses are free ones of the loopback interface.
func here(t *testing.T, text, manifests string) string {
	t.Helper()
	for _, c := range []struct{ old, new string }{
		{`(?m)^\.:\d+ \{\n`, ".:0 {\n"},
		{`(?m)^    bind .*\n`, ""},
		{`(?m)^\.:0 \{\n`, ".:0 {\n    bind 127.0.0.1\n"},
		{`kubedns_status :\d+`, "kubedns_status 127.0.0.1:0"},
		{`(?m)^    kubernetes (.*) \{\n`, "    kubernetes $1 {\n        manifests " + manifests + "\n"},
	} {
		text = regexp.MustCompile(c.old).ReplaceAllString(text, c.new)
	}
	return text
}

// served runs a Corefile until the test ends.
func served(t *testing.T, text string) (port string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Corefile")
	write(t, file, text)
	p := serve(t, t.TempDir(), "", "-conf", file)
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if reply, err := ask("tcp", p.ports[0], "synced.cluster.local.", dns.TypeA); err == nil && reply.Rcode != dns.RcodeServerFailure {
			return p.ports[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("no data in twenty seconds of\n%s", text)
		}
	}
}

// packet gives a reply as it comes, without its id.
func packet(t *testing.T, network, port, question string) []byte {
	t.Helper()
	name, kind, _ := strings.Cut(question, " ")
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.StringToType[kind])
	conn, err := net.Dial(network, "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	c := dns.Conn{Conn: conn, UDPSize: 4096}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if err := c.WriteMsg(m); err != nil {
		t.Fatal(err)
	}
	reply, err := c.ReadMsgHeader(nil)
	if err != nil {
		t.Fatalf("%s by %s: %v", question, network, err)
	}
	return reply[2:]
}

// told is a reply's text, with records whose order is by chance sorted. Which of
// them have come into a truncated one is by chance, too.
func told(t *testing.T, reply []byte) string {
	t.Helper()
	var m dns.Msg
	if err := m.Unpack(append([]byte{0, 0}, reply...)); err != nil {
		t.Fatal(err)
	}
	for _, rrs := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		slices.SortStableFunc(rrs, func(a, b dns.RR) int { return strings.Compare(a.String(), b.String()) })
	}
	if m.Truncated {
		text := fmt.Sprintf("%d of some answers", len(m.Answer))
		m.Answer = nil
		return m.String() + text
	}
	return m.String()
}

// agree puts all questions to both, and wants equal replies: byte for byte, or, where
// records come in turns, with the same ones.
func agree(t *testing.T, old, converted string) {
	t.Helper()
	equal := 0
	for _, question := range convertQuestions {
		for _, network := range []string{"udp", "tcp"} {
			a, b := packet(t, network, old, question), packet(t, network, converted, question)
			if bytes.Equal(a, b) {
				equal++
			} else if x, y := told(t, a), told(t, b); len(a) != len(b) || x != y {
				t.Errorf("%s by %s: kube-dns says\n%s\nthe converted Corefile says\n%s", question, network, x, y)
			}
		}
	}
	if equal < len(convertQuestions) {
		t.Errorf("only %d replies were the same byte for byte", equal)
	}
}

// agreeInText is agree for replies that come from another server, which need not be
// compressed in the same way. The one known difference is kube-dns's cache, which
// bounds TTLs at an hour: the one server has dnsmasq's, which does not.
func agreeInText(t *testing.T, old, converted string) {
	t.Helper()
	for _, question := range convertQuestions {
		for _, network := range []string{"udp", "tcp"} {
			x, y := told(t, packet(t, network, old, question)), told(t, packet(t, network, converted, question))
			if question == "dns-version.cluster.local TXT" {
				y = strings.Replace(y, "\t28800\t", "\t3600\t", 1)
			}
			if x != y {
				t.Errorf("%s by %s: the pod says\n%s\nthe converted Corefile says\n%s", question, network, x, y)
			}
		}
	}
}

// world is a mounted ConfigMap, and the folder of a cluster.
func world(t *testing.T) (config, manifests string) {
	t.Helper()
	config, manifests = t.TempDir(), t.TempDir()
	write(t, filepath.Join(manifests, "all.yaml"), convertCluster)
	write(t, filepath.Join(config, "stubDomains"), fmt.Sprintf(`{"acme.local": [%q], "corp.acme.local": [%q], "corp.cluster.local": [%[2]q]}`, elder(t, "stub"), elder(t, "corp")))
	write(t, filepath.Join(config, "upstreamNameservers"), fmt.Sprintf(`[%q]`, elder(t, "upstream")))
	write(t, filepath.Join(config, "federations"), "myfed=fed.example.org")
	return config, manifests
}

// command runs a command that must go well.
func command(t *testing.T, in string, args ...string) string {
	t.Helper()
	out, stderr, code := run(t, t.TempDir(), in, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("%q: exit %d\n%s", args, code, stderr)
	}
	return out
}

// kube-dns, which follows its ConfigMap, and the Corefile that was made of both give
// the same answers.
func TestConvertedAnswersAsKubeDNS(t *testing.T) {
	config, manifests := world(t)
	flags := []string{"kube-dns", "--domain=cluster.local.", "--config-dir=" + config}
	old := command(t, "", append(flags, "--print-corefile")...)
	converted := command(t, "", append([]string{"convert", config, "--"}, flags...)...)
	if !strings.Contains(old, "kubedns_config") || strings.Contains(converted, "kubedns_config") {
		t.Fatalf("nothing is compared:\n%s%s", old, converted)
	}
	port := served(t, here(t, converted, manifests))
	agree(t, served(t, here(t, old, manifests)), port)
	answers(t, port, map[string]string{"deep.corp.cluster.local.": "192.0.2.2"})
}

// answers checks that those are asked who should be: some names' addresses, or what
// else there is.
func answers(t *testing.T, port string, more map[string]string) {
	t.Helper()
	want := map[string]string{
		"web.shop.svc.cluster.local.": "10.96.0.10", "three.acme.local.": "192.0.2.1", "corp.acme.local.": "192.0.2.2", "three.example.org.": "192.0.2.3",
		"outside.shop.svc.cluster.local.": "192.0.2.1", "web.shop.myfed.svc.cluster.local.": "10.96.0.10", "gone.shop.myfed.svc.cluster.local.": "gone.shop.myfed.svc.z1.r1.fed.example.org.",
	}
	maps.Copy(want, more)
	for name, address := range want {
		reply, err := ask("udp", port, name, dns.TypeA)
		if err != nil || !strings.Contains(reply.String(), address) {
			t.Errorf("%s: %v, want %s in %v", name, err, address, reply)
		}
	}
}

// dnsmasq-nanny in front of kube-dns, and the one server that was made of both.
func TestConvertedAnswersAsPod(t *testing.T) {
	config, manifests := world(t)
	kube := served(t, here(t, command(t, "", "kube-dns", "--config-dir="+config, "--print-corefile"), manifests))
	text, err := os.ReadFile("../deploy/kube-dns/three-container/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pod := strings.NewReplacer("127.0.0.1#10053", "127.0.0.1#"+kube, "dns-port=10053", "dns-port="+kube, "            - -k\n", "            - -k\n            - --no-hosts\n").Replace(string(text))
	if strings.Count(pod, kube) < 4 || !strings.Contains(pod, "--no-hosts") {
		t.Fatal("the manifest is something else now")
	}
	nanny := command(t, "", "dnsmasq-nanny", "-configDir="+config, "-restartDnsmasq=true", "--print-corefile", "-kubednsServer=127.0.0.1:"+kube, "--",
		"--no-hosts", "--cache-size=1000", "--no-negcache", "--server=/cluster.local/127.0.0.1#"+kube, "--server=/in-addr.arpa/127.0.0.1#"+kube, "--server=/ip6.arpa/127.0.0.1#"+kube)
	front := served(t, here(t, nanny, manifests))
	converted := command(t, strings.ReplaceAll(pod, `"10055"`, `"`+freePort(t)+`"`), "convert", "-", config)
	port := served(t, here(t, strings.ReplaceAll(converted, "skydns_metrics :", "skydns_metrics 127.0.0.1:"), manifests))
	agreeInText(t, front, port)
	answers(t, port, map[string]string{"deep.corp.cluster.local.": "192.0.2.2"})
}
