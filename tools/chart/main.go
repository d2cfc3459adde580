// Command chart writes what is derived from the Helm chart deploy/helm/seamark: its README,
// from the template README.md.tmpl with tables of the values (the comments of values.yaml) and
// of the values of the chart coredns/coredns (coredns-values.yaml), and its alerts and its
// dashboard in the components of deploy/kubernetes.
//
//	go run ./chart ../deploy
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	alerts, err := os.ReadFile(filepath.Join(chart, "files", "alerts.yaml"))
	if err != nil {
		return nil, err
	}
	dashboard, err := os.ReadFile(filepath.Join(chart, "files", "dashboard.json"))
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"helm/seamark/README.md":                           text,
		"kubernetes/components/alerts/prometheusrule.yaml": prometheusRule(alerts),
		"kubernetes/components/dashboard/seamark.json":     dashboard,
	}, nil
}

// prometheusRule returns the PrometheusRule of the component alerts, with the rules of the
// chart's alerts.yaml.
func prometheusRule(alerts []byte) []byte {
	var out bytes.Buffer
	out.WriteString(`# The alerts of the Helm chart, written by tools/chart. They select the series by the label job
# that the components service-monitor and pod-monitor set, and by the namespace.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: seamark
  namespace: kube-system
  labels:
    app.kubernetes.io/name: seamark
spec:
  groups:
    - name: seamark
      rules:
`)
	for line := range bytes.Lines(alerts) {
		if bytes.HasPrefix(line, []byte("#")) {
			continue // about SELECTOR
		}
		out.WriteString("        ")
		out.Write(bytes.ReplaceAll(line, []byte("SELECTOR"), []byte(`job="seamark",namespace="kube-system"`)))
	}
	return out.Bytes()
}
