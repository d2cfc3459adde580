package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/operate/resolvconf"
	"github.com/seamark/seamark/operate/stub"
	"github.com/seamark/seamark/test/program"
)

// fakeAPI serves objects by the path of their URL, and reviews of permissions: a verb and a
// resource in denied are not allowed. A value that is a number is the code of an error. It
// returns the path of a kubeconfig.
func fakeAPI(t *testing.T, objects map[string]string, denied ...string) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if s := r.URL.Query().Get("labelSelector"); s != "" {
			path += "?" + s
		}
		var code int
		text, ok := objects[path]
		switch {
		case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
			body, err := io.ReadAll(r.Body)
			var review struct {
				Spec struct {
					ResourceAttributes struct{ Verb, Resource, Subresource string }
				}
			}
			if err := json.Unmarshal(body, &review); err != nil || r.Method != http.MethodPost {
				t.Errorf("%s %s: error %v", r.Method, body, err)
			}
			a := review.Spec.ResourceAttributes
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"status":{"allowed":%v}}`, err == nil && !slices.Contains(denied, strings.TrimRight(a.Verb+" "+a.Resource+"/"+a.Subresource, "/")))
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"kind":"Status","status":"Failure","message":"%s not found","code":404}`, r.URL.Path)
		default:
			if _, err := fmt.Sscan(text, &code); err == nil {
				w.WriteHeader(code)
				text = `{"kind":"Status","status":"Failure","message":"the account may not read this"}`
			}
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {cluster: c, user: u}\nusers:\n- name: u\nclusters:\n- name: c\n  cluster: {server: '"+server.URL+"'}\n")
	return file
}

const (
	systemPods  = "/api/v1/namespaces/kube-system/pods?"
	configMaps  = "/api/v1/namespaces/kube-system/configmaps/"
	kubednsPath = "/api/v1/namespaces/kube-system/services/kube-dns"
)

