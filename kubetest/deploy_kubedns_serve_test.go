package kubetest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/test/chaintest"
)

// The binary, with the command lines of deploy/kube-dns on their ports, against a
// real API server: every port answers and every probe succeeds, in each form.
func TestKubeDNSManifestsServe(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	inOwnNetwork(t, serveKubeDNS)
}

func serveKubeDNS(t *testing.T) {
	srv := start(t)
	kubernetes := writer(t, srv)
	kubernetes.namespace("default", nil)
	kubernetes.namespace("kube-system", nil)
	name, number, protocol := "https", int32(443), corev1.ProtocolTCP
	must(kubernetes.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Name: name, Port: number, Protocol: protocol}}},
	}, metav1.CreateOptions{}))(t)
	must(kubernetes.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}}}, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &protocol}},
	}, metav1.CreateOptions{}))(t)
	// The mounted ConfigMap and the one in the API have the same data: a stub
	// domain whose server is this server, at another address.
	data := map[string]string{"stubDomains": `{"stub.example": ["127.0.0.9:5300"]}`, "upstreamNameservers": `["127.0.0.9:5300"]`, "federations": "east=east.example"}
	mount := t.TempDir()
	for key, value := range data {
		if err := os.WriteFile(filepath.Join(mount, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(kubernetes.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-dns"}, Data: data}, metav1.CreateOptions{}))(t)
	other := &dns.Server{Addr: "127.0.0.9:5300", Net: "udp", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		if rr, err := dns.NewRR(m.Question[0].Name + " 5 A 192.0.2.9"); err == nil && m.Question[0].Qtype == dns.TypeA {
			reply.Answer = append(reply.Answer, rr)
		}
		_ = w.WriteMsg(reply)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = other.ListenAndServe()
	}()
	t.Cleanup(func() {
		_ = other.Shutdown()
		<-ended
	})
	forms := kubeDNSForms(t)
	for _, form := range slices.Sorted(maps.Keys(forms)) {
		servePod(t, form, forms[form].Spec.Template.Spec, must(srv.Kubeconfig())(t), mount)
	}
}

// servePod runs a pod's containers, checks them from outside, and stops them.
func servePod(t *testing.T, form string, pod corev1.PodSpec, kubeconfig, mount string) {
	t.Helper()
	var running []*exec.Cmd
	for _, c := range pod.Containers {
		p := exec.CommandContext(t.Context(), must(os.Executable())(t), c.Command[1])
		if c.Command[1] == "kube-dns" {
			p.Args = append(p.Args, "--kubecfg-file="+kubeconfig)
		}
		for _, arg := range c.Args {
			for _, m := range c.VolumeMounts {
				arg = strings.Replace(arg, m.MountPath, mount, 1)
			}
			p.Args = append(p.Args, arg)
		}
		p.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1")
		for _, e := range c.Env {
			p.Env = append(p.Env, e.Name+"="+e.Value)
		}
		p.Stdout, p.Stderr = t.Output(), t.Output()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, p)
	}
	defer func() {
		for _, p := range running {
			_ = p.Process.Signal(syscall.SIGKILL)
			_ = p.Wait()
		}
	}()
	for _, c := range pod.Containers {
		for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
			if probe != nil {
				at := fmt.Sprintf("http://127.0.0.1:%d%s", probe.HTTPGet.Port.IntValue(), probe.HTTPGet.Path)
				chaintest.Eventually(t, form+": "+at, func() bool { return podPage(at) != "" })
			}
		}
		for _, p := range c.Ports {
			at := fmt.Sprintf("127.0.0.1:%d", p.ContainerPort)
			if !strings.HasPrefix(p.Name, "dns") {
				if podPage("http://"+at+"/metrics") == "" {
					t.Errorf("%s: container %s: got no metrics at %s, want some", form, c.Name, at)
				}
				continue
			}
			client := dns.Client{Net: strings.ToLower(string(p.Protocol)), Timeout: replyTime}
			for name, want := range map[string]string{"kubernetes.default.svc.cluster.local.": "10.96.0.1", "a.stub.example.": "192.0.2.9", "a.example.": "192.0.2.9", "kubernetes.default.east.svc.cluster.local.": "10.96.0.1"} {
				if p.Protocol == corev1.ProtocolTCP && want == "192.0.2.9" {
					continue // the other server has no TCP
				}
				reply, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), at)
				if err != nil || !strings.Contains(reply.String(), want) {
					t.Errorf("%s: %s at %s: got %v, error %v, want %s", form, name, at, reply, err, want)
				}
			}
		}
	}
	// The metrics that dashboards use, with their values.
	if text := podPage("http://127.0.0.1:10055/metrics"); !strings.Contains(text, "skydns_skydns_dns_request_count_total{") {
		t.Errorf("%s: got metrics\n%s\nwant skydns_skydns_dns_request_count_total", form, text)
	}
	if len(pod.Containers) == 1 {
		return
	}
	for _, label := range []string{"kubedns", "dnsmasq"} {
		chaintest.Eventually(t, form+": the sidecar's probe "+label, func() bool { return podPage("http://127.0.0.1:10054/healthcheck/"+label) != "" })
	}
	chaintest.Eventually(t, form+": the sidecar's metrics", func() bool {
		text := podPage("http://127.0.0.1:10054/metrics")
		size := strings.Contains(text, "\nkubedns_dnsmasq_max_size ") && !strings.Contains(text, "\nkubedns_dnsmasq_max_size 0\n")
		return size && strings.Contains(text, "\nkubedns_probe_dnsmasq_latency_ms_count ")
	})
}

// podPage returns the page at a URL, "" if there is none.
func podPage(at string) string {
	reply, err := http.Get(at)
	if err != nil {
		return ""
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return ""
	}
	text, _ := io.ReadAll(reply.Body)
	return string(text)
}
