package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// ruleGroups returns the groups of the PrometheusRule that is rendered for a mode. The
// PrometheusRule of mode node has the rules of mode cluster and more.
func ruleGroups(t *testing.T, mode string) []byte {
	t.Helper()
	r, err := render(loadChart(t), "mode: "+mode+"\nimage: {repository: registry.example/seamark}\nprometheus: {rule: {enabled: true, runbookURL: 'https://runbooks.example/alerts#'}}", "seamark", "kube-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(r.find("PrometheusRule")[0].Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Prometheus accepts the rules, and each selects the release's series only.
func TestAlertsValid(t *testing.T) {
	groups, errs := rulefmt.Parse(ruleGroups(t, "node"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 {
		return
	}
	for _, rule := range groups.Groups[0].Rules {
		for _, selector := range selectors(t, rule.Expr) {
			matchers := map[string]string{}
			for _, m := range selector.LabelMatchers {
				matchers[m.Name] = m.Value
			}
			if matchers["job"] != "seamark" || matchers["namespace"] != "kube-system" {
				t.Errorf("%s: got the selector %s, want job and namespace of the release", rule.Alert, selector)
			}
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["runbook_url"] != "https://runbooks.example/alerts#"+strings.ToLower(rule.Alert) || rule.Labels["severity"] == "" {
			t.Errorf("%s: got annotations %v and labels %v, want a summary, a runbook and a severity", rule.Alert, rule.Annotations, rule.Labels)
		}
	}
}

// Each alert fires for the series of its test, and not before its time or for those of a
// healthy server. docs/how-to/alerts.md describes each alert.
func TestAlertsFire(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	var groups struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(ruleGroups(t, "node"), &groups); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/how-to/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/alerts.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range groups.Groups[0].Rules {
		delete(rule, "annotations")
		name := rule["alert"].(string)
		if !strings.Contains(string(page), "\n## "+name+"\n") {
			t.Errorf("docs/how-to/alerts.md: want the section %s", name)
		}
		if !strings.Contains(string(cases), "        alertname: "+name+"\n") {
			t.Errorf("testdata/alerts.test.yaml: want a test of %s", name)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("SEAMARK_TEST_COMPLETE") != "" {
			t.Fatal("no promtool in PATH: install Debian's package prometheus")
		}
		t.Skip("no promtool in PATH: install Debian's package prometheus, or run make programs as root")
	}
	rules, err := yaml.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"alerts.yaml": rules, "alerts.test.yaml": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", filepath.Join(dir, "alerts.test.yaml")).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

func selectors(t *testing.T, expression string) (found []*parser.VectorSelector) {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			found = append(found, s)
		}
		return nil
	})
	return found
}

// later are series that appear with the first event of their kind, and those of a certificate and of
// copies of zones, which not every server has.
var later = []string{
	"seamark_kubernetes_comparisons_total", "seamark_secondary_failing_zones", "seamark_secondary_unserved_zones",
	"seamark_tls_certificate_expiry_seconds",
}

// checkSeries checks that each selector of the alerts and the dashboard matches a series of
// the page at a URL. A reply may arrive before the server has counted its query.
func checkSeries(t *testing.T, url string) {
	t.Helper()
	var expressions []string
	groups, errs := rulefmt.Parse(ruleGroups(t, "cluster"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, r := range groups.Groups[0].Rules {
		expressions = append(expressions, r.Expr)
	}
	expressions = append(expressions, dashboardExpressions(t)...)
	line := regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? `)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		series := line.FindAllStringSubmatch(awaitPage(t, url), -1)
		var missing []string
		for _, e := range expressions {
			for _, s := range selectors(t, e) {
				if s.Name != "up" && !slices.Contains(later, s.Name) && !matchesOne(t, s, series) {
					missing = append(missing, s.String())
				}
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("selectors without a series of the server: got %q, want none", missing)
		}
	}
}

// external are labels that Prometheus adds to series.
var external = map[string]bool{"__name__": true, "job": true, "instance": true, "namespace": true}

func matchesOne(t *testing.T, s *parser.VectorSelector, series [][]string) bool {
	t.Helper()
	for _, one := range series {
		if one[1] != s.Name {
			continue
		}
		found, err := parser.NewParser(parser.Options{}).ParseMetric(one[1] + one[2])
		if err != nil {
			t.Fatalf("%s%s: %v", one[1], one[2], err)
		}
		ok := true
		for _, m := range s.LabelMatchers {
			// The value of a label may need an event, such as an error code.
			ok = ok && (external[m.Name] || m.Name == "rcode" || m.Matches(found.Get(m.Name)))
			ok = ok && (m.Name != "rcode" || found.Has("rcode"))
		}
		if ok {
			return true
		}
	}
	return false
}

// dashboardExpressions returns the expressions of the dashboard's panels.
func dashboardExpressions(t *testing.T) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "files", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s: got no expressions, want some", p.Title)
		}
		for _, target := range p.Targets {
			e := strings.NewReplacer("$__rate_interval", "5m", "$job", ".+", "$instance", ".+").Replace(target.Expr)
			found = append(found, e)
		}
	}
	return found
}