// healthy returns the objects of a cluster without a finding that needs attention.
func healthy() map[string]string {
	pod := `{"metadata":{"ownerReferences":[{"kind":"ReplicaSet","name":"coredns-1"}]},"spec":{"containers":[{"name":"coredns","image":"registry.k8s.io/coredns/coredns:v1.12.1@sha256:abc"}]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	return map[string]string{
		"/version":                      `{"gitVersion":"v1.36.0"}`,
		kubednsPath:                     `{"metadata":{"name":"kube-dns","namespace":"kube-system"},"spec":{"clusterIP":"10.96.0.10","selector":{"k8s-app":"kube-dns"},"ports":[{"protocol":"UDP","port":53},{"protocol":"TCP","port":53}]}}`,
		systemPods + "k8s-app=kube-dns": `{"items":[` + pod + `,` + pod + `]}`,
		"/api/v1/nodes":                 `{"items":[{"metadata":{"labels":{"kubernetes.io/hostname":"n"}}}]}`,
		"/api/v1/pods":                  `{"items":[{"spec":{}},{"spec":{"dnsPolicy":"Default"}},{"spec":{"dnsConfig":{"searches":["a","b","c","d"],"options":[{"name":"ndots","value":"2"}]}}}]}`,
		configMaps + "kube-proxy":       `{"data":{"config.conf":"kind: KubeProxyConfiguration\nmode: \"nftables\"\n"}}`,
		configMaps + "coredns":          `{"data":{"Corefile":".:53 {\n    kubernetes cluster.local in-addr.arpa\n    import /etc/coredns/custom/*.override\n}\n"}}`,
	}
}

type doctorReport struct {
	Kubernetes, Server, Version string
	Findings                    []struct{ Subject, Level, Text, Next string }
}

// has reports whether there is a finding with the texts.
func (r doctorReport) has(level, subject, text, next string) bool {
	for _, f := range r.Findings {
		if f.Level == level && f.Subject == subject && strings.Contains(f.Text, text) && strings.Contains(f.Next, next) {
			return true
		}
	}
	return false
}

func examine(t *testing.T, kubeconfig string) (report doctorReport, code int) {
	t.Helper()
	out, stderr, code := run(t, t.TempDir(), "", "doctor", "--kubeconfig", kubeconfig, "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || stderr != "" {
		t.Fatalf("seamark doctor: got %q, error output %q, status %d, want JSON and no error output", out, stderr, code)
	}
	return report, code
}

func TestDoctorHealthy(t *testing.T) {
	report, code := examine(t, fakeAPI(t, healthy()))
	for _, want := range [][4]string{
		{"info", "DNS server", "address 10.96.0.10 and 2 pods, 2 of them ready (ReplicaSet)", "seamark diff --against 10.96.0.10"},
		{"info", "DNS server", "it is coredns, version 1.12.1", ""},
		{"info", "kube-proxy", "mode nftables", ""},
		{"info", "node-local cache", "there is none", ""},
		{"info", "managed add-on", "no known manager", ""},
		{"info", "workloads", "3 pods: dnsPolicy ClusterFirst in 2, Default in 1; dnsConfig in 1", ""},
		{"info", "workloads", "ndots 2 in 1, 5 (default) in 1, of the node or of the pod in 1", ""},
		{"warning", "workloads", "1 pods have 4 search domains", "shorten"},
		{"info", "permissions", "has all permissions", ""},
		{"info", "configuration", "/etc/coredns/Corefile: Seamark accepts it", ""},
	} {
		if !report.has(want[0], want[1], want[2], want[3]) {
			t.Errorf("seamark doctor: got %+v, want %q", report, want)
		}
	}
	if code != 0 || report.Server != "coredns" || report.Version != "1.12.1" || report.Kubernetes != "v1.36.0" {
		t.Errorf("seamark doctor: got %+v, status %d, want CoreDNS 1.12.1, Kubernetes v1.36.0 and status 0", report, code)
	}
}

func TestDoctorFindings(t *testing.T) {
	pods := func(image, conditions string) string {
		return `{"items":[{"spec":{"containers":[{"image":"` + image + `"}]},"status":{"conditions":[` + conditions + `]}}]}`
	}
	ready := `{"type":"Ready","status":"True"}`
	for _, c := range []struct {
		name, path, object         string
		level, subject, text, next string
		code                       int
	}{
		{"no Service", kubednsPath, "404", "warning", "DNS server", "no Service kube-dns", "resolv.conf", 0},
		{"forbidden", kubednsPath, "403", "warning", "DNS server", "the account may not read this", "grant", 0},
		{"no selector", kubednsPath, `{"spec":{}}`, "warning", "DNS server", "no selector", "", 0},
		{"no TCP", kubednsPath, `{"metadata":{"namespace":"kube-system"},"spec":{"selector":{"k8s-app":"kube-dns"}}}`, "warning", "DNS server", "no port 53/TCP", "add", 0},
		{"no pods", systemPods + "k8s-app=kube-dns", `{}`, "error", "DNS server", "no pod is behind", "kubectl", 1},
		{"not ready", systemPods + "k8s-app=kube-dns", pods("coredns:1.11.1", ""), "error", "DNS server", "no pod is ready", "describe", 1},
		{"one pod", systemPods + "k8s-app=kube-dns", pods("coredns:1.11.1", ready), "warning", "DNS server", "a single pod", "two replicas", 0},
		{"kube-dns", systemPods + "k8s-app=kube-dns", pods("registry.k8s.io/dns/k8s-dns-kube-dns:1.22.28", ready), "info", "DNS server", "it is kube-dns, version 1.22.28", "seamark convert", 0},
		{"EKS image", systemPods + "k8s-app=kube-dns", pods("602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/coredns:v1.11.4-eksbuild.2", ready), "info", "DNS server", "version 1.11.4-eksbuild.2", "", 0},
		{"other image", systemPods + "k8s-app=kube-dns", pods("example.com:5000/dns\\u001b[31m", ready), "warning", "DNS server", `not one of CoreDNS, kube-dns or Seamark: example.com:5000/dns\x1b[31m`, "", 0},
		{"two Deployments", "/apis/apps/v1/namespaces/kube-system/deployments?k8s-app=kube-dns", `{"items":[{},{}]}`, "error", "DNS server", "multiple DNS addon", "remove the label", 1},
		{"Helm", "/apis/apps/v1/namespaces/kube-system/deployments?k8s-app=kube-dns", `{"items":[{"metadata":{"name":"dns","labels":{"app.kubernetes.io/managed-by":"Helm"}}}]}`, "warning", "managed add-on", "Deployment dns: the next helm upgrade", "set replicaCount: 0", 0},
		{"Argo CD", "/apis/apps/v1/namespaces/kube-system/deployments?k8s-app=kube-dns", `{"items":[{"metadata":{"name":"dns","annotations":{"argocd.argoproj.io/tracking-id":"x"}}}]}`, "warning", "managed add-on", "Deployment dns: Argo CD restores", "exclude the replicas", 0},
		{"Seamark beside it", "/apis/apps/v1/namespaces/kube-system/deployments?app.kubernetes.io/name=seamark", `{"items":[{"metadata":{"name":"seamark"}}]}`, "info", "DNS server", "Seamark runs beside it: the Deployment seamark", "seamark canary status", 0},
		{"host network", "/api/v1/pods", `{"items":[{"spec":{"hostNetwork":true}},{"spec":{"hostNetwork":true,"dnsPolicy":"ClusterFirst"}},{"spec":{"hostNetwork":true,"dnsPolicy":"ClusterFirstWithHostNet"}},{"spec":{"hostNetwork":false}}]}`, "info", "workloads", "ndots 5 (default) in 2, of the node or of the pod in 2", "", 0},
		{"no ConfigMap", configMaps + "coredns", "404", "warning", "configuration", "not examined", "seamark check FILE", 0},
		{"ipvs", configMaps + "kube-proxy", `{"data":{"config.conf":"mode: ipvs\n"}}`, "warning", "kube-proxy", "mode ipvs", "keep the old pods", 0},
		{"node-local", systemPods + "k8s-app in (node-local-dns)", `{"items":[{}]}`, "warning", "node-local cache", "NodeLocal DNSCache", "port-forward", 0},
		{"EKS", "/version", `{"gitVersion":"v1.33.1-eks-595af52"}`, "warning", "managed add-on", "EKS", "--preserve", 0},
		{"GKE", "/version", `{"gitVersion":"v1.33.1-gke.100"}`, "warning", "managed add-on", "GKE", "restores", 0},
		{"k3s", "/version", `{"gitVersion":"v1.33.1+k3s1"}`, "warning", "managed add-on", "k3s", "--disable=coredns", 0},
		{"RKE2", "/version", `{"gitVersion":"v1.33.1+rke2r1"}`, "warning", "managed add-on", "RKE2", "HelmChartConfig", 0},
		{"AKS", "/api/v1/nodes", `{"items":[{"metadata":{"labels":{"kubernetes.azure.com/cluster":"c"}}}]}`, "warning", "managed add-on", "AKS", "coredns-custom", 0},
		{"OpenShift", "/api/v1/nodes", `{"items":[{"metadata":{"labels":{"node.openshift.io/os_id":"rhel"}}}]}`, "warning", "managed add-on", "OpenShift", "Unmanaged", 0},
		{"kubeadm", configMaps + "kubeadm-config", `{}`, "warning", "managed add-on", "kubeadm", "kubeadm upgrade keeps the replicas", 0},
		{"Corefile", configMaps + "coredns", `{"data":{"Corefile":".:53 {\n whoam\n}\n"}}`, "error", "configuration", "/etc/coredns/Corefile:2: unknown directive \"whoam\"", "check --from-cluster", 1},
		{"no Corefile", configMaps + "coredns", `{}`, "warning", "configuration", "no key Corefile", "", 0},
		{"not JSON", "/api/v1/pods", `<html>`, "warning", "workloads", "not examined: reading /api/v1/pods: got a web page, want JSON", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			objects := healthy()
			objects[c.path] = c.object
			if report, code := examine(t, fakeAPI(t, objects)); !report.has(c.level, c.subject, c.text, c.next) || code != c.code {
				t.Errorf("seamark doctor: got %+v, status %d, want %+v", report, code, c)
			}
		})
	}
	report, code := examine(t, fakeAPI(t, healthy(), "watch endpointslices", "create pods/portforward"))
	if !report.has("error", "permissions", "may not watch endpointslices.discovery.k8s.io", "kubectl create clusterrole") || !report.has("warning", "permissions", "may not create pods/portforward", "") || code != 1 {
		t.Errorf("seamark doctor with permissions missing: got %+v, status %d, want an error for endpointslices, a warning for pods/portforward and status 1", report, code)
	}
}

// Doctor draws no conclusion from objects that the account may not read.
func TestDoctorForbidden(t *testing.T) {
	objects := healthy()
	for path := range objects {
		if path != "/version" {
			objects[path] = "403"
		}
	}
	for _, path := range []string{"k8s-app in (kube-proxy)", "component in (kube-proxy)", "k8s-app in (cilium)", "k8s-app in (node-local-dns)"} {
		objects[systemPods+path] = "403"
	}
	objects[configMaps+"kubeadm-config"] = "403"
	report, _ := examine(t, fakeAPI(t, objects))
	counts := map[string]int{}
	for _, f := range report.Findings {
		counts[f.Subject]++
		if f.Subject != "permissions" && !strings.HasPrefix(f.Text, "not examined: ") {
			t.Errorf("seamark doctor without permissions: got the finding %+v, want only findings of subjects that were not examined", f)
		}
	}
	for _, subject := range []string{"DNS server", "kube-proxy", "node-local cache", "managed add-on", "workloads"} {
		if counts[subject] != 1 {
			t.Errorf("seamark doctor without permissions: got %d findings of the subject %s, want 1", counts[subject], subject)
		}
	}
}

// An API server that rejects the credentials ends the command with its message.
func TestDoctorUnauthorized(t *testing.T) {
	out, stderr, code := run(t, t.TempDir(), "", "doctor", "--kubeconfig", fakeAPI(t, map[string]string{"/version": "401"}))
	if out != "" || stderr != "seamark: reading /version from the API server: the account may not read this\n" || code != 2 {
		t.Errorf("seamark doctor with rejected credentials: got %q, error output %q, status %d, want the message of the API server and status 2", out, stderr, code)
	}
}

// The status 1 of doctor is a result, so a report that cannot be written is status 2.
func TestDoctorOutputNotWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no device that is full: %v", err)
	}
	defer full.Close()
	var stderr bytes.Buffer
	c := program.Command(t, t.TempDir(), "doctor", "--kubeconfig", fakeAPI(t, map[string]string{"/version": `{"gitVersion": "v1.36.0"}`}))
	c.Stdout, c.Stderr = full, &stderr
	_ = c.Run() // the status is checked
	if code := c.ProcessState.ExitCode(); code != 2 || !strings.Contains(stderr.String(), "writing the output: write /dev/stdout: no space left on device") {
		t.Errorf("seamark doctor >/dev/full: got error output %q, status %d, want the cause and status 2", stderr.String(), code)
	}
}

// The doctor and the page names.md state the queries of a lookup that the resolver of a pod sends.
func TestDoctorQueriesOfSearchPath(t *testing.T) {
	kubelet := resolvconf.Kubelet{ClusterDomain: "cluster.local", ClusterDNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")}}
	config, _ := kubelet.Form(resolvconf.Pod{Namespace: "shop", Policy: resolvconf.ClusterFirst})
	names, err := stub.New(config).Candidates("www.example.com")
	if err != nil {
		t.Fatal(err)
	}

	all, words := 2*len(names), []string{"no", "two", "four", "six", "eight", "ten"}
	objects := healthy()
	objects["/api/v1/pods"] = `{"items":[{"spec":{}}]}`
	report, _ := examine(t, fakeAPI(t, objects))
	if more := words[all/2-1] + " queries more"; !report.has("info", "workloads", "ndots 5 (default) in 1", more) {
		t.Errorf("seamark doctor: got %+v, want %q", report.Findings, more)
	}

	page := strings.Join(strings.Fields(read(t, "../docs/how-to/names.md")), " ")
	if !report.has("info", "workloads", "", "set ndots to 2 ") || !strings.Contains(page, `{name: ndots, value: "2"}`) {
		t.Errorf("seamark doctor: got %+v, want the ndots of names.md", report.Findings)
	}
	if want := words[all/2] + " queries, " + words[all/2-1] + " of them for names that do not exist"; !strings.Contains(page, want) {
		t.Errorf("names.md: want %q", want)
	}
}
