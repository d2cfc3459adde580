package directive

import (
	"context"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// coredns_plugin_enabled has no series of a plan that has ended.
func TestPluginEnabledAfterPlanEnds(t *testing.T) {
	r := run(t, ".:53 {\n prometheus 127.0.0.1:0\n whoami\n}")
	r.exchange(packet(t, "a.example.", wire.TypeA), dns.UDP, client)
	if shown := r.metrics("coredns_plugin_enabled"); !strings.Contains(shown, `name="whoami"} 1`) {
		t.Fatalf("running plan: got\n%s\nwant whoami with the value 1", shown)
	}
	config.NewStart(context.Background(), r.start).Commit()
	if shown := r.metrics("coredns_plugin_enabled"); shown != "" {
		t.Errorf("ended plan: got\n%s\nwant no series", shown)
	}
}
