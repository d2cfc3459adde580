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
	"github.com/seamark/seamark/test/freeport"
)

// The objects of the cluster.
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

// convertQueries are sent to servers whose answers must be equal. Each external name
// occurs once, so that no answer comes from a cache.
var convertQueries = func() []string {
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

// startNamedServer starts a server on the loopback interface that answers for some
// names in any zone, with addresses or texts that depend on its label.
func startNamedServer(t *testing.T, label string) (at string) {
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
			soa, _ := dns.NewRR(". 300 SOA " + label + ". h. 1 2 3 4 5")
			r.Ns = append(r.Ns, soa)
		case q.Qtype == dns.TypeA && first == "many":
			for i := range 60 {
				r.Answer = append(r.Answer, rr(fmt.Sprintf("192.0.2.%d", i)))
			}
		case q.Qtype == dns.TypeA:
			r.Answer = append(r.Answer, rr(map[string]string{"stub": "192.0.2.1", "corp": "192.0.2.2", "upstream": "192.0.2.3"}[label]))
		case q.Qtype == dns.TypeAAAA:
			r.Answer = append(r.Answer, rr("2001:db8::1"))
		case q.Qtype == dns.TypePTR:
			r.Answer = append(r.Answer, rr(label+".example."))
		case q.Qtype == dns.TypeTXT:
			r.Answer = append(r.Answer, rr(label))
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

// localCorefile replaces, in a Corefile, the cluster by a folder and the addresses by
// free ones of the loopback interface.
func localCorefile(t *testing.T, text, manifests string) string {
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

// serveCorefile serves a Corefile until the test ends.
func serveCorefile(t *testing.T, text string) (port string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Corefile")
	write(t, file, text)
	p := serve(t, t.TempDir(), "", "-conf", file)
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if reply, err := ask("tcp", p.ports[0], "synced.cluster.local.", dns.TypeA); err == nil && reply.Rcode != dns.RcodeServerFailure {
			return p.ports[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("not synced within a minute:\n%s", text)
		}
	}
}

// packet returns a reply in wire format without its ID.
func packet(t *testing.T, network, port, query string) []byte {
	t.Helper()
	name, kind, _ := strings.Cut(query, " ")
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.StringToType[kind])
	conn, err := net.Dial(network, "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	c := dns.Conn{Conn: conn, UDPSize: 4096}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if err := c.WriteMsg(m); err != nil {
		t.Fatal(err)
	}
	reply, err := c.ReadMsgHeader(nil)
	if err != nil {
		t.Fatalf("%s over %s: %v", query, network, err)
	}
	return reply[2:]
}

// replyText returns a reply as text with sorted records. For a truncated reply, whose
// records vary, it has only their number.
func replyText(t *testing.T, reply []byte) string {
	t.Helper()
	var m dns.Msg
	if err := m.Unpack(append([]byte{0, 0}, reply...)); err != nil {
		t.Fatal(err)
	}
	for _, rrs := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		slices.SortStableFunc(rrs, func(a, b dns.RR) int { return strings.Compare(a.String(), b.String()) })
	}
	if m.Truncated {
		text := fmt.Sprintf("%d answers, truncated", len(m.Answer))
		m.Answer = nil
		return m.String() + text
	}
	return m.String()
}

// compareReplies sends all queries to both servers and compares the replies: byte for
// byte or, since records are rotated, as text.
func compareReplies(t *testing.T, old, converted string) {
	t.Helper()
	equal := 0
	for _, query := range convertQueries {
		for _, network := range []string{"udp", "tcp"} {
			a, b := packet(t, network, old, query), packet(t, network, converted, query)
			if bytes.Equal(a, b) {
				equal++
			} else if x, y := replyText(t, a), replyText(t, b); len(a) != len(b) || x != y {
				t.Errorf("%s over %s: got from the converted Corefile\n%s\nwant, from kube-dns,\n%s", query, network, y, x)
			}
		}
	}
	if equal < len(convertQueries) {
		t.Errorf("replies equal byte for byte: got %d, want at least %d", equal, len(convertQueries))
	}
}

// compareTexts is compareReplies for replies that another server may compress in a
// different way. There is one known difference: the cache of kube-dns limits TTLs to an
// hour, that of dnsmasq does not.
func compareTexts(t *testing.T, old, converted string) {
	t.Helper()
	for _, query := range convertQueries {
		for _, network := range []string{"udp", "tcp"} {
			x, y := replyText(t, packet(t, network, old, query)), replyText(t, packet(t, network, converted, query))
			if query == "dns-version.cluster.local TXT" {
				y = strings.Replace(y, "\t28800\t", "\t3600\t", 1)
			}
			if x != y {
				t.Errorf("%s over %s: got from the converted Corefile\n%s\nwant, from the pod,\n%s", query, network, y, x)
			}
		}
	}
}

// writeInputs writes a mounted ConfigMap and the manifests of a cluster, and returns
// their directories.
func writeInputs(t *testing.T) (config, manifests string) {
	t.Helper()
	config, manifests = t.TempDir(), t.TempDir()
	write(t, filepath.Join(manifests, "all.yaml"), convertCluster)
	write(t, filepath.Join(config, "stubDomains"), fmt.Sprintf(`{"acme.local": [%q], "corp.acme.local": [%q], "corp.cluster.local": [%[2]q]}`, startNamedServer(t, "stub"), startNamedServer(t, "corp")))
	write(t, filepath.Join(config, "upstreamNameservers"), fmt.Sprintf(`[%q]`, startNamedServer(t, "upstream")))
	write(t, filepath.Join(config, "federations"), "myfed=fed.example.org")
	return config, manifests
}

// command runs a command that must succeed without output on standard error.
func command(t *testing.T, in string, args ...string) string {
	t.Helper()
	out, stderr, code := run(t, t.TempDir(), in, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("%q: got exit status %d and\n%s\nwant 0 and no errors", args, code, stderr)
	}
	return out
}

// kube-dns with a ConfigMap and the Corefile converted from both have the same answers.
func TestConvertKubeDNSSameAnswers(t *testing.T) {
	config, manifests := writeInputs(t)
	flags := []string{"kube-dns", "--domain=cluster.local.", "--config-dir=" + config}
	old := command(t, "", append(flags, "--print-corefile")...)
	converted := command(t, "", append([]string{"convert", config, "--"}, flags...)...)
	if !strings.Contains(old, "kubedns_config") || strings.Contains(converted, "kubedns_config") {
		t.Fatalf("got the Corefiles\n%s%s\nwant kubedns_config in the first only", old, converted)
	}
	port := serveCorefile(t, localCorefile(t, converted, manifests))
	compareReplies(t, serveCorefile(t, localCorefile(t, old, manifests)), port)
	checkUpstreams(t, port, map[string]string{"deep.corp.cluster.local.": "192.0.2.2"})
}

// checkUpstreams checks that names are answered by the intended server.
func checkUpstreams(t *testing.T, port string, more map[string]string) {
	t.Helper()
	want := map[string]string{
		"web.shop.svc.cluster.local.": "10.96.0.10", "three.acme.local.": "192.0.2.1", "corp.acme.local.": "192.0.2.2", "three.example.org.": "192.0.2.3",
		"outside.shop.svc.cluster.local.": "192.0.2.1", "web.shop.myfed.svc.cluster.local.": "10.96.0.10", "gone.shop.myfed.svc.cluster.local.": "gone.shop.myfed.svc.z1.r1.fed.example.org.",
	}
	maps.Copy(want, more)
	for name, address := range want {
		reply, err := ask("udp", port, name, dns.TypeA)
		if err != nil || !strings.Contains(reply.String(), address) {
			t.Errorf("%s A: got %v, error %v, want %s", name, reply, err, address)
		}
	}
}

// dnsmasq-nanny in front of kube-dns and the Corefile converted from both have the
// same answers.
func TestConvertPodSameAnswers(t *testing.T) {
	config, manifests := writeInputs(t)
	kube := serveCorefile(t, localCorefile(t, command(t, "", "kube-dns", "--config-dir="+config, "--print-corefile"), manifests))
	text, err := os.ReadFile("../deploy/kube-dns/three-container/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pod := strings.NewReplacer("127.0.0.1#10053", "127.0.0.1#"+kube, "dns-port=10053", "dns-port="+kube, "            - -k\n", "            - -k\n            - --no-hosts\n").Replace(string(text))
	if strings.Count(pod, kube) < 4 || !strings.Contains(pod, "--no-hosts") {
		t.Fatalf("got manifest\n%s\nwant kube-dns at port %s four times, and --no-hosts", pod, kube)
	}
	nanny := command(t, "", "dnsmasq-nanny", "-configDir="+config, "-restartDnsmasq=true", "--print-corefile", "-kubednsServer=127.0.0.1:"+kube, "--",
		"--no-hosts", "--cache-size=1000", "--no-negcache", "--server=/cluster.local/127.0.0.1#"+kube, "--server=/in-addr.arpa/127.0.0.1#"+kube, "--server=/ip6.arpa/127.0.0.1#"+kube)
	front := serveCorefile(t, localCorefile(t, nanny, manifests))
	converted := command(t, strings.ReplaceAll(pod, `"10055"`, `"`+freeport.Reserve(t)+`"`), "convert", "-", config)
	port := serveCorefile(t, localCorefile(t, strings.ReplaceAll(converted, "skydns_metrics :", "skydns_metrics 127.0.0.1:"), manifests))
	compareTexts(t, front, port)
	checkUpstreams(t, port, map[string]string{"deep.corp.cluster.local.": "192.0.2.2"})
}
