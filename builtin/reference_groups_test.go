package builtin

import (
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// The section Groups of the page of policy lists all options of a group, each once, and no others.
func TestReferenceGroups(t *testing.T) {
	_, text, _ := strings.Cut(read(t, filepath.Join(referenceDir, "policy.md")), "\n## Groups\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var shown []string
	for _, item := range listItem.FindAllStringSubmatch(text, -1) {
		for _, usage := range itemUsage.FindAllStringSubmatch(item[1], -1) {
			shown = append(shown, usage[1])
		}
	}
	if items := regexp.MustCompile("(?m)^- ").FindAllString(text, -1); len(items) != len(listItem.FindAllString(text, -1)) {
		t.Errorf("policy.md: got an item of Groups that is not of the form - `SYNTAX`: meaning, in\n%s", text)
	}

	const withUnknown = ".:1053 {\npolicy {\ngroup a {\nno_such_option\n}\n}\nwhoami\n}\n"
	blocks, err := corefile.Parse("Corefile", []byte(withUnknown))
	if err != nil {
		t.Fatal(err)
	}
	_, err = server.NewPlan(blocks, server.Options{
		Directives: withInterfaces(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
		Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
	})
	unknown, ok := errors.AsType[*corefile.UnknownOption](err)
	if !ok {
		t.Fatalf("got error %v, want one of an unknown option", err)
	}

	var want []string
	for _, o := range unknown.Known {
		want = append(want, o.Usage)
	}
	same(t, "policy.md: the list in Groups", shown, want)
	if len(shown) != len(want) {
		t.Errorf("policy.md: got %d options in Groups, want %d: %q", len(shown), len(want), shown)
	}
}
