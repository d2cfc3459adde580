package manifests

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

func TestManifestsForms(t *testing.T) {
	b := newBench(t, map[string]string{
		"multi.yaml": "# nothing but a comment\n---\n" + service("a", "10.0.0.1") + "---\n# empty\n---\n\n--- # with a comment\n" +
			service("b", "10.0.0.2") + "...\n%YAML 1.1\n---\n" + service("c", "10.0.0.3"),
		"crlf.yml": strings.ReplaceAll("---\n"+service("d", "10.0.0.4")+"---\n"+service("e", "10.0.0.5"), "\n", "\r\n"),
		"values.json": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"f","namespace":"shop"},"spec":{"clusterIP":"10.0.0.6"}}
			{"apiVersion":"v1","kind":"Service","metadata":{"name":"g","namespace":"shop"},"spec":{"clusterIP":"10.0.0.7"}}`,
		"flow.yaml": "{apiVersion: v1, kind: Service, metadata: {name: h, namespace: shop}, spec: {clusterIP: 10.0.0.8}}\n",
		"list.json": `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[
			{"apiVersion":"v1","kind":"Service","metadata":{"name":"i","namespace":"shop"},"spec":{"clusterIP":"10.0.0.9"}},
			{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"j","namespace":"shop"},"spec":{"clusterIP":"10.0.0.10"}}]}]}`,
		"list.yaml": "apiVersion: v1\nitems:\n# first\n- apiVersion: v1\n  kind: Service\n  metadata: {name: k, namespace: shop}\n  spec: {clusterIP: 10.0.0.11}\n\n" +
			"- kind: Service\n  apiVersion: v1\n  metadata:\n    name: l\n    namespace: shop\n    annotations:\n      text: |\n        items:\n        - x\n  spec: {clusterIP: 10.0.0.12}\nkind: List\nmetadata: {resourceVersion: ''}\n",
		"typed.yaml":   "kind: ServiceList\napiVersion: v1\nitems:\n  - metadata: {name: m, namespace: shop}\n    spec: {clusterIP: 10.0.0.13, fancy: [unknown]}\n",
		"alias.yaml":   "kind: List\napiVersion: v1\nitems:\n- &x\n  apiVersion: v1\n  kind: Service\n  metadata: {name: nn, namespace: shop}\n  spec: &spec {clusterIP: 10.0.0.14}\n- {<<: *x, metadata: {name: o, namespace: shop}}\n",
		".hidden.yaml": service("no", "10.9.9.9"), "#auto.yaml": service("no", "10.9.9.9"), "x.yaml~": service("no", "10.9.9.9"),
		".git/x.yaml": service("no", "10.9.9.9"), "README.md": "no", "empty.yaml": "", "blank.json": "\n",
		"bom.yaml": "\ufeff" + service("p", "10.0.0.15"),
	})
	b.read()
	var want []string
	for i, name := range strings.Split("a b c d e f g h i j k l m nn o p", " ") {
		ip := min(i+1, 15)
		if name == "o" {
			ip = 14
		} else if name == "p" {
			ip = 15
		}
		want = append(want, fmt.Sprintf("services shop/%s 10.0.0.%d", name, ip))
	}
	b.has(want...)
	b.says(0, "level=WARN")
	b.says(1, "level=INFO", "16 services")
}

func TestManifestsLargeList(t *testing.T) {
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range 1500 {
		fmt.Fprintf(&text, "- apiVersion: v1\n  kind: Service\n  metadata:\n    name: s%d\n  spec:\n    clusterIP: 10.1.%d.%d\n", i, i/256, i%256)
	}
	text.WriteString("- apiVersion: v1\n  kind: Service\n  metadata:\n    name: bad\n  spec:\n    clusterIP: not-an-ip\n")
	b := newBench(t, map[string]string{"all.yaml": text.String()})
	b.read()
	if n := len(b.sink.objects[cluster.Services]); n != 1501 {
		t.Errorf("%d services, want 1501", n)
	}
	b.says(1, "level=WARN", "all.yaml line=9004 ", "namespace=default name=bad value=not-an-ip")
}

// A namespace exists if any object of any kind is in it.
func TestManifestsNamespaces(t *testing.T) {
	files := map[string]string{
		"a.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x, namespace: work}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n" +
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: bare, labels: {team: blue}}\n" +
			"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\n",
		"b.yaml": service("a", "10.0.0.1"),
	}
	for _, test := range []struct {
		opts cluster.Options
		want string
	}{
		{cluster.Options{}, "[bare default shop work]"},
		{cluster.Options{Namespaces: "bare,shop"}, "[bare shop]"},
		{cluster.Options{NamespaceLabels: "team=blue"}, "[bare]"},
		{cluster.Options{NamespaceLabels: "team!=blue"}, "[default shop work]"},
		{cluster.Options{NamespaceLabels: "kubernetes.io/metadata.name in (shop,bare)"}, "[bare shop]"},
	} {
		b := newBench(t, files)
		b.opts = test.opts
		b.read()
		if got := fmt.Sprint(b.namespaces()); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.opts, got, test.want)
		}
		b.says(0, "level=WARN")
	}
	b := newBench(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: bare}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\n"})
	b.read()
	if got := fmt.Sprint(b.namespaces()); got != "[bare]" {
		t.Errorf("cluster-scoped objects made namespaces: %s", got)
	}
}

// Each invalid file causes one warning with its line, and other files and its
// valid documents are served.
func TestManifestsInvalidFile(t *testing.T) {
	good := service("ok", "10.0.0.1") // five lines with its marker
	for _, test := range []struct {
		name, text string
		says       []string
	}{
		{"scan.yaml", good + "---\nkind: Service\nmetadata:\n\tname: x\n", []string{"scan.yaml line=8 ", "cannot start any token"}},
		{"grammar.yaml", good + "---\nkind: Service\nspec:\n  - x\n y: 1\n", []string{"grammar.yaml line=9 ", "did not find expected"}},
		{"first.yaml", "a: b: c\n", []string{"first.yaml line=1 ", "mapping values"}},
		{"template.yaml", good + "---\nkind: {{ .Values.kind }}\n", []string{"template.yaml line=6 ", "invalid map key"}},
		{"type.yaml", good + "---\n" + strings.Replace(good, "10.0.0.1", "{a: b}", 1), []string{"type.yaml line=6 ", "Service shop/ok: spec.clusterIP: got object, want string"}},
		{"item.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: ok, namespace: shop}\n  spec: {clusterIP: 10.0.0.1}\n- apiVersion: v1\n  kind: Service\n  metadata: {name: [x]}\n", []string{"item.yaml line=8 ", "metadata.name: got array, want"}},
		{"syntax.json", "{\"kind\":\n\"Service\",\n]\n", []string{"syntax.json line=3 ", "invalid character"}},
		{"short.json", "\n{\"kind\":\n", []string{"short.json line=3 ", "unexpected EOF"}},
		{"type.json", "{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"x\"},\n\"spec\":{\"ports\":[\n{\"port\":\"http\"}]}}\n", []string{"type.json line=3 ", "Service default/x: spec.ports.port: got string, want number"}},
		{"listed.json", "{\"apiVersion\":\"v1\",\"kind\":\"List\",\n\"items\":[\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\n\"metadata\":7}]}\n", []string{"listed.json line=4 ", "metadata: got number, want object"}},
		{"prose.yaml", "hello\n", []string{"prose.yaml line=1 ", "document: got string, want object"}},
		{"values.yaml", "replicas: 3\n", []string{"values.yaml line=1 ", "not a Kubernetes object"}},
		{"two.yaml", "a: b: c\n---\n{{\n---\nx: [\n", []string{"two.yaml line=1 ", "count=3"}},
	} {
		b := newBench(t, map[string]string{test.name: test.text, "z.yaml": service("z", "10.0.0.2")})
		f := b.read()
		f.check(t.Context())
		b.says(1, "level=WARN")
		b.says(1, append(test.says, "level=WARN")...)
		want := []string{"services shop/z 10.0.0.2"}
		if strings.Contains(test.text, "10.0.0.1") {
			want = append([]string{"services shop/ok 10.0.0.1"}, want...)
		}
		b.has(want...)
	}
}

// An object that is valid YAML but not a valid object causes a warning with its
// name.
func TestManifestsInvalidObject(t *testing.T) {
	for text, says := range map[string][]string{
		service("bad", "10.0.0.300"): {"x.yaml line=1 ", "kind=Service namespace=shop name=bad value=10.0.0.300"},
		"apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: old, namespace: shop}\n": {"unknown apiVersion", "kind=EndpointSlice namespace=shop name=old value=discovery.k8s.io/v1beta1"},
		service("a.b", "10.0.0.3"):                                     {"name=a.b", "invalid name"},
		"apiVersion: v1\nkind: Service\nmetadata: {generateName: x}\n": {"it has no name"},
		slice("lost", "web", "- {addresses: [10.0.0.1]}"):              {"x.yaml line=1 ", "kind=EndpointSlice namespace=shop name=lost owner_kind=Service service=web", "Owner not found in the manifests"},
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: free, namespace: shop}\naddressType: IPv4\n":   {"EndpointSlice without a label", "namespace=shop name=free"},
		"apiVersion: v1\nkind: Endpoints\nmetadata: {name: lost, namespace: shop}\nsubsets: [{addresses: [{ip: 10.0.0.1}]}]\n": {"kind=Endpoints namespace=shop name=lost", "Owner not found in the manifests"},
	} {
		b := newBench(t, map[string]string{"x.yaml": text, "z.yaml": service("z", "10.0.0.2")})
		f := b.read()
		b.write("z.yaml", service("z", "10.0.0.4"))
		f.check(t.Context())
		b.says(1, "level=WARN")
		b.says(1, append(says, "level=WARN")...)
		if !strings.Contains(b.state(), "services shop/z 10.0.0.4") {
			t.Errorf("the rest is not served: %s", b.state())
		}
	}
	b := newBench(t, map[string]string{"x.yaml": "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: other, namespace: shop}\n"})
	b.read()
	b.has()
	b.says(0, "level=WARN")

	b = newBench(t, map[string]string{"x.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: half, namespace: shop}\nspec: {clusterIPs: [10.0.0.1, nonsense], ports: [{name: http, port: 80}]}\n"})
	b.read()
	b.has("services shop/half 10.0.0.1 http:80/tcp")
}

func TestManifestsDuplicateObject(t *testing.T) {
	b := newBench(t, map[string]string{"a.yaml": service("web", "10.0.0.1"), "b.yaml": service("x", "10.0.0.3") + "---\n" + service("web", "10.0.0.2")})
	f := b.read()
	b.has("services shop/web 10.0.0.1", "services shop/x 10.0.0.3")
	b.says(1, "level=WARN", "kind=Service namespace=shop name=web", "a.yaml:1", "b.yaml line=6 ")
	b.remove("a.yaml")
	f.check(t.Context())
	b.has("services shop/web 10.0.0.2", "services shop/x 10.0.0.3")
	b.says(1, "level=WARN")
}

// Small YAML documents that expand to large ones, or are nested deeply, are
// rejected at little cost. The second one expands to long strings, which the
// parser accepts.
func TestManifestsAliasExpansion(t *testing.T) {
	nodes := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		nodes += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	b := newBench(t, map[string]string{
		"nodes.yaml":  nodes,
		"text.yaml":   "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n",
		"self.yaml":   "a: &a [*a]\n",
		"deep.yaml":   strings.Repeat("[", 1<<17),
		"deeper.yaml": strings.Repeat("- ", 1<<16) + "x\n",
		"deep.json":   `{"a":` + strings.Repeat("[", 1<<17),
		"z.yaml":      service("z", "10.0.0.2"),
	})
	b.read()
	b.has("services shop/z 10.0.0.2")
	b.says(6, "level=WARN")
	b.says(2, "level=WARN", "excessive aliasing")
}

func FuzzManifest(f *testing.F) {
	for _, text := range []string{service("a", "10.0.0.1"), "---\n{}\n...\n", "items:\n- a\n - b\nkind: List\n", `{"kind":"List","items":[{}]}`, slice("a", "b", "- {addresses: [::1]}"), "x: &a [*a, {{ y }}]\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := cluster.Options{Pods: true, Multicluster: true}
		scope, err := newScope(o)
		if err != nil {
			t.Fatal(err)
		}
		d := decoder{opts: o, scope: scope, file: "x.yaml", shapes: newShapes()}
		if err := d.decode(t.Context(), bytes.NewReader(data)); err != nil {
			t.Fatalf("decoding %q: %v", data, err)
		}
		lines := strings.Count(string(data), "\n") + 2
		for _, e := range d.errors {
			if e.line < 1 || e.line > lines {
				t.Errorf("error at line %d of %d: %v", e.line, lines, e.err)
			}
		}
		for _, it := range d.items {
			if it.line < 1 || int(it.line) > lines {
				t.Errorf("%s at line %d of %d", it.kind, it.line, lines)
			}
		}
	})
}

// slice returns an EndpointSlice of namespace shop with these endpoints.
func slice(name, service, endpoints string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: shop, labels: {kubernetes.io/service-name: %s}}\n"+
		"addressType: IPv4\nports: [{name: http, port: 80}]\nendpoints:\n%s\n", name, service, endpoints)
}
