package transfer_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// Zones that nothing can be transferred of, and zones of two directives, are warnings.
func TestSourceWarnings(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(1, 1))
	const secondary, to = " secondary {\n transfer from 192.0.2.1\n}\n", "{\n to *\n}\n"
	for _, c := range []struct{ text, want string }{
		{"example.org {\n whoami\n transfer " + to + "}", "Corefile:3: transfer: no zone to transfer in example.org.: add dynupdate, file, auto, secondary, gateway, k8s_external or kubernetes with the zone to this server block"},
		{". {\n file " + db + " example.org\n transfer example.net example.org " + to + "}", "Corefile:3: transfer: no zone to transfer in example.net.: add dynupdate, file, auto, secondary, gateway, k8s_external or kubernetes with the zone to this server block"},
		{"example.org {\n transfer " + to + "\n file " + db + "\n" + secondary + "}", "Corefile:2: transfer: zone example.org. is in file and in secondary: only the records of file are transferred; remove one\nCorefile:7: secondary: never reached: file on line 6 answers before it (add fallthrough to file)"},
		{"example.org {\n file " + db + "\n" + secondary + "}", "Corefile:3: secondary: never reached: file on line 2 answers before it (add fallthrough to file)"},
		{"example.org {\n file " + db + "\n transfer " + to + "}", ""},
		{". {\n file " + db + " example.org\n transfer " + to + "}", ""},
		{"example.org example.net {\n file " + db + " example.org\n transfer " + to + "}", ""},
		{". {\n file " + db + " example.org\n transfer . " + to + "}", ""},
		{". {\n file " + db + " example.org\n transfer example.org " + to + " transfer " + to + "}", "Corefile:6: transfer: no zone to transfer in .: add dynupdate, file, auto, secondary, gateway, k8s_external or kubernetes with the zone to this server block"},
		{"example.org {\n" + secondary + " transfer " + to + "}", ""},
		{". {\n auto {\n directory " + filepath.Dir(db) + "\n}\n transfer example.org " + to + "}", ""},
		{". {\n secondary catalog.example {\n transfer from 192.0.2.1\n catalog\n}\n transfer example.org " + to + "}", ""},
	} {
		blocks, err := corefile.Parse("Corefile", []byte(c.text))
		var plan *server.Plan
		if err == nil {
			plan, err = server.NewPlan(blocks, server.Options{Directives: builtin.Directives(), Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry)})
		}
		if err != nil {
			t.Fatalf("%s\n%v", c.text, err)
		}
		got := ""
		if w := plan.Warnings(); w != nil {
			got = w.Error()
		}
		if got != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.text, errors.New(strings.ReplaceAll(got, "\n", "; ")), c.want)
		}
	}
}
