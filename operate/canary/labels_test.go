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
