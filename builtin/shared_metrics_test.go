package builtin

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
)

// The gauges of two directives with equal labels have the data of both, also after one of them has
// been removed.
func TestGaugesOfTwoDirectives(t *testing.T) {
	const (
		service = "apiVersion: v1\nkind: Service\nmetadata: {name: NAME, namespace: default}\nspec: {clusterIP: 10.0.0.1}\n---\n"
		first   = "cluster.local:0 {\n kubernetes {\n manifests first\n}\n}\n"
		second  = "tls://cluster.local:0 {\n tls cert.pem key.pem\n kubernetes {\n manifests second\n}\n}\n"
	)
	s := serveEncrypted(t, ".:0 {\n whoami\n}\n")
	for folder, text := range map[string]string{"first": "a", "second": "b c"} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		var objects strings.Builder
		for name := range strings.FieldsSeq(text) {
			objects.WriteString(strings.ReplaceAll(service, "NAME", name))
		}
		if err := os.WriteFile(folder+"/services.yaml", []byte(objects.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct {
		text string
		want float64
	}{{first, 1}, {first + second, 3}, {second, 2}, {second + first, 3}} {
		s.load(c.text)
		series := metrics.SeriesName("seamark_kubernetes_objects", "zones", "cluster.local.", "resource", "services")
		// Sources register after the start.
		chaintest.Eventually(t, fmt.Sprintf("%s\n%s is %v", c.text, series, c.want), func() bool {
			return s.metrics.Values(func(string) bool { return true })[series] == c.want
		})
	}
}
