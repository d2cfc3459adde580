package kubetest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod is kube-dns with the containers of Kubernetes' manifest, each as a
// process, alone or behind another server.
type pod struct {
	*testing.T
	kubedns *process
	status  string // kube-dns's: http://HOST:PORT
	metrics string
	probe   string // the query of the manifest's probe
}

// newPod starts kube-dns against srv with the flags of the manifest and more.
func newPod(t *testing.T, srv *Server, more ...string) *pod {
	t.Helper()
	p := &pod{T: t, probe: "kubernetes.default.svc.cluster.local"}
	port, status, metrics := freeport.Reserve(t), freeport.Reserve(t), freeport.Reserve(t)
	p.status, p.metrics = "http://127.0.0.1:"+status, "http://127.0.0.1:"+metrics
	args := append([]string{
		"--domain=cluster.local.", "--dns-port=" + port, "--v=2", "--dns-bind-address=127.0.0.1",
		"--kubecfg-file=" + must(srv.Kubeconfig())(t), "--healthz-port=" + status, "--lameduck=100ms",
	}, more...)
	p.kubedns = program(t, "127.0.0.1:"+port, "kube-dns", []string{"PROMETHEUS_PORT=" + metrics}, args...)
	return p
}

func (p *pod) readiness() int {
	resp, err := http.Get(p.status + "/readiness")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// checkReady waits until the pod is ready.
func (p *pod) checkReady() {
	p.Helper()
	chaintest.Eventually(p.T, "readiness", func() bool { return p.readiness() == http.StatusOK })
}

// sidecar starts a sidecar with the probes of the manifest, of kube-dns and of
// the server at front.
func (p *pod) sidecar(front string) (pages string) {
	p.Helper()
	host, port, _ := net.SplitHostPort(front)
	at := freeport.Reserve(p.T)
	program(p.T, "", "sidecar", nil, "--v=2", "--logtostderr", "--prometheus-addr=127.0.0.1", "--prometheus-port="+at,
		"--dnsmasq-addr="+host, "--dnsmasq-port="+port, "--dnsmasq-poll-interval-ms=1000",
		fmt.Sprintf("--probe=kubedns,%s,%s,1,SRV", p.kubedns.at, p.probe), fmt.Sprintf("--probe=dnsmasq,%s,%s,1,SRV", front, p.probe))
	return "http://127.0.0.1:" + at
}

// healthy waits until the sidecar reports both servers as healthy, and returns
// the page of metrics.
func (p *pod) healthy(pages string) {
	p.Helper()
	for _, label := range []string{"kubedns", "dnsmasq"} {
		last := ""
		chaintest.Eventually(p.T, label+" is healthy", func() bool {
			resp, err := http.Get(pages + "/healthcheck/" + label)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			var health struct {
				IsOk bool
				Err  string
			}
			if err := json.NewDecoder(resp.Body).Decode(&health); err != nil {
				p.Fatal(err)
			}
			if health.Err != last {
				last = health.Err
				p.Logf("%s: %d %s", label, resp.StatusCode, last)
			}
			return resp.StatusCode == http.StatusOK && health.IsOk
		})
	}
}

// value returns the value of a series on a page of metrics, -1 if there is none.
func value(t *testing.T, url, series string) float64 {
	t.Helper()
	_, text := page(t, url+"/metrics")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	return must(strconv.ParseFloat(m[1], 64))(t)
}

// fill creates the objects of every cluster, and a few more.
func (w clusterWriter) fill() {
	w.Helper()
	for _, name := range []string{"default", "shop"} {
		w.namespace(name, nil)
	}
	w.service("default", "kubernetes", "10.0.0.1", nil)
	w.slice("default", "kubernetes", nil, "192.0.2.1")
	w.service("shop", "cart", "None", nil)
	w.slice("shop", "cart", nil, "10.1.0.1", "10.1.0.2")
	must(w.CoreV1().Services("shop").Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "legacy"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.acme.example"},
	}, metav1.CreateOptions{}))(w.T)
}

