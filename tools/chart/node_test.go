package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Mode node makes the objects of deploy/node, with and without its components: only the
// chart's labels are added.
func TestNodeEqualsManifests(t *testing.T) {
	c := loadChart(t)
	const same = `
mode: node
fullnameOverride: node-local-dns
clusterRole: {nameOverride: "system:node-local-dns"}
deployment: {selector: {k8s-app: node-local-dns}}
image: {repository: registry.invalid/seamark, tag: latest}
node: {clusterIPs: [10.96.0.10]%s}
`
	for component, values := range map[string]string{
		"":         "",
		"services": ", source: services",
		"replace":  ", rollingUpdate: {maxSurge: 0, maxUnavailable: 10%}",
	} {
		t.Run(component, func(t *testing.T) {
			dir := filepath.Join(deployDir, "node")
			if component != "" {
				dir = composed(t, dir, filepath.Join(dir, "components", component))
			}
			r, err := render(c, fmt.Sprintf(same, values), "node", "kube-system", nil)
			if err != nil {
				t.Fatal(err)
			}
			got, want := byName(r.objects), byName(kustomize(t, dir))
			for name, o := range want {
				if !reflect.DeepEqual(got[name], o) {
					t.Errorf("%s: got from the chart\n%s\nand from the manifests\n%s", name, printed(t, got[name]), printed(t, o))
				}
				delete(got, name)
			}
			for name := range got {
				t.Errorf("got %s from the chart, which the manifests do not have", name)
			}
		})
	}
}

// byName returns objects by kind and name, without the labels that a chart's objects have.
func byName(objects []*unstructured.Unstructured) map[string]map[string]any {
	found := map[string]map[string]any{}
	for _, o := range objects {
		labels := o.GetLabels()
		for key := range labels {
			if strings.HasPrefix(key, "app.kubernetes.io/") || strings.HasPrefix(key, "helm.sh/") {
				delete(labels, key)
			}
		}
		if len(labels) == 0 {
			labels = nil // then the field is removed
		}
		o.SetLabels(labels)
		found[o.GetKind()+" "+o.GetName()] = o.Object
	}
	return found
}

func printed(t *testing.T, o any) string {
	t.Helper()
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkNode checks the DaemonSet of mode node, and that the program accepts its arguments,
// its template and the Corefile that they result in.
func checkNode(t *testing.T, seamark string, r *rendering) {
	t.Helper()
	o := r.find("DaemonSet")[0]
	spec := field(o, "spec.template.spec").(map[string]any)
	container := lookup(spec, "containers.0").(map[string]any)
	if spec["hostNetwork"] != true || spec["dnsPolicy"] != "Default" || container["ports"] != nil {
		t.Errorf("got hostNetwork %v, dnsPolicy %v and ports %v, want the node's network and no ports", spec["hostNetwork"], spec["dnsPolicy"], container["ports"])
	}
	security := lookup(container, "securityContext")
	if lookup(security, "allowPrivilegeEscalation") != false || lookup(security, "readOnlyRootFilesystem") != true || !reflect.DeepEqual(lookup(security, "capabilities.drop"), []any{"ALL"}) {
		t.Errorf("got the security context %v, want one without privileges but some capabilities", security)
	}
	labels := field(o, "spec.template.metadata.labels").(map[string]any)
	checkSelects(t, "DaemonSet", field(o, "spec.selector.matchLabels"), labels)
	for _, m := range r.find("PodMonitor") {
		checkSelects(t, "PodMonitor", field(m, "spec.selector.matchLabels"), labels)
	}
	for _, s := range r.find("Service") {
		if selector := field(s, "spec.selector").(map[string]any); matches(selector, map[string]string{"k8s-app": fmt.Sprint(labels["k8s-app"])}) {
			t.Errorf("Service %s: got the selector %v, want one that does not match the pods of the nodes", s.GetName(), selector)
		}
	}

	template := r.corefile()
	if template == "" { // it is in a ConfigMap of the cluster
		template = ".:53 {\n    forward . __PILLAR__CLUSTER__DNS__\n}\n"
	}
	dir := t.TempDir()
	base := filepath.Join(dir, "Corefile.base")
	if err := os.WriteFile(base, []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	var args []string
	service := ""
	for _, arg := range container["args"].([]any) {
		args = append(args, arg.(string))
		if name, ok := strings.CutPrefix(arg.(string), "-upstreamsvc="); ok {
			service = name
		}
	}
	p := exec.CommandContext(t.Context(), seamark, append(args, "-basecorefile="+base, "-print-corefile")...)
	variable := strings.ToUpper(strings.ReplaceAll(service, "-", "_")) + "_SERVICE_HOST"
	p.Env = append(os.Environ(), variable+"=10.96.0.99")
	text, err := p.Output()
	if err != nil {
		t.Fatalf("%v: got error %v, want the Corefile\n%s", p.Args, err, template)
	}
	local, _, _ := strings.Cut(strings.TrimPrefix(args[slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-localip=") })], "-localip="), ",")
	if strings.Contains(template, "__PILLAR__LOCAL__DNS__") && !strings.Contains(string(text), local) || strings.Contains(string(text), "__PILLAR__") {
		t.Errorf("%v: got\n%s\nwant the address %s and no variables", p.Args, text, local)
	}
	file := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p = exec.CommandContext(t.Context(), seamark, "check", file)
	p.Env = append(os.Environ(), "NODE_NAME=node-1")
	if out, err := p.CombinedOutput(); err != nil {
		t.Errorf("check: got error %v\n%s\n%s", err, out, text)
	}
}
