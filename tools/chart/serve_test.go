package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The API server accepts the objects of each mode without a warning. The server, with the
// arguments, the Corefile and the permissions of the chart, is ready, answers, and has the
// series of the alerts and the dashboard.
func TestServe(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	seamark, machinery := buildSeamark(t), build(t, "../../kubetest", "./cmd/api")
	c := loadChart(t)
	for name, values := range map[string]string{
		"cluster":  "",
		"canary":   "mode: canary",
		"kube-dns": "mode: kube-dns\nkubeDNS: {federations: true}",
		"every permission": `corefile: |
  .:53 {
      errors
      health
      ready
      kubernetes cluster.local clusterset.local {
          pods verified
          multicluster clusterset.local
      }
      federation cluster.local {
          east east.example
      }
      hosts {
          configmap kube-system/custom-hosts hosts
          fallthrough
      }
      prometheus :9153
      forward . /etc/resolv.conf
      cache
      reload
  }
`,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			api := startAPI(t, machinery, clusterObjects)
			r, err := render(c, values+"\nimage: {repository: registry.example/seamark}\nhpa: {enabled: true}\nnetworkPolicy: {enabled: true}\nprometheus: {service: {enabled: true}}\ndashboard: {enabled: true}\n", "seamark", "kube-system", api)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range r.objects {
				create(t, api, o)
			}
			serveRendered(t, seamark, api, r)
		})
	}
}

// startAPI runs the API machinery with some objects.
func startAPI(t *testing.T, program, text string) *rest.Config {
	t.Helper()
	p := exec.CommandContext(t.Context(), program, "serve", t.TempDir())
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = p.Wait()
	})
	path, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("starting the API machinery: %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(path))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		create(t, config, o)
	}
	return config
}

// clusterObjects exist in a cluster before the chart is installed.
const clusterObjects = `
{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: default}}
---
apiVersion: v1
kind: Service
metadata: {name: kubernetes, namespace: default}
spec: {clusterIP: 10.96.0.1, ports: [{name: https, port: 443}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        health {
           lameduck 5s
        }
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {
           pods verified
           fallthrough in-addr.arpa ip6.arpa
           ttl 30
        }
        prometheus :9153
        forward . /etc/resolv.conf {
           max_concurrent 1000
        }
        cache 30
        loop
        reload
        loadbalance
    }
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-dns, namespace: kube-system}, data: {federations: "east=east.example"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: custom-hosts, namespace: kube-system}, data: {hosts: "192.0.2.7 db.example"}}
`

