package canary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/operate/servers"
)

func TestParseMetrics(t *testing.T) {
	page := `# HELP coredns_dns_responses_total Counter of response status codes.
coredns_dns_responses_total{plugin="forward",rcode="NOERROR",server="dns://:53",view="",zone="."} 10
coredns_dns_responses_total{server="dns://:53",zone="a\"b}.",rcode="SERVFAIL"} 2.5e+01 1700000000
coredns_dns_responses_total{rcode="NOERROR"} 5
coredns_dns_responses_total{rcode="NOERROR"} NaN
coredns_dns_responses_total{rcode="NOERROR} 7
coredns_dns_responses_total{rcode} 7
coredns_dns_responses_total 7
coredns_dns_request_duration_seconds_bucket{le="0.001"} 3
coredns_dns_request_duration_seconds_bucket{le="+Inf",zone="."} 4
coredns_dns_request_duration_seconds_bucket{le="x"} 9
coredns_dns_request_duration_seconds_sum{zone="."} 9
`
	got := parseMetrics([]byte(page), "")
	if want := map[string]float64{"NOERROR": 15, "SERVFAIL": 25}; got.queries != 40 || !maps.Equal(got.responses, want) {
		t.Errorf("responses: got %v, want %v", got.responses, want)
	}
	if want := map[float64]float64{0.001: 3, math.Inf(1): 4}; !maps.Equal(got.durations, want) {
		t.Errorf("durations: got %v, want %v", got.durations, want)
	}
}

// kube-dns counts queries, and replies without records by their cause.
func TestParseMetricsKubeDNS(t *testing.T) {
	const page = `a_b_dns_request_count_total{system="auth"} 90
a_b_dns_request_count_total{system="recursive"} 10
a_b_dns_error_count_total{system="auth",cause="nxdomain"} 30
a_b_dns_error_count_total{system="auth",cause="nodata"} 5
a_b_dns_error_count_total{system="recursive",cause="servfail"} 3
a_b_dns_error_count_total{system="recursive",cause="refused"} 2
a_b_dns_request_duration_seconds_bucket{system="auth",le="0.001"} 80
a_b_dns_request_duration_seconds_bucket{system="recursive",le="0.001"} 1
coredns_dns_responses_total{rcode="SERVFAIL"} 50
`
	got := parseMetrics([]byte(page), "a_b_dns_")
	if want := map[string]float64{"SERVFAIL": 3, "REFUSED": 2}; got.queries != 100 || !maps.Equal(got.responses, want) {
		t.Errorf("queries and responses: got %v and %v, want 100 and %v", got.queries, got.responses, want)
	}
	if want := map[float64]float64{0.001: 81}; !maps.Equal(got.durations, want) {
		t.Errorf("durations: got %v, want %v", got.durations, want)
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte(`coredns_dns_responses_total{a="b",rcode="x"} 1`), "")
	f.Add([]byte(`skydns_skydns_dns_error_count_total{cause="x"} 1`), "skydns_skydns_dns_")
	f.Fuzz(func(_ *testing.T, page []byte, names string) { parseMetrics(page, names) })
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		buckets map[float64]float64
		want    float64
	}{
		{nil, 0},
		{map[float64]float64{math.Inf(1): 0}, 0},
		{map[float64]float64{1: 100, 2: 100, math.Inf(1): 100}, 0.99},
		{map[float64]float64{1: 50, 2: 100, math.Inf(1): 100}, 1.98},
		{map[float64]float64{1: 50, 2: 60, math.Inf(1): 100}, 2},
	} {
		if got := metrics.Quantile(0.99, c.buckets); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile of %v: got %v, want %v", c.buckets, got, c.want)
		}
	}
}

