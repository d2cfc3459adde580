package directive

import (
	"context"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// What a plan enables is not enabled any more when the plan has ended.
func TestPluginEnabledEndsWithThePlan(t *testing.T) {
	r := run(t, ".:53 {\n prometheus 127.0.0.1:0\n whoami\n}")
	r.ask(packet(t, "a.example.", wire.TypeA), dns.UDP, client)
	if shown := r.metrics("coredns_plugin_enabled"); !strings.Contains(shown, `name="whoami"} 1`) {
		t.Fatalf("whoami is not shown as enabled:\n%s", shown)
	}
	config.NewStart(context.Background(), r.start).Commit()
	if shown := r.metrics("coredns_plugin_enabled"); shown != "" {
		t.Errorf("still enabled after the plan's end:\n%s", shown)
	}
}
