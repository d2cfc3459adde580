package cmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/operate/adminclient"
)

// The status has the share that the kernel of the node answers, and why it does not answer for a server
// block, as text and in JSON; neither without such a kernel.
func TestStatusOfKernel(t *testing.T) {
	s := &adminclient.Status{Kernel: &traffic.Kernel{
		Queries: 120.25, Share: 0.952, Prevented: []traffic.Prevention{{Zones: "a.example. b.example.", Directive: "log"}},
	}}
	show := func() (text, object string) {
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
	text, object := show()
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
	if text, object = show(); strings.Contains(text+object, "kernel") {
		t.Errorf("without a kernel that repeats: got %s%s", text, object)
	}
}