// create sends an object with the strict validation of fields. A warning fails the test.
func create(t *testing.T, api *rest.Config, o *unstructured.Unstructured) {
	t.Helper()
	client, err := rest.HTTPClientFor(api)
	if err != nil {
		t.Fatal(err)
	}
	group := "/api/v1"
	if gv := o.GroupVersionKind().GroupVersion(); gv.Group != "" {
		group = "/apis/" + gv.String()
	}
	if o.GetNamespace() != "" {
		group += "/namespaces/" + o.GetNamespace()
	}
	resource := strings.ToLower(o.GetKind()) + "s"
	if o.GetKind() == "NetworkPolicy" {
		resource = "networkpolicies"
	}
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	reply, err := client.Post(api.Host+group+"/"+resource+"?fieldValidation=Strict", "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, _ := io.ReadAll(reply.Body)
	if reply.StatusCode != http.StatusCreated || len(reply.Header["Warning"]) > 0 {
		t.Errorf("creating %s %s: got %s, warnings %v, want it created without a warning\n%s\n%s", o.GetKind(), o.GetName(), reply.Status, reply.Header["Warning"], body, text)
	}
}

// serveRendered runs the rendered container, with free ports in place of its own.
func serveRendered(t *testing.T, seamark string, api *rest.Config, r *rendering) {
	t.Helper()
	access := authorize(t, api, r)
	container := lookup(r.server(t).Object, "spec.template.spec.containers.0").(map[string]any)
	ports := map[string]string{} // by the names of the container's ports
	var replace []string
	for _, p := range container["ports"].([]any) {
		p := p.(map[string]any)
		name := p["name"].(string)
		if ports[name] = freePort(t); name == "dns-tcp" {
			ports[name] = ports["dns"]
			continue
		}
		was := fmt.Sprint(p["containerPort"])
		replace = append(replace, ":"+was+"\n", ":"+ports[name]+"\n", ":"+was+" {", ":"+ports[name]+" {", "-port="+was, "-port="+ports[name])
	}
	dir := t.TempDir()
	replace = append(replace, "/etc/coredns", dir, "/etc/resolv.conf", upstream(t),
		"health\n", "health :"+ports["liveness-probe"]+"\n", "health {", "health :"+ports["liveness-probe"]+" {",
		"ready\n", "ready :"+ports["readiness-probe"]+"\n",
		"pods ", "endpoint "+access.URL+"\npods ", "configmap ", "endpoint "+access.URL+"\nconfigmap ")
	ported := strings.NewReplacer(replace...)
	command, _ := container["command"].([]any)
	var args []string
	for _, arg := range append(command, container["args"].([]any)...)[min(1, len(command)):] {
		args = append(args, ported.Replace(arg.(string)))
	}
	if len(command) > 0 {
		args = append(args, "--kube-master-url="+access.URL, "--healthz-port="+ports["readiness-probe"])
	}
	if text := access.corefile(t, api, r); text != "" {
		if err := os.WriteFile(filepath.Join(dir, "Corefile"), []byte(ported.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := exec.CommandContext(t.Context(), seamark, args...)
	p.Env = append(os.Environ(), "PROMETHEUS_PORT="+ports["metrics"])
	p.Stdout, p.Stderr = t.Output(), t.Output()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	}()
	for _, probe := range []string{"readinessProbe", "livenessProbe"} {
		path, port := lookup(container, probe+".httpGet.path"), lookup(container, probe+".httpGet.port").(string)
		awaitPage(t, fmt.Sprintf("http://127.0.0.1:%s%s", ports[port], path))
	}
	for _, network := range []string{"udp", "tcp"} {
		client := dns.Client{Net: network, Timeout: 5 * time.Second}
		reply, _, err := client.Exchange(new(dns.Msg).SetQuestion("kubernetes.default.svc.cluster.local.", dns.TypeA), "127.0.0.1:"+ports["dns"])
		if err != nil || len(reply.Answer) != 1 || !strings.HasSuffix(reply.Answer[0].String(), "10.96.0.1") {
			t.Errorf("%s: got %v, error %v, want 10.96.0.1", network, reply, err)
		}
	}
	if strings.Contains(r.corefile(), "configmap ") {
		reply, err := dns.Exchange(new(dns.Msg).SetQuestion("db.example.", dns.TypeA), "127.0.0.1:"+ports["dns"])
		if err != nil || len(reply.Answer) != 1 {
			t.Errorf("db.example: got %v, error %v, want the address of the ConfigMap", reply, err)
		}
	}
	if len(command) == 0 {
		client := dns.Client{Timeout: 5 * time.Second}
		if _, _, err := client.Exchange(new(dns.Msg).SetQuestion("www.example.", dns.TypeA), "127.0.0.1:"+ports["dns"]); err != nil {
			t.Error(err)
		}
		checkSeries(t, "http://127.0.0.1:"+ports["metrics"]+"/metrics")
	}
	access.mu.Lock()
	defer access.mu.Unlock()
	if len(access.denied) > 0 {
		t.Errorf("requests without permission: got %q, want none", access.denied)
	}
	for _, p := range access.permissions {
		// A streamed list is a watch; API servers before 1.32 have lists only.
		if strings.HasPrefix(p, "watch ") && !access.used[p] {
			t.Errorf("permissions: got %q, which the server does not use, want only what it uses", p)
		}
	}
}

// upstream returns the address of a DNS server that answers each query with NXDOMAIN.
func upstream(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(m, dns.RcodeNameError))
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ActivateAndServe()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return conn.LocalAddr().String()
}

// An accessProxy forwards the requests that the roles of the server's account permit.
type accessProxy struct {
	*httptest.Server
	permissions []string // "VERB GROUP/RESOURCE", with "/NAME" if it is for one name

	mu     sync.Mutex
	denied []string
	used   map[string]bool
}

// authorize returns a proxy in front of the API server for the account of the server.
func authorize(t *testing.T, api *rest.Config, r *rendering) *accessProxy {
	t.Helper()
	a := &accessProxy{used: map[string]bool{}}
	for _, o := range append(r.find("ClusterRole"), r.find("Role")...) {
		var role rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					permission := verb + " " + rule.APIGroups[0] + "/" + resource
					if len(rule.ResourceNames) == 0 {
						a.permissions = append(a.permissions, permission)
					}
					for _, name := range rule.ResourceNames {
						a.permissions = append(a.permissions, permission+"/"+name)
					}
				}
			}
		}
	}
	target, err := url.Parse(api.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(api)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) {},
	}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !a.permits(q) {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// permits reports whether a role has a permission for a request.
func (a *accessProxy) permits(q *http.Request) bool {
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" && len(parts) > 1 {
		group, parts = parts[1], parts[1:]
	}
	if parts = parts[min(2, len(parts)):]; len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	verb, name := "list", strings.TrimPrefix(q.URL.Query().Get("fieldSelector"), "metadata.name=")
	if len(parts) == 2 {
		verb, name = "get", parts[1]
	}
	if q.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.permissions {
		if len(parts) > 0 && (p == verb+" "+group+"/"+parts[0] || p == verb+" "+group+"/"+parts[0]+"/"+name) {
			a.used[p] = true
			return true
		}
	}
	a.denied = append(a.denied, q.Method+" "+q.URL.String())
	return false
}

// corefile returns the Corefile that the container mounts, "" if it mounts none.
func (a *accessProxy) corefile(t *testing.T, api *rest.Config, r *rendering) string {
	t.Helper()
	name, _ := lookup(r.server(t).Object, "spec.template.spec.volumes.0.configMap.name").(string)
	if name == "" {
		return ""
	}
	client, err := rest.HTTPClientFor(api)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := client.Get(api.Host + "/api/v1/namespaces/kube-system/configmaps/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var config struct{ Data map[string]string }
	if err := json.NewDecoder(reply.Body).Decode(&config); err != nil {
		t.Fatal(err)
	}
	return config.Data["Corefile"]
}

// freePort returns a port of 127.0.0.1 that no process uses, over TCP.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// awaitPage returns the page at a URL once its status is 200.
func awaitPage(t *testing.T, at string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		reply, err := http.Get(at)
		if err == nil {
			text, _ := io.ReadAll(reply.Body)
			reply.Body.Close()
			if reply.StatusCode == http.StatusOK {
				return string(text)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: got error %v, want the page", at, err)
		}
	}
}
