package kubetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The command query resolves as a pod of the API server: with its namespace, its dnsConfig
// and the address of the Service kube-dns.
func TestQueryPod(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	add(t, w.CoreV1().Namespaces(), namespace("shop"))
	web := service("web", "10.0.0.7")
	web.Namespace = "shop"
	add(t, w.CoreV1().Services("shop"), web)
	ndots := "2"
	add(t, w.CoreV1().Pods("shop"), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "cart"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/c"}},
			DNSConfig:  &corev1.PodDNSConfig{Searches: []string{"example.test"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &ndots}}},
		},
	})
	d := serve(t, "cluster.local {\n kubernetes {\n  "+kubeconfig(t, api)+"\n }\n}\nexample.test {\n whoami\n}\n")
	d.await(lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.7"))

	file := must(api.Kubeconfig())(t)
	query := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), must(os.Executable())(t), append([]string{"query", "--kubeconfig", file}, args...)...)
		c.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1")
		out, _ := c.CombinedOutput()
		return string(out)
	}
	for _, c := range []struct{ args, want string }{
		{"web A --pod shop/cart --server " + d.at, "web.shop.svc.cluster.local. A: NOERROR from " + d.at},
		{"a.b.c A --pod shop/cart --server " + d.at, "a.b.c. A: REFUSED"}, // ndots of the pod
		{"web A --pod shop/none --server " + d.at, `reading /api/v1/namespaces/shop/pods/none from the API server: pods "none" not found`},
		{"web A --pod shop/cart", `reading /api/v1/namespaces/kube-system/services/kube-dns from the API server: services "kube-dns" not found: set --server`},
	} {
		if got := query(strings.Fields(c.args)...); !strings.HasPrefix(got, c.want) {
			t.Errorf("seamark query %s: got\n%s\nwant %s", c.args, got, c.want)
		}
	}
}
