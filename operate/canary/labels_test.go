package canary

import (
	"encoding/json"
	"testing"
)

// If the Service selects by the label app, Seamark's pods have another one in its place.
func TestManifestServiceSelectsApp(t *testing.T) {
	c := command{Options: Options{Name: "seamark", Namespace: "kube-system", Image: "registry.invalid/seamark:1"}}
	s := &state{old: oldDeployment(t)}
	s.service.Spec.Selector = map[string]string{"app": "coredns"}
	o, err := c.manifest(s)
	if err != nil {
		t.Fatal(err)
	}
	own := c.ownService(s)
	if err := json.Unmarshal(encode(o), &s.seamark); err != nil {
		t.Fatal(err)
	}
	s.seamark.raw = encode(o)
	one, err := c.onePod(s)
	if err != nil {
		t.Fatal(err)
	}

	const ownLabel, oneLabel = `{"seamark-canary/app":"seamark"}`, `{"seamark-canary/app":"seamark-canary"}`
	for _, c := range []struct {
		name      string
		got       object
		wantsJSON string
	}{
		{"selector", at(o, "spec", "selector", "matchLabels"), ownLabel},
		{"the Service's", at(own, "spec", "selector"), ownLabel},
		{"of one pod", at(one, "spec", "selector", "matchLabels"), oneLabel},
	} {
		if got := string(encode(c.got)); got != c.wantsJSON {
			t.Errorf("%s: got %s, want %s", c.name, got, c.wantsJSON)
		}
	}
	for which, want := range map[side]string{seamarkSide: "seamark-canary/app=seamark", oneSide: "seamark-canary/app=seamark-canary"} {
		if got := c.selector(s, which).String(); got != want {
			t.Errorf("pods of side %d: got the selector %s, want %s", which, got, want)
		}
	}
}

// Behind a Service that selects by the label of servers.Selector, as that of CoreDNS's chart does, Seamark's pods have
// another label by which they are found, and get their name back when they leave it.
func TestServiceSelectsName(t *testing.T) {
	c := command{Options: Options{Name: "seamark", Namespace: "kube-system", Kubectl: "kubectl"}}
	s := &state{old: oldDeployment(t), seamark: oldDeployment(t)}
	s.service.Spec.Selector = map[string]string{"app.kubernetes.io/name": "coredns", "k8s-app": "kube-dns"}
	one, err := c.onePod(s)
	if err != nil {
		t.Fatal(err)
	}
	const behind = `{"app":"seamark-canary","app.kubernetes.io/name":"coredns","k8s-app":"kube-dns","seamark-canary/app":"seamark-canary"}`
	if got := string(encode(at(one, "spec", "template", "metadata", "labels"))); got != behind {
		t.Errorf("labels of one pod: got %s, want %s", got, behind)
	}

	s.seamark.Spec.Selector.MatchLabels = map[string]string{"app": "seamark"}
	s.seamark.Spec.Template.Metadata.Labels = s.service.Spec.Selector
	steps := c.withdraw(s, Beside)
	for i, want := range []string{
		`kubectl -n kube-system patch deployment seamark --type=merge -p '{"spec":{"template":{"metadata":{"labels":{"app.kubernetes.io/name":"seamark","k8s-app":null}}}}}'`,
		"kubectl -n kube-system label pods -l app=seamark --overwrite app.kubernetes.io/name=seamark k8s-app-",
	} {
		if i >= len(steps) || steps[i].command != want {
			t.Errorf("step %d of a rollback: got %+v, want %s", i, steps, want)
		}
	}
}
