package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// The API server accepts the objects of every kustomization of deploy/, and of every
// component with its base, without a warning. No image can be a stranger's.
func TestKustomizations(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	machinery, versions := build(t, "../../kubetest", "./cmd/api"), schemas(t)
	var dirs []string
	err := filepath.WalkDir(deployDir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.Name() == "kustomization.yaml" {
			dirs = append(dirs, filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	bases := map[string]string{"kubernetes": "kubernetes/base", "kube-dns": "kube-dns/one-container", "node": "node"}
	for _, dir := range dirs {
		name, err := filepath.Rel(deployDir, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			if part, _, ok := strings.Cut(name, "/components/"); ok {
				dir = composed(t, filepath.Join(deployDir, bases[part]), dir)
			}
			objects := kustomize(t, dir)
			if len(objects) == 0 {
				t.Fatal("got no objects, want some")
			}
			api := startAPI(t, machinery, `{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}`)
			for _, o := range objects {
				if o.GetKind() == "CiliumLocalRedirectPolicy" { // neither the schemas nor the machinery have it
					checkRedirect(t, o, objects)
					continue
				}
				for _, s := range versions {
					if err := s.validate(o); err != nil {
						t.Error(err)
					}
				}
				if o.GroupVersionKind().Group != monitoringv1.SchemeGroupVersion.Group { // the API machinery does not have its kinds
					create(t, api, o)
				}
				checkContainers(t, o)
				if strings.HasSuffix(name, "canary") {
					checkCanary(t, o)
				}
			}
		})
	}
	if len(dirs) < 20 {
		t.Errorf("got %d kustomizations, want 20 or more", len(dirs))
	}
}

// checkRedirect checks that a policy of Cilium redirects to ports of the DaemonSet's pods, by their
// names, and that the server in them accepts its Corefile and has no privilege of the node.
func checkRedirect(t *testing.T, policy *unstructured.Unstructured, objects []*unstructured.Unstructured) {
	t.Helper()
	var spec struct {
		RedirectFrontend struct {
			ServiceMatcher struct{ ServiceName, Namespace string }
		}
		RedirectBackend struct {
			LocalEndpointSelector metav1.LabelSelector
			ToPorts               []struct{ Port, Name, Protocol string }
		}
	}
	var daemons appsv1.DaemonSet
	var config corev1.ConfigMap
	decode := func(o map[string]any, into any) {
		text, err := yaml.Marshal(o)
		if err == nil {
			err = yaml.UnmarshalStrict(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	decode(policy.Object["spec"].(map[string]any), &spec)
	for _, o := range objects {
		switch o.GetKind() {
		case "DaemonSet":
			decode(o.Object, &daemons)
		case "ConfigMap":
			decode(o.Object, &config)
		}
	}

	pod := daemons.Spec.Template
	selected := spec.RedirectBackend.LocalEndpointSelector.MatchLabels
	for label, value := range selected {
		if pod.Labels[label] != value {
			t.Errorf("the policy selects %v, want labels of the pods, which are %v", selected, pod.Labels)
		}
	}
	if f := spec.RedirectFrontend.ServiceMatcher; f.ServiceName != "kube-dns" || f.Namespace != "kube-system" {
		t.Errorf("the policy redirects %v, want the Service kube-dns of kube-system", f)
	}
	c := pod.Spec.Containers[0]
	for _, to := range spec.RedirectBackend.ToPorts {
		same := func(p corev1.ContainerPort) bool {
			return p.Name == to.Name && fmt.Sprint(p.ContainerPort) == to.Port && string(p.Protocol) == to.Protocol
		}
		if !slices.ContainsFunc(c.Ports, same) {
			t.Errorf("the pods have the ports %v, want %v among them", c.Ports, to)
		}
	}
	if n := len(spec.RedirectBackend.ToPorts); n != 2 || len(selected) == 0 || pod.Spec.HostNetwork || slices.Contains(c.SecurityContext.Capabilities.Add, "NET_ADMIN") {
		t.Errorf("got %d ports, host network %t and %v; want UDP and TCP, the pod's network and no NET_ADMIN",
			n, pod.Spec.HostNetwork, c.SecurityContext.Capabilities.Add)
	}

	t.Setenv("KUBE_DNS_UPSTREAM_SERVICE_HOST", "10.96.0.99")
	file := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(file, []byte(config.Data["Corefile"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(build(t, "../..", "./cmd/seamark"), "check", file).CombinedOutput(); err != nil {
		t.Errorf("check of the Corefile: %v\n%s", err, out)
	}
}

// The components for monitoring select the pods and the Service of the base, and have the
// alerts and the dashboard of the chart.
func TestMonitoringComponents(t *testing.T) {
	components := filepath.Join(deployDir, "kubernetes/components")
	objects := kustomize(t, composed(t, filepath.Join(deployDir, "kubernetes/base"),
		filepath.Join(components, "service-monitor"), filepath.Join(components, "pod-monitor"),
		filepath.Join(components, "alerts"), filepath.Join(components, "dashboard")))
	find := func(kind, name string) map[string]any {
		t.Helper()
		for _, o := range objects {
			if o.GetKind() == kind && o.GetName() == name {
				return o.Object
			}
		}
		t.Fatalf("got no %s %s, want one", kind, name)
		return nil
	}
	pod, service := find("Deployment", "seamark"), find("Service", "seamark-metrics")
	podLabels, serviceLabels := lookup(pod, "spec.template.metadata.labels"), lookup(service, "metadata.labels")
	checkSelects(t, "Service", lookup(service, "spec.selector"), podLabels)
	checkSelects(t, "PodMonitor", lookup(find("PodMonitor", "seamark"), "spec.selector.matchLabels"), podLabels)
	checkSelects(t, "ServiceMonitor", lookup(find("ServiceMonitor", "seamark"), "spec.selector.matchLabels"), serviceLabels)
	for kind, labels := range map[string]any{"PodMonitor": podLabels, "ServiceMonitor": serviceLabels} {
		label := lookup(find(kind, "seamark"), "spec.jobLabel").(string)
		if job := labels.(map[string]any)[label]; job != "seamark" { // the alerts select it
			t.Errorf("%s: got the job %v, want seamark", kind, job)
		}
	}
	if port := lookup(service, "spec.ports").([]any)[0].(map[string]any); port["name"] != "metrics" || port["targetPort"] != "metrics" {
		t.Errorf("seamark-metrics: got the port %v, want metrics", port)
	}

	chart, err := render(loadChart(t), "image: {repository: registry.example/seamark}\nprometheus: {rule: {enabled: true}}\ndashboard: {enabled: true}", "seamark", "kube-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lookup(find("PrometheusRule", "seamark"), "spec"), lookup(chart.find("PrometheusRule")[0].Object, "spec"); !reflect.DeepEqual(got, want) {
		t.Errorf("PrometheusRule: got\n%v\nwant the chart's\n%v", got, want)
	}
	dashboard, _ := lookup(find("ConfigMap", "seamark-dashboard"), "data").(map[string]any)["seamark.json"].(string)
	text, err := os.ReadFile(filepath.Join(chartDir, "files/dashboard.json"))
	if err != nil || dashboard != string(text) {
		t.Errorf("ConfigMap seamark-dashboard: got error %v and %d bytes, want the chart's dashboard of %d bytes", err, len(dashboard), len(text))
	}
	if label := lookup(find("ConfigMap", "seamark-dashboard"), "metadata.labels").(map[string]any)["grafana_dashboard"]; label != "1" {
		t.Errorf("ConfigMap seamark-dashboard: got the label grafana_dashboard %v, want 1", label)
	}
}

// The component alerts of the nodes' cache selects its pods and its port, and has the alerts of
// the chart in mode node.
func TestNodeAlertsComponent(t *testing.T) {
	objects := kustomize(t, composed(t, filepath.Join(deployDir, "node"), filepath.Join(deployDir, "node/components/alerts")))
	found := map[string]map[string]any{}
	for _, o := range objects {
		found[o.GetKind()] = o.Object
	}
	labels := lookup(found["DaemonSet"], "spec.template.metadata.labels")
	checkSelects(t, "PodMonitor", lookup(found["PodMonitor"], "spec.selector.matchLabels"), labels)
	label := lookup(found["PodMonitor"], "spec.jobLabel").(string)
	if job := labels.(map[string]any)[label]; job != "node-local-dns" { // the alerts select it
		t.Errorf("PodMonitor: got the job %v, want node-local-dns", job)
	}
	port := lookup(found["DaemonSet"], "spec.template.metadata.annotations").(map[string]any)["prometheus.io/port"].(string)
	for _, relabeling := range lookup(found["PodMonitor"], "spec.podMetricsEndpoints").([]any)[0].(map[string]any)["relabelings"].([]any) {
		if address := relabeling.(map[string]any)["replacement"].(string); !strings.HasSuffix(address, ":"+port) {
			t.Errorf("PodMonitor: got the address %s, want port %s", address, port)
		}
	}
	chart, err := render(loadChart(t), "mode: node\nimage: {repository: registry.example/seamark}\nprometheus: {rule: {enabled: true, job: node-local-dns}}", "node-local-dns", "kube-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lookup(found["PrometheusRule"], "spec"), lookup(chart.find("PrometheusRule")[0].Object, "spec"); !reflect.DeepEqual(got, want) {
		t.Errorf("PrometheusRule: got\n%v\nwant the chart's\n%v", got, want)
	}
}

// checkSelects checks that each label of a selector is one of labels.
func checkSelects(t *testing.T, kind string, selector, labels any) {
	t.Helper()
	wanted, _ := selector.(map[string]any)
	if len(wanted) == 0 {
		t.Errorf("%s: got no selector, want one", kind)
	}
	for key, value := range wanted {
		if got := labels.(map[string]any)[key]; got != value {
			t.Errorf("%s: selects %s=%v, and the label is %v", kind, key, value, got)
		}
	}
}

// composed returns a new directory with a kustomization of a base and of components.
func composed(t *testing.T, base string, components ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.Rel(dir, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := "resources: [" + relative(base) + "]\ncomponents:\n"
	for _, c := range components {
		text += "  - " + relative(c) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func kustomize(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// checkContainers checks the images, and what kube-apiserver warns about: a name or a number
// of a port that two ports of a pod have.
func checkContainers(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	containers, _ := lookup(o.Object, "spec.template.spec.containers").([]any)
	seen := map[string]bool{}
	for _, c := range containers {
		c := c.(map[string]any)
		image := c["image"].(string)
		if !strings.HasPrefix(image, "registry.invalid/") && !strings.HasPrefix(image, "registry.example/") {
			t.Errorf("%s: got the image %s, want one of a host that cannot exist", o.GetName(), image)
		}
		ports, _ := c["ports"].([]any)
		for _, p := range ports {
			name := p.(map[string]any)["name"].(string)
			if seen[name] {
				t.Errorf("%s: got two ports with the name %s, want one", o.GetName(), name)
			}
			seen[name] = true
		}
	}
}

// checkCanary checks that an object of a canary does not change the running DNS.
func checkCanary(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() == "ConfigMap" || o.GetKind() == "Service" && (o.GetName() != "seamark-canary" || lookup(o.Object, "spec.clusterIP") != nil) {
		t.Errorf("got %s %s, want only objects of its own", o.GetKind(), o.GetName())
	}
	for _, path := range []string{"metadata.labels.k8s-app", "spec.selector.k8s-app", "spec.selector.matchLabels.k8s-app", "spec.template.metadata.labels.k8s-app"} {
		if label := lookup(o.Object, path); label != nil {
			t.Errorf("%s %s: got %s %v, want none", o.GetKind(), o.GetName(), path, label)
		}
	}
}
