package cmd_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/test/debian"
)

// A Prometheus server scrapes a server that runs with kubeadm's Corefile. Each expression of
// public dashboards, and each of the chart's own, has a value there.
func TestDashboardExpressions(t *testing.T) {
	long(t)
	t.Parallel()
	expressions := map[string][]string{"the chart": panelExpressions(t)}
	files, err := filepath.Glob("../testdata/dashboards/*.promql")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %d dashboards, want 4 or more: %v", len(files), err)
	}
	for _, file := range files {
		for line := range strings.Lines(read(t, file)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				expressions[filepath.Base(file)] = append(expressions[filepath.Base(file)], line)
			}
		}
	}
	metrics, query, stop := dashboardServer(t)
	defer stop()
	server := startPrometheus(t, metrics)
	defer server.stop()

	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".+", "$instance", ".+", "$protocol", ".+")
	deadline := time.Now().Add(3 * time.Minute)
	for from, list := range expressions {
		for _, expression := range list {
			for {
				query() // rates need counters that grow between two scrapes
				values, err := server.evaluate(variables.Replace(expression))
				// A folder has no delays of changes, and a quantile of nothing is no number.
				if len(values) > 0 && (!math.IsNaN(values[0]) || strings.Contains(expression, "dns_programming_duration")) {
					break
				}
				if time.Now().After(deadline) {
					t.Errorf("%s: %s: got no value, error %v, want some", from, expression, err)
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
	}

	// Prometheus asks for OpenMetrics, which has this form of the bound.
	if values, err := server.evaluate(`coredns_dns_request_size_bytes_bucket{le="100.0"}`); len(values) == 0 {
		t.Errorf("OpenMetrics: got no series, error %v, want some", err)
	}

	// Half of the queries are for names of the cluster. They change the share of hits in no way:
	// of the others, only the first for a name is a miss, and one for a name that fails.
	const hits = `sum(coredns_cache_hits_total) / (sum(coredns_cache_hits_total) + sum(coredns_cache_misses_total))`
	for {
		query()
		values, err := server.evaluate(hits)
		if len(values) == 1 && values[0] > 0.6 && values[0] < 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %v, error %v, want more than 0.6", hits, values, err)
		}
	}
}

// panelExpressions returns the expressions of the chart's dashboard.
func panelExpressions(t *testing.T) (found []string) {
	t.Helper()
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, "../deploy/helm/seamark/files/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			found = append(found, target.Expr)
		}
	}
	if len(found) < 20 {
		t.Fatalf("the chart's dashboard: got %d expressions, want 20 or more", len(found))
	}
	return found
}

// A prometheusServer is a running Prometheus server.
type prometheusServer struct {
	t       *testing.T
	command *exec.Cmd
	cancel  context.CancelFunc
	dir     string
	address string
}

// startPrometheus starts Debian's Prometheus, which scrapes the metrics at an address.
func startPrometheus(t *testing.T, metrics string) *prometheusServer {
	t.Helper()
	program := debian.Program(t, "prometheus")
	s := &prometheusServer{t: t, dir: t.TempDir(), address: unusedAddress(t)}
	write(t, filepath.Join(s.dir, "prometheus.yml"), `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: kube-dns
  static_configs: [{targets: ["`+metrics+`"]}]
`)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.command = exec.CommandContext(ctx, program, "--config.file="+filepath.Join(s.dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(s.dir, "data"), "--web.listen-address="+s.address)
	s.command.Dir, s.command.Stderr = s.dir, t.Output()
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *prometheusServer) stop() {
	s.cancel()
	_ = s.command.Wait()
}

// evaluate returns the values of an expression, the numbers first.
func (s *prometheusServer) evaluate(expression string) (values []float64, err error) {
	reply, err := http.PostForm("http://"+s.address+"/api/v1/query", url.Values{"query": {expression}})
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	var result struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return nil, fmt.Errorf("%s: %s", reply.Status, text)
	}
	if result.Error != "" {
		return nil, fmt.Errorf("%s", result.Error)
	}
	for _, sample := range result.Data.Result {
		number, _ := sample.Value[1].(string)
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	slices.SortFunc(values, func(a, b float64) int { return cmp.Compare(b, a) }) // cmp.Compare puts NaN before numbers
	return values, nil
}