// The pod of Kubernetes' manifest, with our programs: the probes pass, and names
// of the cluster, of stub domains and of upstreams are answered, through
// ExternalName, too, also while the API server is unavailable. SIGTERM ends each
// program.
func TestKubeDNSPod(t *testing.T) {
	t.Parallel()
	srv := start(t)
	writer(t, srv).fill()
	world := upstream(t, "www.example. 60 IN A 203.0.113.1", "1.113.0.203.in-addr.arpa. 60 IN PTR www.example.")
	acme := upstream(t, "db.acme.example. 60 IN A 203.0.113.2")
	maps := newVolume(t, map[string]string{
		"upstreamNameservers": fmt.Sprintf("[%q]", world), "stubDomains": fmt.Sprintf("{%q: [%q]}", "acme.example", acme),
	})
	p := newPod(t, srv, "--config-dir="+maps.dir)
	p.checkReady()
	front := freeport.Reserve(t)
	kubedns := strings.Replace(p.kubedns.at, ":", "#", 1)
	nanny := program(t, "127.0.0.1:"+front, "dnsmasq-nanny", nil,
		"-v=2", "-logtostderr", "-configDir="+maps.dir, "-restartDnsmasq=true", "-lameduck=100ms", "--",
		"-k", "--cache-size=1000", "--no-negcache", "--dns-loop-detect", "--log-facility=-",
		"--server=/cluster.local/"+kubedns, "--server=/in-addr.arpa/"+kubedns, "--server=/ip6.arpa/"+kubedns,
		"--port="+front, "--listen-address=127.0.0.1", "--no-hosts")
	nanny.await(lookupA("kubernetes.default.svc.cluster.local", "NOERROR 10.0.0.1"))
	pages := p.sidecar(nanny.at)
	p.healthy(pages)

	cluster := []lookup{
		lookupA("kubernetes.default.svc.cluster.local", "NOERROR 10.0.0.1"),
		lookupA("cart.shop.svc.cluster.local", "NOERROR 10.1.0.1 10.1.0.2"),
		lookupA("10-1-0-1.cart.shop.svc.cluster.local", "NOERROR 10.1.0.1"),
		lookupA("missing.shop.svc.cluster.local", "NXDOMAIN"),
		lookupAAAA("kubernetes.default.svc.cluster.local", "NOERROR"),
		lookupSRV("_HTTP._tcp.kubernetes.default.svc.cluster.local", "NOERROR 10 100 80 kubernetes.default.svc.cluster.local."),
		lookupPTR("1.0.0.10.in-addr.arpa", "NOERROR kubernetes.default.svc.cluster.local."),
		lookupA("cart.*.svc.cluster.local", "NOERROR 10.1.0.1 10.1.0.2"),
		lookupA("1-2-3-4.shop.pod.cluster.local", "NOERROR 1.2.3.4"),
	}
	outside := []lookup{
		lookupA("legacy.shop.svc.cluster.local", "NOERROR 203.0.113.2 db.acme.example."),
		lookupA("db.acme.example", "NOERROR 203.0.113.2"),
		lookupA("www.example", "NOERROR 203.0.113.1"),
		lookupPTR("1.113.0.203.in-addr.arpa", "NOERROR www.example."),
		lookupA("missing.example", "NXDOMAIN"),
	}
	for _, d := range []*process{p.kubedns, nanny} {
		d.check(cluster...)
		d.await(outside...)
	}

	// The metrics of dashboards.
	if n := value(t, p.metrics, `skydns_skydns_dns_request_count_total{system="auth"}`); n < 1 {
		t.Errorf("counted queries for names of the cluster: got %v, want at least 1", n)
	}
	for _, series := range []string{`skydns_skydns_dns_error_count_total{system="auth",cause="nxdomain"}`, "process_resident_memory_bytes", `skydns_skydns_dns_request_duration_seconds_count{system="recursive"}`} {
		if n := value(t, p.metrics, series); n < 1 {
			t.Errorf("%s: got %v, want at least 1", series, n)
		}
	}
	before := value(t, pages, "kubedns_dnsmasq_hits")
	for range 5 {
		nanny.check(lookupA("www.example", "NOERROR 203.0.113.1"))
	}
	chaintest.Eventually(t, "10 more cache hits", func() bool { return value(t, pages, "kubedns_dnsmasq_hits") >= before+10 })
	for series, ok := range map[string]func(float64) bool{
		"kubedns_dnsmasq_misses":                 func(n float64) bool { return n > 0 },
		"kubedns_dnsmasq_insertions":             func(n float64) bool { return n > 0 },
		"kubedns_dnsmasq_evictions":              func(n float64) bool { return n == 0 },
		"kubedns_dnsmasq_max_size":               func(n float64) bool { return n == 1000 },
		"kubedns_dnsmasq_errors":                 func(n float64) bool { return n == 0 },
		"kubedns_probe_kubedns_errors":           func(n float64) bool { return n == 0 },
		"kubedns_probe_dnsmasq_latency_ms_count": func(n float64) bool { return n > 0 },
	} {
		if n := value(t, pages, series); !ok(n) {
			t.Errorf("%s: got %v, not in the expected range", series, n)
		}
	}
	code, tree := page(t, p.status+"/cache")
	var root map[string]any
	if err := json.Unmarshal([]byte(tree), &root); err != nil || code != http.StatusOK || !strings.Contains(tree, `"host": "10.0.0.1"`) {
		t.Errorf("/cache: got %d, error %v,\n%s\nwant 200 and the address 10.0.0.1", code, err, tree)
	}

	srv.StopAPI()
	p.kubedns.check(cluster...)
	nanny.check(outside...)
	if p.readiness() != http.StatusOK {
		t.Error("readiness without the API server: want 200")
	}
	p.healthy(pages)
	nanny.terminate()
	p.kubedns.terminate()
}

