package kubetest

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/seamark/seamark/kubetest/externaldns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
)

var withExternalDNS = flag.Bool("externaldns", false, "build ExternalDNS, and run the tests in which it is a client")

// An externalWorld is ExternalDNS between an API server and a process of Seamark, with the Corefile and
// the flags of dynupdate's page.
type externalWorld struct {
	*testing.T
	api        kubernetes.Interface
	endpoints  dynamic.ResourceInterface
	program    string
	kubeconfig string
	flags      []string
	dir, addr  string
	server     *exec.Cmd
}

const externalZone = `$ORIGIN example.org.
$TTL 60
@ SOA ns.example.org. hostmaster.example.org. 10 3600 600 86400 30
@ NS ns.example.org.
ns A 192.0.2.53
manual A 192.0.2.99
`

// newExternalWorld starts an API server with the kind DNSEndpoint, and Seamark.
func newExternalWorld(t *testing.T) *externalWorld {
	t.Helper()
	if !*withExternalDNS {
		t.Skip("it runs ExternalDNS: make test-externaldns")
	}
	program := must(externaldns.Build())(t)
	srv := start(t)
	if err := srv.Define(t.Context(), must(externaldns.CRD())(t)); err != nil {
		t.Fatal(err)
	}
	config := srv.Config()
	objects := must(dynamic.NewForConfigAndClient(config, httpClient(t, config)))(t)
	kind := schema.GroupVersionResource{Group: "externaldns.k8s.io", Version: "v1alpha1", Resource: "dnsendpoints"}

	port := freeport.Reserve(t)
	w := &externalWorld{
		T: t, api: client(t, config), endpoints: objects.Resource(kind).Namespace("shop"), program: program,
		kubeconfig: must(srv.Kubeconfig())(t), dir: t.TempDir(), addr: net.JoinHostPort("127.0.0.1", port),
	}
	corefile := w.readPage(port)
	w.write("Corefile", strings.Replace(corefile, "example.org {", "example.org:"+port+" {\n    bind 127.0.0.1", 1))
	w.write("zones/db.example.org", externalZone)
	w.startServer()
	return w
}

// readPage reads the section of dynupdate's page: it sets the flags and returns the Corefile.
func (w *externalWorld) readPage(port string) (corefile string) {
	w.Helper()
	page := string(must(os.ReadFile("../docs/reference/directives/dynupdate.md"))(w.T))
	_, section, _ := strings.Cut(page, "\n## ExternalDNS\n")
	blocks := regexp.MustCompile("(?s)\n```(?:corefile)?\n(.*?)\n```\n").FindAllStringSubmatch(section, 2)
	if len(blocks) != 2 {
		w.Fatal("dynupdate.md: got no section ExternalDNS with a Corefile and flags")
	}
	flags := strings.NewReplacer("192.0.2.53", "127.0.0.1", "port=53", "port="+port).Replace(blocks[1][1])
	w.flags = strings.Fields(flags)
	return blocks[0][1] + "\n"
}

