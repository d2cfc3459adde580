package cmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/operate/adminclient"
)

// shown returns a status as text, and in JSON.
func shown(t *testing.T, s *adminclient.Status) (text, object string) {
	t.Helper()
	var rows strings.Builder
	for row, value := range cells(s) {
		rows.WriteString(row.group + ": " + row.name + ": " + value + "\n")
	}
	printed, err := json.Marshal(newServerState(s))
	if err != nil {
		t.Fatal(err)
	}
	return rows.String(), string(printed)
}

// Objects that one of two clusters has not sent yet are not synced.
func TestStatusOfTwoClusters(t *testing.T) {
	text, object := shown(t, &adminclient.Status{Metrics: map[string]float64{
		`seamark_kubernetes_synced{resource="services",zones="a."}`:    1,
		`seamark_kubernetes_synced{resource="services",zones="b."}`:    0,
		`seamark_kubernetes_data_age_seconds{resource="services"}`:     600,
		`seamark_kubernetes_objects{resource="services",zones="a."}`:   7,
		`seamark_kubernetes_stale{zones="a."}`:                         0,
		`seamark_kubernetes_stale{zones="b."}`:                         0,
		`seamark_kubernetes_synced{resource="namespaces",zones="a."}`:  1,
		`seamark_kubernetes_synced{resource="namespaces",zones="b."}`:  1,
		`seamark_kubernetes_data_age_seconds{resource="namespaces"}`:   5,
		`seamark_kubernetes_objects{resource="namespaces",zones="a."}`: 2,
	}})
	for _, want := range []string{"data age: never (services)", "not synced"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %s", text, want)
		}
	}
	for _, want := range []string{`{"resource":"namespaces","synced":true,"age_seconds":5,"objects":2}`, `{"resource":"services","synced":false,"objects":7}`} {
		if !strings.Contains(object, want) {
			t.Errorf("got\n%s\nwant %s", object, want)
		}
	}
}

// The status has the share that the kernel of the node answers, and why it does not answer for a server
// block, as text and in JSON; neither without such a kernel.
func TestStatusOfKernel(t *testing.T) {
	s := &adminclient.Status{Kernel: &traffic.Kernel{
		Queries: 120.25, Share: 0.952, Prevented: []traffic.Prevention{{Zones: "a.example. b.example.", Directive: "log"}},
	}}
	text, object := shown(t, s)
	for _, want := range []string{
		"Queries in the last minute: repeated by the kernel: 120.2 per second more, 95 % of all\n",
		"Queries in the last minute:   not those of a.example. b.example.: because of log\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	want := `"kernel":{"queries_per_second":120.25,"share":0.952,"prevented":[{"zones":"a.example. b.example.","directive":"log"}]}`
	if !strings.Contains(object, want) {
		t.Errorf("got %s, want %s", object, want)
	}

	s.Kernel = nil
	if text, object = shown(t, s); strings.Contains(text+object, "kernel") {
		t.Errorf("without a kernel that repeats: got %s%s", text, object)
	}
}