// The real dnsmasq in front of our kube-dns, as in a pod with one image that has
// been replaced, and our sidecar beside them.
func TestKubeDNSBehindDnsmasq(t *testing.T) {
	t.Parallel()
	dnsmasq := debian.Program(t, "dnsmasq")
	srv := start(t)
	writer(t, srv).fill()
	p := newPod(t, srv)
	p.checkReady()
	port := freeport.Reserve(t)
	kubedns := strings.Replace(p.kubedns.at, ":", "#", 1)
	front := exec.Command(dnsmasq, "-k", "--cache-size=1000", "--no-negcache", "--dns-loop-detect", "--log-facility=-",
		"--server=/cluster.local/"+kubedns, "--server=/in-addr.arpa/"+kubedns, "--server=/ip6.arpa/"+kubedns,
		"--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--port="+port, "--listen-address=127.0.0.1", "--bind-interfaces", "--user=", "--pid-file=")
	front.Stdout, front.Stderr = t.Output(), t.Output()
	if err := front.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = front.Process.Kill(); _ = front.Wait() })
	d := &daemon{T: t, at: "127.0.0.1:" + port}
	chaintest.Eventually(t, "dnsmasq answers", func() bool {
		return d.ask("udp", lookupA("kubernetes.default.svc.cluster.local", "")) == "NOERROR 10.0.0.1"
	})
	d.check(
		lookupSRV("_HTTP._tcp.kubernetes.default.svc.cluster.local", "NOERROR 10 100 80 kubernetes.default.svc.cluster.local."),
		lookupA("cart.shop.svc.cluster.local", "NOERROR 10.1.0.1 10.1.0.2"),
		lookupPTR("1.0.0.10.in-addr.arpa", "NOERROR kubernetes.default.svc.cluster.local."),
		lookupA("missing.shop.svc.cluster.local", "NXDOMAIN"),
	)
	p.healthy(p.sidecar(d.at))
}

