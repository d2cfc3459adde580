package kubetest

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The command ui finds a ready pod by its labels, and opens the page of its directive admin
// through the API server.
func TestUIPortForward(t *testing.T) {
	t.Parallel()
	api, admin := start(t), freeAddress(t)
	serve(t, ". {\n admin "+admin+"\n whoami\n}\n")
	k := client(t, api.Config())
	for name, ready := range map[string]corev1.ConditionStatus{"seamark-0": corev1.ConditionFalse, "seamark-1": corev1.ConditionTrue} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": "seamark"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "seamark", Image: "seamark"}}}}
		pod = must(k.CoreV1().Pods("kube-system").Create(t.Context(), pod, metav1.CreateOptions{}))(t)
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		must(k.CoreV1().Pods("kube-system").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))(t)
	}
	forward := httputil.NewSingleHostReverseProxy(must(url.Parse(api.URL()))(t))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: api.pool()}}
	t.Cleanup(transport.CloseIdleConnections)
	forward.Transport = transport
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/namespaces/kube-system/pods/seamark-1/portforward":
			portForward(w, r, admin)
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(file, &clientcmdapi.Cluster{Server: front.URL}); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), must(os.Executable())(t), append([]string{"ui", "--no-browser", "--kubeconfig", file}, args...)...)
		c.Env = append(os.Environ(), "SEAMARK_TEST_MAIN=1")
		return c
	}
	ui := command()
	out := bufio.NewReader(must(ui.StdoutPipe())(t))
	ui.Stderr = os.Stderr
	if err := ui.Start(); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(must(out.ReadString('\n'))(t))
	pages := &http.Client{Jar: must(cookiejar.New(nil))(t), Transport: new(http.Transport)}
	t.Cleanup(pages.CloseIdleConnections)
	reply := must(pages.Get(address))(t)
	text := string(must(io.ReadAll(reply.Body))(t))
	_ = reply.Body.Close()
	if reply.StatusCode != 200 || !strings.Contains(text, `aria-current="page">Overview</a>`) {
		t.Errorf("%s: got %d %s, want the overview", address, reply.StatusCode, text)
	}
	if err := ui.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := ui.Wait(); err != nil {
		t.Errorf("after SIGINT: got %v, want status 0", err)
	}
	for args, want := range map[string]string{
		"--selector app=none":            "no pod of the namespace kube-system has the labels app=none",
		"--pod kube-system/seamark-0":    "no server at kube-system/seamark-0 port 8053",
		"--pod seamark":                  "pods \"seamark\" not found",
		"--pod a/b/c":                    "--pod: want NAME or NAMESPACE/NAME",
		"--pod a/b --admin localhost:80": "set only one of --admin and --pod",
	} {
		if text, err := command(strings.Fields(args)...).CombinedOutput(); err == nil || !strings.Contains(string(text), want) {
			t.Errorf("ui %s: got error %v and\n%s, want %q", args, err, text, want)
		}
	}
}
