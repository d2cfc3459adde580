package kubetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// command runs a subcommand with the API server's kubeconfig.
func command(t *testing.T, api *Server, args ...string) (out string, code int) {
	t.Helper()
	file := must(api.Kubeconfig())(t)
	c := exec.CommandContext(t.Context(), must(os.Executable())(t), append(args, "--kubeconfig", file)...)
	c.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1")
	text, _ := c.CombinedOutput()
	return string(text), c.ProcessState.ExitCode()
}

// The command diff reads the objects and the Corefile of the cluster from the API server.
func TestDiff(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	add(t, w.CoreV1().Namespaces(), namespace("shop"))
	add(t, w.CoreV1().Namespaces(), namespace("kube-system"))
	web := service("web", "10.0.0.7")
	web.Namespace = "shop"
	add(t, w.CoreV1().Services("shop"), web)
	d := serve(t, ". {\n kubernetes cluster.local in-addr.arpa {\n  "+kubeconfig(t, api)+"\n  ttl 17\n }\n}\n")
	d.await(lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.7"))

	out, code := command(t, api, "diff", "--quiet", "--against", d.at)
	if !strings.HasPrefix(out, "Comparing with the options of kubeadm's Corefile") || code != 1 {
		t.Errorf("seamark diff without a ConfigMap: got\n%s\nstatus %d, want differences", out, code)
	}
	add(t, w.CoreV1().ConfigMaps("kube-system"), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "coredns"},
		Data:       map[string]string{"Corefile": ".:53 {\n kubernetes cluster.local in-addr.arpa {\n  ttl 17\n  fallthrough\n }\n forward . /etc/resolv.conf\n}\n"},
	})
	if out, code := command(t, api, "diff", "--quiet", "--against", d.at); !strings.Contains(out, " 0 differ, 0 differ as documented") || code != 0 {
		t.Errorf("seamark diff with the server's Corefile: got\n%s\nstatus %d, want no differences", out, code)
	}
	if out, code := command(t, api, "check", "--from-cluster"); out != "/etc/coredns/Corefile: OK\n" || code != 0 {
		t.Errorf("seamark check --from-cluster: got %q, status %d", out, code)
	}
}

// The command doctor recognises a cluster by its nodes, and the server by its pods.
func TestDoctor(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	add(t, w.CoreV1().Namespaces(), namespace("kube-system"))
	kubeDNS := service("kube-dns", "10.0.0.10")
	kubeDNS.Namespace, kubeDNS.Spec.Selector = "kube-system", map[string]string{"k8s-app": "kube-dns"}
	add(t, w.CoreV1().Services("kube-system"), kubeDNS)
	ndots := "2"
	add(t, w.CoreV1().Pods("kube-system"), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "coredns-1", Labels: map[string]string{"k8s-app": "kube-dns"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "coredns", Image: "registry.k8s.io/coredns/coredns:v1.12.1"}},
			DNSConfig:  &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &ndots}}},
		},
	})
	for _, c := range []struct{ name, label, want string }{
		{"EKS", "eks.amazonaws.com/nodegroup", "EKS manages the DNS server"},
		{"GKE", "cloud.google.com/gke-nodepool", "GKE manages the DNS server"},
		{"AKS", "kubernetes.azure.com/cluster", "AKS manages the DNS server"},
		{"OpenShift", "node.openshift.io/os_id", "OpenShift manages the DNS server"},
		{"other", "kubernetes.io/os", "no known manager"},
	} {
		nodes := w.CoreV1().Nodes()
		add(t, nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(c.name), Labels: map[string]string{c.label: "x"}}})
		out, code := command(t, api, "doctor")
		for _, want := range []string{c.want, "it is coredns, version 1.12.1", "no pod is ready", "1 pods: dnsPolicy", "ndots 2 in 1"} {
			if !strings.Contains(out, want) || code != 1 {
				t.Errorf("seamark doctor of %s: got\n%s\nstatus %d, want %q, status 1", c.name, out, code, want)
			}
		}
		if err := nodes.Delete(t.Context(), strings.ToLower(c.name), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