func TestRuleApply(t *testing.T) {
	r := Rule{MinQueries: 100, MaxServfail: 0.01, MaxErrors: 0.01, MaxSlowdown: 2, MinP99: 5 * time.Millisecond}
	good := Side{Queries: 1000, Servfail: 20, P99: 0.004}
	for _, c := range []struct {
		name         string
		old, seamark Side
		want         string
	}{
		{"equal", good, good, ""},
		{"few queries", good, Side{Queries: 99}, "Seamark had 99 queries in 1m0s, the rule needs 100"},
		{"SERVFAIL", good, Side{Queries: 1000, Servfail: 31}, "SERVFAIL: 3.10%"},
		{"other errors", good, Side{Queries: 1000, OtherErrors: 11}, "other errors: 1.10%"},
		{"slow", good, Side{Queries: 1000, P99: 0.009}, "p99: Seamark 9.0 ms, the old server 4.0 ms"},
		{"twice as long but short", Side{Queries: 1000, P99: 0.001}, Side{Queries: 1000, P99: 0.004}, ""},
		{"old server without queries", Side{}, Side{Queries: 1000, P99: 1}, ""},
		{"errors and an old server without queries", Side{}, Side{Queries: 1000, Servfail: 11}, "SERVFAIL: 1.10%"},
	} {
		got := strings.Join(r.apply(c.old, c.seamark, time.Minute), "; ")
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCorefilePath(t *testing.T) {
	for _, c := range []struct {
		container servers.Container
		want      string
	}{
		{servers.Container{Args: []string{"-conf", "/etc/coredns/Corefile"}}, "/etc/coredns/Corefile"},
		{servers.Container{Args: []string{"-quiet", "--conf=/a"}}, "/a"},
		{servers.Container{Command: []string{"/coredns", "-conf", "/b"}}, "/b"},
		{servers.Container{Args: []string{"conf", "/etc"}}, ""},
		{servers.Container{Args: []string{"-conf"}}, ""},
		{servers.Container{Args: []string{"--config-dir=/kube-dns-config"}}, ""},
	} {
		if got := corefile(c.container); got != c.want {
			t.Errorf("Corefile of %+v: got %q, want %q", c.container, got, c.want)
		}
	}
}

// oldDeployment returns a Deployment with fields that a copy changes.
func oldDeployment(t *testing.T) *deployment {
	t.Helper()
	const text = `{
  "metadata": {"name": "coredns", "labels": {"k8s-app": "kube-dns", "eks.amazonaws.com/component": "coredns"}},
  "spec": {"replicas": 3, "strategy": {"type": "RollingUpdate"}, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}, "template": {
    "metadata": {"labels": {"k8s-app": "kube-dns"}, "annotations": {"kubectl.kubernetes.io/restartedAt": "now", "a": "b"}},
    "spec": {
      "futureField": {"x": 9007199254740993},
      "affinity": {"nodeAffinity": {"a": "b"}, "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
      "topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}],
      "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
      "priorityClassName": "system-cluster-critical", "serviceAccountName": "coredns",
      "containers": [
        {"name": "reloader", "image": "a"},
        {"name": "coredns", "image": "b", "command": ["/coredns", "-conf", "/etc/coredns/Corefile"], "args": ["-quiet"],
         "securityContext": {"capabilities": {"drop": ["all"]}},
         "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}, {"name": "custom", "mountPath": "/etc/coredns/custom"}]}],
      "volumes": [{"name": "config", "configMap": {"name": "coredns", "items": [{"key": "Corefile", "path": "Corefile"}]}},
                  {"name": "custom", "configMap": {"name": "coredns-custom", "optional": true}}]}}}}`
	d := &deployment{raw: json.RawMessage(text)}
	if err := json.Unmarshal(d.raw, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Seamark's pods are copies of the old ones, with fields that this version does not know.
func TestManifest(t *testing.T) {
	c := command{Options: Options{Name: "seamark", Namespace: "kube-system", Image: "registry.invalid/seamark:1"}}
	o, err := c.manifest(&state{old: oldDeployment(t)})
	if err != nil {
		t.Fatal(err)
	}
	spec := at(o, "spec", "template", "spec")
	containers := spec["containers"].([]any)
	for _, c := range []struct {
		name      string
		got       any
		wantsJSON string
	}{
		{"replicas", at(o, "spec")["replicas"], `3`},
		{"strategy", at(o, "spec", "strategy"), `{"type":"RollingUpdate"}`},
		{"own labels", at(o, "metadata", "labels"), `{"app":"seamark","app.kubernetes.io/name":"seamark"}`},
		{"selector", at(o, "spec", "selector", "matchLabels"), `{"app":"seamark"}`},
		{"labels", at(o, "spec", "template", "metadata", "labels"), `{"app":"seamark","app.kubernetes.io/name":"seamark","seamark-canary/app":"seamark"}`},
		{"annotations", at(o, "spec", "template", "metadata", "annotations"), `{"a":"b"}`},
		{"node affinity", at(spec, "affinity", "nodeAffinity"), `{"a":"b"}`},
		{"required anti-affinity", at(spec, "affinity", "podAntiAffinity")["requiredDuringSchedulingIgnoredDuringExecution"], `null`},
		{"topology", spec["topologySpreadConstraints"], `[{"labelSelector":{"matchLabels":{"app":"seamark"}},"maxSkew":1}]`},
		{"unknown field", spec["futureField"], `{"x":9007199254740993}`},
		{"account", spec["serviceAccountName"], `"coredns"`},
		{"other container", containers[0], `{"image":"a","name":"reloader"}`},
		{"image", containers[1].(object)["image"], `"registry.invalid/seamark:1"`},
		{"command", containers[1].(object)["command"], `null`},
		{"args", containers[1].(object)["args"], `["-conf","/etc/coredns/Corefile","-quiet","-admin=localhost:8053"]`},
		{"capabilities", at(containers[1].(object), "securityContext", "capabilities"), `{"add":["NET_BIND_SERVICE"],"drop":["all"]}`},
	} {
		got, err := json.Marshal(c.got)
		if err != nil || string(got) != c.wantsJSON {
			t.Errorf("%s: got %s, error %v, want %s", c.name, got, err, c.wantsJSON)
		}
	}
}

// The mounted files are those of the ConfigMaps, at the paths in the container.
func TestConfigMapFiles(t *testing.T) {
	d := oldDeployment(t)
	files := map[string]string{}
	for _, m := range d.configMaps(d.Spec.Template.Spec.Containers[1]) {
		maps.Copy(files, m.files(map[string]string{"Corefile": "1", "a.override": "2"}))
	}
	want := map[string]string{"/etc/coredns/Corefile": "1", "/etc/coredns/custom/Corefile": "1", "/etc/coredns/custom/a.override": "2"}
	if !maps.Equal(files, want) {
		t.Errorf("files: got %v, want %v", files, want)
	}
	sub := mountedMap{"/Corefile", "a.override", configMapVolume{}}.files(map[string]string{"Corefile": "1", "a.override": "2"})
	if want := map[string]string{"/Corefile": "2"}; !maps.Equal(sub, want) {
		t.Errorf("files of a subPath: got %v, want %v", sub, want)
	}
}

func TestManagedWarnings(t *testing.T) {
	s := &state{old: oldDeployment(t)}
	got := strings.Join(s.managed(Alone), "\n")
	for _, want := range []string{"aws eks delete-addon --preserve", "keeps its zero replicas", "--skip-phases=addon/coredns (kubeadm 1.32 or later)"} {
		if !strings.Contains(got, want) {
			t.Errorf("warnings: got\n%s\nwant %s", got, want)
		}
	}
	if got := s.managed(Beside); len(got) != 1 {
		t.Errorf("warnings before the last stage: got %q, want that of EKS", got)
	}
}

// Promote continues from a Deployment that the chart has installed: its Service has another
// name, and its pods other labels.
func TestStepsChart(t *testing.T) {
	chart := oldDeployment(t)
	chart.Metadata.Name, chart.Status.Replicas, chart.Status.UpdatedReplicas, chart.Status.ReadyReplicas = "seamark", 3, 3, 3
	labels := map[string]string{"app.kubernetes.io/name": "seamark"}
	chart.Spec.Selector.MatchLabels, chart.Spec.Template.Metadata.Labels = labels, labels
	s := &state{old: oldDeployment(t), seamark: chart}
	s.service.Spec.Selector = map[string]string{"k8s-app": "kube-dns"}
	c := command{Options: Options{Name: "seamark", Namespace: "kube-system", Kubectl: "kubectl"}}
	if steps := c.steps(s, s.stage()); s.stage() != Beside || len(steps) > 0 {
		t.Errorf("stage %v: got steps %v, want stage 1 and no steps", s.stage(), steps)
	}
}

// Pods of Seamark that are still behind the Service when its Deployment has been deleted leave it, by the label that
// all of its pods have: at start and rollback, and in the status of stage None.
func TestStepsDeploymentGone(t *testing.T) {
	s := &state{old: oldDeployment(t)}
	s.service.Spec.Selector = map[string]string{"k8s-app": "kube-dns"}
	left := readyPod("10.244.0.5")
	left.Metadata.Labels = map[string]string{"app": "seamark", "k8s-app": "kube-dns"}
	s.pods[seamarkSide] = []pod{left}
	for _, c := range []struct {
		to   Stage
		back bool
	}{{s.stage(), false}, {Beside, false}, {None, true}} {
		r := command{Options: Options{Name: "seamark", Namespace: "kube-system", Kubectl: "kubectl", Image: "seamark:1"}, back: c.back}
		var commands []string
		for _, step := range r.steps(s, c.to) {
			commands = append(commands, step.command)
		}
		if want := "kubectl -n kube-system label pods -l app=seamark k8s-app-"; !slices.Contains(commands, want) {
			t.Errorf("to stage %v, back %v: got the commands\n%s\nwant %s among them", c.to, c.back, strings.Join(commands, "\n"), want)
		}
	}
}

// Answers are compared at the port of a pod to which the Service maps port 53, by number or by the name of a
// container's port.
func TestDNSPortServiceTarget(t *testing.T) {
	for _, c := range []struct{ ports, want string }{
		{`[]`, "53"},
		{`[{"port": 53, "protocol": "UDP"}]`, "53"},
		{`[{"port": 53, "protocol": "UDP", "targetPort": 1053}]`, "1053"},
		{`[{"port": 9153, "targetPort": 9253}, {"port": 53, "targetPort": 1053}]`, "1053"},
		{`[{"port": 53, "protocol": "UDP", "targetPort": "dns"}]`, "1053"},
		{`[{"port": 53, "targetPort": "dns"}]`, "1054"}, // of TCP
		{`[{"port": 53, "protocol": "TCP", "targetPort": "dns-tcp"}]`, "53"},
	} {
		s := &state{old: oldDeployment(t)}
		container := &s.old.Spec.Template.Spec.Containers[1]
		const own = `[{"name": "dns", "containerPort": 1053, "protocol": "UDP"}, {"name": "dns", "containerPort": 1054}]`
		if err := errors.Join(json.Unmarshal([]byte(c.ports), &s.service.Spec.Ports), json.Unmarshal([]byte(own), &container.Ports)); err != nil {
			t.Fatal(err)
		}

		var got string
		r := command{Options: Options{Out: io.Discard, Diff: func(_ context.Context, p Pod, _ string) (Differences, error) {
			got = p.Port
			return Differences{}, nil
		}}}
		s.pods[oldSide] = []pod{readyPod("10.244.0.5")}
		if problems := r.differences(t.Context(), s); problems != nil || got != c.want {
			t.Errorf("ports %s: got port %s, problems %q, want %s and none", c.ports, got, problems, c.want)
		}
	}
}

// readyPod returns a pod that is ready.
func readyPod(address string) (p pod) {
	p.Status.PodIP = address
	p.Status.Conditions = api.Conditions{{Type: "Ready", Status: "True"}}
	return p
}

// A Deployment that selects its pods by matchExpressions has these pods, and not all pods of the namespace.
func TestReadStateMatchExpressions(t *testing.T) {
	const expressions = `{"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["kube-dns", "coredns"]},
		{"key": "tier", "operator": "NotIn", "values": ["a", "b"]}, {"key": "dns", "operator": "Exists"},
		{"key": "old", "operator": "DoesNotExist"}]`
	const text = "k8s-app in (kube-dns,coredns),tier notin (a,b),dns,!old"
	const own = `{"metadata": {"name": "seamark"}, "spec": {"selector": %s}}`
	for _, c := range []struct {
		name, selector, want string
		seamark, err         string
	}{
		{"labels", `{"matchLabels": {"k8s-app": "kube-dns", "a": "b"}}`, "a=b,k8s-app=kube-dns", "", ""},
		{"expressions", expressions + "}", text, "", ""},
		{"both", expressions + `, "matchLabels": {"a": "b"}}`, "a=b," + text, "", ""},
		{"Seamark's by expressions alone", `{"matchLabels": {"a": "b"}}`, "", fmt.Sprintf(own, expressions+"}"),
			"the Deployment seamark has no selector.matchLabels"},
		{"Seamark's by the Service's label", `{"matchLabels": {"a": "b"}}`, "",
			fmt.Sprintf(own, expressions+`, "matchLabels": {"a": "b"}}`), "the Deployment seamark selects its pods by the label k8s-app"},
	} {
		deployments := `{"metadata": {"name": "coredns"}, "spec": {"selector": ` + c.selector + `,
			"template": {"metadata": {"labels": {"k8s-app": "kube-dns"}}}}}`
		if c.seamark != "" {
			deployments += "," + c.seamark
		}

		var selected []string
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch path.Base(r.URL.Path) {
			case "kube-dns":
				fmt.Fprint(w, `{"spec": {"selector": {"k8s-app": "kube-dns"}}}`)
			case "deployments":
				fmt.Fprintf(w, `{"items": [%s]}`, deployments)
			case "pods":
				selected = append(selected, r.URL.Query().Get("labelSelector"))
				fmt.Fprint(w, `{}`)
			case "endpointslices":
				fmt.Fprint(w, `{}`)
			default:
				http.NotFound(w, r)
			}
		}))
		session, err := apiserver.NewSession(cluster.Options{Endpoint: api.URL})
		if err != nil {
			t.Fatal(err)
		}

		r := command{Options: Options{Namespace: "kube-system", Service: "kube-dns", Name: "seamark", API: session}}
		_, err = r.readState(t.Context())
		want := []string{"app=seamark-canary", "app=seamark", c.want}
		if c.err == "" && (err != nil || !slices.Equal(selected, want)) {
			t.Errorf("%s: got the selectors %q, error %v, want %q and none", c.name, selected, err, want)
		}
		if c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
			t.Errorf("%s: got error %v, want %s", c.name, err, c.err)
		}
		if strings.HasSuffix(c.err, "k8s-app") { // its pods are not in the Service: a rollback may delete it
			r.back = true
			if _, err := r.readState(t.Context()); err != nil {
				t.Errorf("%s: rollback: got error %v, want none", c.name, err)
			}
		}
		session.Close()
		api.Close()
	}
}

// With --force one pod of the old server is enough, but only one that the Service sends queries to.
func TestEnoughOldForcedNotInService(t *testing.T) {
	c := command{Options: Options{Force: "test"}}
	s := &state{old: oldDeployment(t), serving: map[string]bool{"10.244.0.6": true}}
	s.pods[oldSide] = []pod{readyPod("10.244.0.5")}
	if c.enoughOld(s) {
		t.Error("a ready pod that is no endpoint of the Service: got enough, want not enough")
	}
	s.serving["10.244.0.5"] = true
	if !c.enoughOld(s) {
		t.Error("a ready endpoint of the Service: got not enough, want enough")
	}
}
