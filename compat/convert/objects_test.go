package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// found lists the pods with their programs, and the ConfigMaps.
func found(o Objects) string {
	var lines []string
	for _, p := range o.Pods {
		for _, r := range p.Programs {
			lines = append(lines, fmt.Sprintf("%s %s: %s %q", p.Place, r.Container, r.Name, r.Args))
			lines = append(lines, r.Notes...)
		}
		for _, n := range p.Notes {
			lines = append(lines, p.Place+" "+n)
		}
	}
	for _, c := range o.Configs {
		lines = append(lines, fmt.Sprintf("%s %q", c.Place, c.Data))
	}
	return strings.Join(lines, "\n")
}

// pod returns a manifest with these containers.
func pod(containers ...string) string {
	return "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - " + strings.Join(containers, "\n  - ") + "\n"
}

func TestRead(t *testing.T) {
	const kube = "{name: a, command: [/kube-dns, -v=2]}"
	for _, c := range []struct{ name, text, want string }{
		{"no documents", "\n---\n# nothing\n", ""},
		{"other objects", "kind: Service\nspec: {template: 1}\n---\nkind: Deployment\nspec: {template: {spec: {containers: [{name: web, image: nginx}]}}}\n", ""},
		{"program by command", pod(`{name: x, image: nginx, command: [/usr/sbin/dnsmasq], args: ["-k"]}`), `Pod p x: dnsmasq ["-k"]`},
		{"program by image", pod("{name: x, image: 'registry.example:5000/dns/k8s-dns-dnsmasq-nanny-amd64:1.14.5@sha256:abc', args: [-v=2]}"), `Pod p x: dnsmasq-nanny ["-v=2"]`},
		{"program by older images", pod("{name: a, image: gcr.io/google_containers/kubedns-amd64:1.9}", "{name: b, image: gcr.io/google_containers/kube-dnsmasq-amd64:1.4, args: [--cache-size=5]}",
			"{name: healthz, image: gcr.io/google_containers/exechealthz-amd64:1.2}"),
			"Pod p a: kube-dns []\nPod p b: dnsmasq [\"--cache-size=5\"]\nPod p container healthz is ignored: it runs none of kube-dns's programs"},
		{"program by container name", pod("{name: kubedns, image: mirror/dns}", "{name: dnsmasq, image: mirror/x, args: [--, -k]}", "{name: sidecar, image: mirror/y}"),
			"Pod p kubedns: kube-dns []\nPod p dnsmasq: dnsmasq-nanny [\"--\" \"-k\"]\nPod p sidecar: sidecar []"},
		{"dnsmasq by container name", pod("{name: dnsmasq, image: mirror/x, args: [-k]}"), `Pod p dnsmasq: dnsmasq ["-k"]`},
		{"Seamark's image", pod("{name: a, image: seamark, command: [/seamark, kube-dns], args: [-v=1]}", "{name: b, image: seamark, args: [dnsmasq-nanny, --, -k]}"),
			"Pod p a: kube-dns [\"-v=1\"]\nPod p b: dnsmasq-nanny [\"--\" \"-k\"]"},
		{"a shell", pod(kube, "{name: dnsmasq, image: x, command: [sh, -c, dnsmasq -k]}"),
			"Pod p a: kube-dns [\"-v=2\"]\nPod p container dnsmasq is ignored: it runs sh, which is unknown; if that starts kube-dns or dnsmasq, write their command line after --"},
		{"a sidecar alone", pod("{name: sidecar, image: k8s-dns-sidecar}"), ""},
		{"variables", pod("{name: kubedns, image: x, env: [{name: D, value: x.y}, {name: E, value: a.$(D)}, {name: NODE, valueFrom: {}}], args: ['--domain=$(E).', '$$(E) $(F) $ $(', $(D)$(D)]}"),
			`Pod p kubedns: kube-dns ["--domain=a.x.y." "$(E) $(F) $ $(" "x.yx.y"]`},
		{"a reference", pod("{name: kubedns, image: x, env: [{name: D, value: x.y}, {name: D, valueFrom: {}}], args: ['--domain=$(D)']}"),
			"Pod p kubedns: kube-dns [\"--domain=$(D)\"]\nthe value of D is a reference, which convert cannot resolve"},
		{"kinds", "kind: DaemonSet\nmetadata: {name: d, namespace: ns}\nspec: {template: {spec: {containers: [" + kube + "]}}}\n---\nkind: ReplicaSet\nspec: {template: {spec: {containers: [" + kube + "]}}}\n",
			"DaemonSet ns/d a: kube-dns [\"-v=2\"]\nReplicaSet  a: kube-dns [\"-v=2\"]"},
		{"a list", "kind: List\nitems:\n- kind: ConfigMap\n  metadata: {name: kube-dns}\n  data: {a: b}\n- kind: Secret\n", `ConfigMap kube-dns map["a":"b"]`},
		{"a list of one kind", "kind: ConfigMapList\nitems: [{metadata: {name: c}, data: {a: b}, binaryData: {c: /w==}}]\n", `ConfigMap c map["a":"b" "c":"\xff"]`},
		{"JSON", "\ufeff {\"kind\": \"ConfigMap\",\t\"data\": {\"a\": \"b\"}}\n{\"kind\":\"Secret\"}", `ConfigMap  map["a":"b"]`},
		{"YAML in braces", "{kind: ConfigMap, data: {a: b}}", `ConfigMap  map["a":"b"]`},
		{"anchors", "kind: Pod\nx: &x {name: kubedns, image: x}\nspec: {containers: [*x]}\n", "Pod  kubedns: kube-dns []"},
	} {
		var o Objects
		if err := o.Read("f", []byte(c.text)); err != nil || found(o) != c.want {
			t.Errorf("%s: got error %v and\n%s\nwant\n%s", c.name, err, found(o), c.want)
		}
	}
}

func TestReadErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a: [", "f:1: did not find expected node content"},
		{"- a\n", "f: not a Kubernetes object: got array"},
		{"metadata: {name: x}\n", "f: not a Kubernetes object: no kind"},
		{"kind: List\nitems: [{data: {}}]\n", "f: not a Kubernetes object: no kind"},
		{"1: 2\n", "f: not a Kubernetes object: no kind"},
		{"{a: b}: c\n", "f:1: a mapping or list as a key: if this is a template, render it first"},
		{"kind: ConfigMap\nmetadata: {name: x}\ndata: {a: 5}\n", "f: ConfigMap x: json: cannot unmarshal number into Go struct field .data of type string"},
		{"kind: Pod\nspec: {containers: [{args: [1]}]}\n---\nkind: ConfigMap\ndata: x\n", "containers.args of type string\nf: ConfigMap : json: cannot unmarshal string"},
	} {
		var o Objects
		if err := o.Read("f", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got\n%v\nwant\n%s", c.text, err, c.want)
		}
	}
}

// Pods of a Deployment in the input, and pods with the same programs, are ignored.
func TestPod(t *testing.T) {
	one := func(kind, name, owner, arg string) string {
		text := "kind: " + kind + "\nmetadata: {name: " + name + ", namespace: ns"
		if k, n, ok := strings.Cut(owner, " "); ok {
			text += ", ownerReferences: [{kind: " + k + ", name: " + n + "}]"
		}
		spec := "{containers: [{name: kubedns, image: x, args: [" + arg + "]}]}"
		if kind != "Pod" {
			spec = "{template: {spec: " + spec + "}}"
		}
		return text + "}\nspec: " + spec + "\n"
	}
	for _, c := range []struct {
		name string
		docs []string
		want string
	}{
		{"none", nil, ""},
		{"objects of a Deployment", []string{one("Pod", "p", "ReplicaSet r", "a"), one("ReplicaSet", "r", "Deployment d", "b"), one("Deployment", "d", "", "c")}, "Deployment ns/d"},
		{"two equal pods", []string{one("Pod", "p", "ReplicaSet r", "a"), one("Pod", "q", "ReplicaSet r", "a")}, "Pod ns/p"},
		{"two different pods", []string{one("Pod", "p", "", "a"), one("Pod", "q", "", "b")}, "2 pods with different DNS servers, Pod ns/p, Pod ns/q: remove all but one from the input"},
	} {
		var o Objects
		if err := o.Read("f", []byte(strings.Join(c.docs, "---\n"))); err != nil {
			t.Fatal(err)
		}
		got, err := o.Pod()
		text := got.Place
		if err != nil {
			text = err.Error()
		}
		if text != c.want {
			t.Errorf("%s: got %s, want %s", c.name, text, c.want)
		}
	}
}

func TestConfig(t *testing.T) {
	maps := []ConfigMap{{"one", "a", "kube-dns", nil}, {"two", "b", "kube-dns", nil}, {"three", "b", "other", nil}}
	for _, c := range []struct {
		maps            []ConfigMap
		namespace, name string
		want            string
	}{
		{maps, "b", "kube-dns", "two"},
		{maps, "", "other", "three"},
		{maps, "b", "none", ""},
		{maps, "c", "kube-dns", "2 ConfigMaps, one, two: remove all but one from the input"},
		{[]ConfigMap{{Place: "/dir"}}, "b", "kube-dns", "/dir"},
		{append(slices.Clone(maps), ConfigMap{Place: "/dir"}), "b", "other", "three"},
	} {
		o := Objects{Configs: c.maps}
		got, ok, err := o.Config(c.namespace, c.name)
		text := got.Place
		if err != nil {
			text = err.Error()
		}
		if text != c.want || err == nil && ok != (c.want != "") {
			t.Errorf("%s/%s: got %s, want %s", c.namespace, c.name, text, c.want)
		}
	}
}
