package main

import (
	"strings"
	"testing"
)

// The notes of a canary compare the running server and the new one before the switch.
func TestNotesOfCanary(t *testing.T) {
	const values = "mode: canary\nimage: {repository: registry.example/seamark, tag: \"1\"}\n"
	r, err := render(loadChart(t), values, "dns", "kube-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	diff := strings.Index(r.notes, "    seamark diff --transport port-forward\n")
	own := strings.Index(r.notes, "    seamark diff --transport port-forward --against kube-system/$(kubectl -n kube-system get pods")
	if removal := strings.Index(r.notes, "To remove it"); diff < 0 || own < diff || removal < own {
		t.Errorf("got the notes\n%s\nwant seamark diff against the running server, then against the new one", r.notes)
	}

	selector := "app.kubernetes.io/name=seamark,app.kubernetes.io/instance=dns"
	for pair := range strings.SplitSeq(selector, ",") {
		key, want, _ := strings.Cut(pair, "=")
		labels, _ := field(r.server(t), "spec.template.metadata.labels").(map[string]any)
		if labels[key] != want || !strings.Contains(r.notes, "-l "+selector) {
			t.Errorf("got the label %s=%v and the notes\n%s\nwant %s in both", key, labels[key], r.notes, pair)
		}
	}
}
