// Command chart writes the files derived from the Helm chart deploy/helm/seamark: its README,
// from the template README.md.tmpl with tables of the values (the comments of values.yaml) and
// of the values of the chart coredns/coredns (coredns-values.yaml), and its alerts and its
// dashboard in the components of deploy/kubernetes and deploy/node.
//
//	go run ./chart ../deploy
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want the directory deploy", len(args))
	}
	files, err := derived(args[0])
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(args[0], name), text, 0o644))
	}
	return err
}

// derived returns the files that are derived from the chart, by their names in the directory
// deploy.
func derived(deploy string) (map[string][]byte, error) {
	chart := filepath.Join(deploy, "helm", "seamark")
	text, err := readme(chart)
	if err != nil {
		return nil, err
	}

	files := map[string][]byte{}
	for _, name := range []string{"alerts.yaml", "node-alerts.yaml", "dashboard.json"} {
		if files[name], err = os.ReadFile(filepath.Join(chart, "files", name)); err != nil {
			return nil, err
		}
	}

	return map[string][]byte{
		"helm/seamark/README.md": text,
		"kubernetes/components/alerts/prometheusrule.yaml": prometheusRule("seamark", "app.kubernetes.io/name", files["alerts.yaml"],
			"that the components service-monitor and pod-monitor set, and by the namespace."),
		"node/components/alerts/prometheusrule.yaml": prometheusRule("node-local-dns", "k8s-app",
			slices.Concat(files["alerts.yaml"], files["node-alerts.yaml"]),
			"that the PodMonitor sets, and by the namespace."),
		"kubernetes/components/dashboard/seamark.json": files["dashboard.json"],
	}, nil
}

// prometheusRule returns the PrometheusRule of a component alerts, with rules of the chart. Its
// name is also the job of the series and the value of the label; origin ends the comment on
// that.
func prometheusRule(name, label string, alerts []byte, origin string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `# The alerts of the Helm chart, written by tools/chart. They select the series by the label job
# %[3]s
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: %[1]s
  namespace: kube-system
  labels:
    %[2]s: %[1]s
spec:
  groups:
    - name: seamark
      rules:
`, name, label, origin)

	for line := range bytes.Lines(alerts) {
		if bytes.HasPrefix(line, []byte("#")) {
			continue // about SELECTOR
		}
		out.WriteString("        ")
		out.Write(bytes.ReplaceAll(line, []byte("SELECTOR"),
			fmt.Appendf(nil, "job=%q,namespace=%q", name, "kube-system")))
	}
	return out.Bytes()
}