// kube-dns answered no query before it had the cluster's data, not even for external
// names, and exited after a minute. Here only names that depend on the data get
// SERVFAIL, without a time limit.
func TestKubeDNSWithoutAPIServer(t *testing.T) {
	t.Parallel()
	srv := start(t)
	writer(t, srv).fill()
	srv.StopAPI()
	world := upstream(t, "www.example. 60 IN A 203.0.113.1")
	p := newPod(t, srv, "--nameservers="+world, "--initial-sync-timeout=1s")
	p.kubedns.await(lookupA("www.example", "NOERROR 203.0.113.1"))
	p.kubedns.check(lookupA("kubernetes.default.svc.cluster.local", "SERVFAIL"), lookupPTR("1.0.0.10.in-addr.arpa", "SERVFAIL"))
	if code := p.readiness(); code != http.StatusServiceUnavailable {
		t.Errorf("readiness before the first list: got %d, want 503", code)
	}
	chaintest.Eventually(t, "the missing objects in the log", func() bool { return p.kubedns.logs("Objects not received yet") == 1 })
	p.kubedns.check(lookupA("www.example", "NOERROR 203.0.113.1"))
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.checkReady()
	p.kubedns.check(lookupA("kubernetes.default.svc.cluster.local", "NOERROR 10.0.0.1"))
	srv.StopAPI()
	if code := p.readiness(); code != http.StatusOK {
		t.Errorf("readiness when the API server has stopped: got %d, want 200", code)
	}
}

// With --config-map, one object is followed by its name: in kube-dns any other
// object of the namespace changed the configuration, and its deletion reset it.
func TestKubeDNSConfigMapFromAPI(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	w.fill()
	maps := w.CoreV1().ConfigMaps("kube-system")
	first := upstream(t, "www.example. 1 IN A 203.0.113.1", "db.acme.example. 1 IN A 203.0.113.1")
	second := upstream(t, "www.example. 1 IN A 203.0.113.2", "db.acme.example. 1 IN A 203.0.113.2")
	write := func(name, ups, stub string, create bool) {
		t.Helper()
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{
			"upstreamNameservers": fmt.Sprintf("[%q]", ups), "stubDomains": fmt.Sprintf("{%q: [%q]}", "acme.example", stub),
		}}
		if create {
			must(maps.Create(t.Context(), c, metav1.CreateOptions{}))(t)
		} else {
			must(maps.Update(t.Context(), c, metav1.UpdateOptions{}))(t)
		}
	}
	write("kube-dns", first, first, true)
	write("another", second, second, true)
	p := newPod(t, srv, "--config-map=kube-dns")
	p.checkReady()
	p.kubedns.check(lookupA("www.example", "NOERROR 203.0.113.1"), lookupA("db.acme.example", "NOERROR 203.0.113.1"))
	write("another", first, second, false)
	if err := maps.Delete(t.Context(), "another", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	write("kube-dns", first, second, false)
	// The stub domain has another server, so its cached answers are dropped;
	// others are kept.
	p.kubedns.awaitChange("another server", lookupA("db.acme.example", "NOERROR 203.0.113.2"))
	p.kubedns.check(lookupA("www.example", "NOERROR 203.0.113.1"))
	write("kube-dns", "1.1.1.1:123456789", second, false)
	chaintest.Eventually(t, "the refused ConfigMap in the log", func() bool { return p.kubedns.logs("Refused kube-dns's ConfigMap") == 1 })
	p.kubedns.check(lookupA("db.acme.example", "NOERROR 203.0.113.2"), lookupA("www.example", "NOERROR 203.0.113.1"))
	if n := value(t, p.metrics, `seamark_kubedns_config_valid{source="kube-system/kube-dns"}`); n != 0 {
		t.Errorf("seamark_kubedns_config_valid: got %v, want 0", n)
	}
	p.kubedns.check(lookupA("kubernetes.default.svc.cluster.local", "NOERROR 10.0.0.1"))
}