func (w *externalWorld) write(name, text string) {
	w.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// startServer starts Seamark, and waits until it answers.
func (w *externalWorld) startServer() {
	w.Helper()
	c := exec.CommandContext(w.Context(), must(os.Executable())(w.T), "-conf", "Corefile")
	c.Dir, c.Env, c.Stderr = w.dir, append(os.Environ(), "SEAMARK_TEST_MAIN=1"), os.Stderr
	if err := c.Start(); err != nil {
		w.Fatal(err)
	}
	w.server = c
	w.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	chaintest.Eventually(w.T, "an answer of the server", func() bool {
		_, err := dns.Exchange(new(dns.Msg).SetQuestion("example.org.", dns.TypeSOA), w.addr)
		return err == nil
	})
}

// crash kills the server and starts it again.
func (w *externalWorld) crash() {
	w.Helper()
	if err := w.server.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	_ = w.server.Wait()
	w.startServer()
}

// sync runs ExternalDNS once, and returns the changes that it has logged, without their TTLs.
func (w *externalWorld) sync(flags ...string) []string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	args := append(slices.Clone(w.flags), "--once", "--metrics-address=127.0.0.1:0")
	c := externaldns.Command(ctx, w.program, w.kubeconfig, append(args, flags...)...)
	out, err := c.CombinedOutput()
	if err != nil || strings.Contains(string(out), "level=error") {
		w.Fatalf("ExternalDNS: %v\n%s", err, out)
	}
	var changes []string
	for _, m := range regexp.MustCompile(`(Adding|Removing) RR: (\S+) \d+ (.*)"`).FindAllStringSubmatch(string(out), -1) {
		changes = append(changes, strings.ReplaceAll(strings.Join(m[1:], " "), `\`, ""))
	}
	return changes
}

// zone returns the records of the zone but SOA and NS by a signed transfer, sorted, with their TTLs.
func (w *externalWorld) zone() (records []string, serial uint32) {
	w.Helper()
	const key, secret = "externaldns.", "Xo8kIYhTMDRuAn0z2AJ2jhN4Nq6Z5dGXlaCrqrhhk0A="
	t := &dns.Transfer{TsigSecret: map[string]string{key: secret}}
	m := new(dns.Msg).SetAxfr("example.org.").SetTsig(key, dns.HmacSHA256, 300, time.Now().Unix())
	for e := range must(t.In(m, w.addr))(w.T) {
		if e.Error != nil {
			w.Fatal(e.Error)
		}
		for _, rr := range e.RR {
			switch rr := rr.(type) {
			case *dns.SOA:
				serial = rr.Serial
			case *dns.NS:
			default:
				h := rr.Header()
				records = append(records, fmt.Sprintf("%s %d %s %s", strings.TrimSuffix(h.Name, ".example.org."), h.Ttl,
					dns.TypeToString[h.Rrtype], strings.TrimPrefix(rr.String(), h.String())))
			}
		}
	}
	slices.Sort(records)
	return records, serial
}

// expect checks the records that ExternalDNS has written. A record of the registry is "owned NAME-TYPE".
func (w *externalWorld) expect(want ...string) {
	w.Helper()
	owned := regexp.MustCompile(`^(\S+) \d+ TXT "heritage=external-dns,external-dns/owner=cluster-1,.*`)
	records, _ := w.zone()
	var got []string
	for _, r := range records {
		if !strings.HasPrefix(r, "ns 60 ") && r != "manual 60 A 192.0.2.99" {
			got = append(got, owned.ReplaceAllString(r, "owned $1"))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Fatalf("got records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(records) != len(want)+2 {
		w.Errorf("got %d records, want the two that ExternalDNS does not own, too: %q", len(records), records)
	}
}

// dnsEndpoint returns a DNSEndpoint with the endpoints "NAME TTL TYPE TARGET...".
func dnsEndpoint(lines ...string) *unstructured.Unstructured {
	var list []any
	for _, line := range lines {
		words := strings.Fields(line)
		e := map[string]any{"dnsName": words[0] + ".example.org", "recordType": words[2]}
		if words[1] != "-" {
			var ttl int64
			_, _ = fmt.Sscan(words[1], &ttl)
			e["recordTTL"] = ttl
		}
		var targets []any
		for _, target := range words[3:] {
			targets = append(targets, target)
		}
		e["targets"] = targets
		list = append(list, e)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint",
		"metadata": map[string]any{"name": "names", "namespace": "shop"}, "spec": map[string]any{"endpoints": list}}}
}

// define creates or replaces the DNSEndpoint of the test.
func (w *externalWorld) define(lines ...string) {
	w.Helper()
	e := dnsEndpoint(lines...)
	if old, err := w.endpoints.Get(w.Context(), "names", metav1.GetOptions{}); err == nil {
		e.SetResourceVersion(old.GetResourceVersion())
		must(w.endpoints.Update(w.Context(), e, metav1.UpdateOptions{}))(w.T)
		return
	}
	must(w.endpoints.Create(w.Context(), e, metav1.CreateOptions{}))(w.T)
}

// ExternalDNS creates, changes and deletes records of each of its types. A second run changes nothing, and
// a crash of the server loses nothing.
func TestExternalDNS(t *testing.T) {
	t.Parallel()
	w := newExternalWorld(t)
	balancer := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"external-dns.kubernetes.io/hostname": "web.example.org"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80}}},
	}
	balancer = add(t, w.api.CoreV1().Services("shop"), balancer)
	balancer.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}
	must(w.api.CoreV1().Services("shop").UpdateStatus(t.Context(), balancer, metav1.UpdateOptions{}))(t)
	add(t, w.api.NetworkingV1().Ingresses("shop"), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "front"},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "front.example.org"}}},
		Status: networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{
			Ingress: []networkingv1.IngressLoadBalancerIngress{{Hostname: "lb.example.net"}}}},
	})
	w.define("api 300 A 192.0.2.2 192.0.2.3", "www - CNAME web.example.org")

	service := []string{"web 60 A 192.0.2.1", "owned a-web", "web 60 AAAA 2001:db8::1", "owned aaaa-web",
		"front 60 CNAME lb.example.net.", "owned cname-front"}
	w.sync()
	w.expect(append(service, "api 300 A 192.0.2.2", "api 300 A 192.0.2.3", "owned a-api", "www 60 CNAME web.example.org.", "owned cname-www")...)
	w.quiet()

	w.crash()
	w.expect(append(service, "api 300 A 192.0.2.2", "api 300 A 192.0.2.3", "owned a-api", "www 60 CNAME web.example.org.", "owned cname-www")...)
	w.quiet()

	w.define("api 120 A 192.0.2.3 192.0.2.4", "www - CNAME front.example.org")
	w.sync()
	w.expect(append(service, "api 120 A 192.0.2.3", "api 120 A 192.0.2.4", "owned a-api", "www 60 CNAME front.example.org.", "owned cname-www")...)
	w.quiet()

	// A name with another type: ExternalDNS adds the CNAME record, which is ignored, before it deletes the addresses.
	w.define("api - CNAME web.example.org", "www - CNAME front.example.org")
	w.sync()
	w.sync()
	w.expect(append(service, "api 60 CNAME web.example.org.", "owned cname-api", "www 60 CNAME front.example.org.", "owned cname-www")...)
	w.quiet()

	if err := w.endpoints.Delete(t.Context(), "names", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.expect(service...)
	if err := w.api.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.api.NetworkingV1().Ingresses("shop").Delete(t.Context(), "front", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.expect()
	w.quiet()
	w.crash()
	w.expect()
}

// quiet checks that a run of ExternalDNS changes nothing.
func (w *externalWorld) quiet() {
	w.Helper()
	before, serial := w.zone()
	changes := w.sync()
	after, now := w.zone()
	if len(changes) != 0 || serial != now || !slices.Equal(before, after) {
		w.Errorf("another run: got serial number %d after %d and the changes\n%s\nwant none", now, serial, strings.Join(changes, "\n"))
	}
}

// ExternalDNS as it runs in a cluster: it follows a hundred names, also while the server crashes.
func TestExternalDNSFollows(t *testing.T) {
	t.Parallel()
	w := newExternalWorld(t)
	args := append(slices.Clone(w.flags), "--interval=1s", "--metrics-address=127.0.0.1:0")
	var log strings.Builder
	c := externaldns.Command(t.Context(), w.program, w.kubeconfig, args...)
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%.8000s", log.String())
		}
	}()

	for round := range 3 {
		var lines, want []string
		for i := range 100 {
			lines = append(lines, fmt.Sprintf("n%d - A 192.0.2.%d", i+round, i+round))
			want = append(want, fmt.Sprintf("n%d 60 A 192.0.2.%d", i+round, i+round))
		}
		w.define(lines...)
		if round > 0 {
			w.crash()
		}
		chaintest.Eventually(t, "the records", func() bool {
			records, _ := w.zone()
			have := 0
			for _, r := range records {
				if slices.Contains(want, r) {
					have++
				}
			}
			return have == len(want) && len(records) == 2*len(want)+2
		})
	}
}