// A ConfigMap alternates between valid and invalid data: the last valid state is
// served, each change is logged once, and no query is lost.
func TestKubeDNSConfigAlternates(t *testing.T) {
	t.Parallel()
	srv := start(t)
	writer(t, srv).fill()
	world := upstream(t, "www.example. 1 IN A 203.0.113.1", "db.acme.example. 1 IN A 203.0.113.1")
	good := func(stub string) map[string]string {
		return map[string]string{"upstreamNameservers": fmt.Sprintf("[%q]", world), "stubDomains": fmt.Sprintf("{%q: [%q], %q: [%q]}", "acme.example", world, stub, world)}
	}
	bad := []map[string]string{
		{"upstreamNameservers": `["1.1.1.1:123456789"]`}, {"stubDomains": "$$$$"}, {"upstreamNameservers": `["1.1.1.1","2.2.2.2","3.3.3.3","4.4.4.4"]`},
		{"stubDomains": "\xff\xfe"}, {"stubDomains": `{"acme.example": ["10.0.`}, {"federations": "a_b=c"},
	}
	maps := newVolume(t, good("a.example"))
	p := newPod(t, srv, "--config-dir="+maps.dir, "--v=4") // This level logs reloads.
	p.checkReady()
	load := p.kubedns.startLoad(
		lookupA("www.example", "NOERROR 203.0.113.1"), lookupA("db.acme.example", "NOERROR 203.0.113.1"),
		lookupA("kubernetes.default.svc.cluster.local", "NOERROR 10.0.0.1"),
	)
	for i := range 30 {
		maps.change(bad[i%len(bad)])
		chaintest.Eventually(t, "the refused ConfigMap in the log", func() bool { return p.kubedns.logs("Refused kube-dns's ConfigMap") == i+1 })
		maps.change(good(fmt.Sprintf("x%d.example", i/2)))
		if i%2 == 0 {
			chaintest.Eventually(t, "a completed reload in the log", func() bool { return p.kubedns.logs("Reloading complete") == i/2+1 })
		} else {
			chaintest.Eventually(t, "the unchanged valid ConfigMap in the log", func() bool { return p.kubedns.logs("is valid again and unchanged") == i/2+1 })
		}
	}
	load.stop()
	if n := p.kubedns.logs("Reload failed"); n != 0 {
		t.Errorf("failed reloads: got %d, want 0", n)
	}
	if n := value(t, p.metrics, fmt.Sprintf(`seamark_kubedns_config_updates_total{source=%q,result="invalid"}`, maps.dir)); n != 30 {
		t.Errorf("counted invalid states: got %v, want 30", n)
	}
}

// A hosts file in a ConfigMap, with dnsmasq's option, is read again when it
// changes, which required a new pod.
func TestNannyHostsFileChanges(t *testing.T) {
	t.Parallel()
	world := upstream(t, "www.example. 60 IN A 203.0.113.1")
	maps := newVolume(t, map[string]string{"key": "10.2.0.1 node1.hadoop\n"})
	port := freeport.Reserve(t)
	nanny := program(t, "127.0.0.1:"+port, "dnsmasq-nanny", nil, "-logtostderr", "-lameduck=0s", "-configDir="+t.TempDir(), "--",
		"-k", "--cache-size=1000", "--no-resolv", "--server="+strings.Replace(world, ":", "#", 1),
		"--addn-hosts="+filepath.Join(maps.dir, "key"), "--no-hosts", "--port="+port, "--listen-address=127.0.0.1")
	nanny.await(lookupA("node1.hadoop", "NOERROR 10.2.0.1"), lookupA("www.example", "NOERROR 203.0.113.1"))
	load := nanny.startLoad(lookupA("www.example", "NOERROR 203.0.113.1"), lookupA("node1.hadoop", "NOERROR 10.2.0.1"))
	for i := range 20 {
		maps.change(map[string]string{"key": fmt.Sprintf("10.2.0.1 node1.hadoop\n10.2.0.2 node%d.hadoop\n", i+2)})
		nanny.awaitChange("a new line", lookupA(fmt.Sprintf("node%d.hadoop", i+2), "NOERROR 10.2.0.2"))
	}
	load.stop()
	nanny.terminate()
}

// version queries a name in class CH.
func version(t *testing.T, at, name string) string {
	t.Helper()
	m := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	reply, _, err := (&dns.Client{Timeout: replyTime}).Exchange(m, at)
	return answer(reply, err)
}

func TestKubeDNSChaos(t *testing.T) {
	t.Parallel()
	srv := start(t)
	writer(t, srv).fill()
	p := newPod(t, srv)
	p.checkReady()
	for _, name := range []string{"version.bind.", "version.server.", "authors.bind.", "hostname.bind.", "id.server."} {
		if got := version(t, p.kubedns.at, name); !strings.HasPrefix(got, "NOERROR \"") {
			t.Errorf("%s CH TXT: got %s, want a text", name, got)
		}
	}
}
