package cmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/order"
	"github.com/spf13/cobra"
)

// maxReplicas bounds the servers of one status.
const maxReplicas = 100

// hashFamily is the metric with the hash of a server's records.
const hashFamily = "seamark_kubernetes_records_hash"

// A replica is the state of one server.
type replica struct {
	Admin  string              `json:"admin"`
	Error  string              `json:"error,omitempty"`
	Status *adminclient.Status `json:"status,omitempty"`
}

func (p *program) statusCommand() *cobra.Command {
	var a adminFlags
	var addresses []string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the health of a running server, or of several replicas side by side",
		Long: `Status shows what is wrong with a server, the worst first, and what to do; the age of its data,
its upstreams, and the rates, response codes and latencies of the last minute. The server needs
the directive admin.

With several --admin it shows the servers side by side, and reports if they serve different
records. Replicas do so only for moments.

The exit status is 1 if something is wrong with a server, also if it is not ready or does not
answer, or if the servers serve different records. A note, such as searches of pods that cannot
succeed, is nothing wrong.`,
		Example: `  seamark status
  seamark status --admin localhost:8053 --admin localhost:9053
  seamark status --output json`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return err
			}
			if len(addresses) > maxReplicas {
				return fmt.Errorf("--admin: want at most %d servers, got %d", maxReplicas, len(addresses))
			}

			var clients []*adminclient.Client
			for _, address := range addresses {
				client, err := newAdminClient(address, a.tokenFile, a.timeout)
				if err != nil {
					return err
				}
				defer client.Close()
				clients = append(clients, client)
			}

			replicas := states(c.Context(), clients)
			// A moment later they are equal, if one server was behind with a change.
			differ := differentHashes(replicas)
			if len(differ) > 0 {
				select {
				case <-time.After(time.Second):
				case <-c.Context().Done():
				}
				replicas = states(c.Context(), clients)
				differ = differentHashes(replicas)
			}

			report := struct {
				Servers []replica `json:"servers"`
				Differ  []string  `json:"differ,omitempty"` // zones with different records
			}{replicas, differ}
			if err := a.show(p.out, report, func() { p.showStatus(replicas, differ) }); err != nil {
				return err
			}

			healthy := func(r replica) bool {
				return r.Error == "" && (r.Status.Ready == nil || *r.Status.Ready) && !health.Real(r.Status.Conditions)
			}
			if len(differ) > 0 || slices.ContainsFunc(replicas, func(r replica) bool { return !healthy(r) }) {
				return different{}
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&addresses, "admin", []string{adminclient.Default}, adminUsage+"; may be repeated")
	a.common(c)
	return c
}

// states returns the state of each server.
func states(ctx context.Context, clients []*adminclient.Client) []replica {
	replicas := make([]replica, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			r := replica{Admin: c.Address()}
			if s, err := c.Status(ctx); err != nil {
				r.Error = err.Error()
			} else {
				r.Status = &s
			}
			replicas[i] = r
		})
	}
	all.Wait()
	return replicas
}

// series returns the values of a metric by the value of a label, "" if it has none.
func series(s *adminclient.Status, family, label string) map[string]float64 {
	found := map[string]float64{}
	for name, value := range s.Metrics {
		if f, labels := metrics.ParseSeries(name); f == family {
			found[labels[label]] += value
		}
	}
	return found
}

// differentHashes returns the zones whose records differ among the servers that have them.
func differentHashes(replicas []replica) (zones []string) {
	seen := map[string]float64{}
	for _, r := range replicas {
		if r.Status == nil {
			continue
		}
		for zone, hash := range series(r.Status, hashFamily, "zones") {
			if other, ok := seen[zone]; ok && other != hash && !slices.Contains(zones, zone) {
				zones = append(zones, zone)
			}
			seen[zone] = hash
		}
	}
	slices.Sort(zones)
	return zones
}

// A statusRow is a line of the table: a value for each server.
type statusRow struct {
	order int
	name  string
	quiet bool // not shown if all values are 0
}

func (r statusRow) compare(other statusRow) int {
	return cmp.Or(cmp.Compare(r.order, other.order), cmp.Compare(r.name, other.name))
}

func (p *program) showStatus(replicas []replica, differ []string) {
	for _, r := range replicas {
		summary := "The server does not report its health."
		if r.Status == nil {
			summary = r.Error
		} else if r.Status.Summary != "" {
			summary = r.Status.Summary
		}
		fmt.Fprintf(p.out, "%s: %s\n", r.Admin, explain.Clean(summary))
		if r.Status != nil {
			p.showConditions(r.Status.Conditions)
		}
	}

	rows, heading := map[statusRow][]any{}, []any{""}
	var up []replica
	for _, r := range replicas {
		if r.Status != nil {
			up = append(up, r)
			heading = append(heading, r.Admin)
		}
	}

	for i, r := range up {
		for row, value := range cells(r.Status) {
			if rows[row] == nil {
				rows[row] = slices.Repeat([]any{"-"}, len(up))
			}
			rows[row][i] = value
		}
	}

	if len(up) > 0 {
		fmt.Fprintln(p.out)
		t := newTable(p.out)
		if len(up) > 1 {
			t.row(heading...)
		}
		zero := func(value any) bool { return value == "0" || value == "-" }
		maps.DeleteFunc(rows, func(row statusRow, values []any) bool {
			return row.quiet && !slices.ContainsFunc(values, func(v any) bool { return !zero(v) })
		})
		for _, row := range order.Sorted(maps.Keys(rows), statusRow.compare) {
			t.row(append([]any{row.name}, rows[row]...)...)
		}
		_ = t.Flush() // p.out keeps the error
	}

	if len(differ) > 0 {
		fmt.Fprintf(p.out, `
WARNING: the servers serve different records of the zones %s
The server that is behind has older data, or errors of watches in its log. "seamark records"
with --admin shows the records of each.
`, explain.Clean(strings.Join(differ, ", ")))
	}
}

// showConditions shows what is wrong with a server.
func (p *program) showConditions(conditions []health.Condition) {
	for _, c := range conditions {
		since := ""
		if !c.Since.IsZero() {
			since = fmt.Sprintf(", for %v", max(0, time.Since(c.Since)).Round(time.Second))
		}
		severity := explain.Clean(strings.ToUpper(string(c.Severity)))
		fmt.Fprintf(p.out, "  %-8s  %s%s\n", severity, explain.Clean(c.Text), since)
		if next := c.Remedy(); next != "" {
			fmt.Fprintf(p.out, "  %-8s  next: %s\n", "", explain.Clean(next))
		}
	}
}

// cells returns the values of one server.
func cells(s *adminclient.Status) map[statusRow]string {
	c := statusCells{s, map[statusRow]string{}, 0}
	c.addFigures()
	c.addSeries()
	return c.found
}

// statusCells collects the values of a server. Rows with a smaller order come first, and those of
// one order are sorted by name.
type statusCells struct {
	*adminclient.Status
	found map[statusRow]string
	order int
}

// next begins the next order.
func (c *statusCells) next() { c.order++ }

func (c *statusCells) add(name, value string) { c.found[statusRow{c.order, name, false}] = value }

// addFigures adds the figures of the last minutes. One that is missing is not known.
func (c *statusCells) addFigures() {
	if c.Started != nil {
		running := time.Since(*c.Started).Round(time.Second)
		c.add("serves", fmt.Sprintf("%s for %v", strings.Join(c.Servers, " "), running))
	}
	c.next()
	if c.Ready != nil {
		c.add("ready", map[bool]string{true: "yes", false: "no: " + strings.Join(c.Unready, ", ")}[*c.Ready])
	}

	c.next()
	if c.Queries != nil {
		c.add("queries per second", fmt.Sprintf("%.1f", *c.Queries))
	}
	c.next()
	for code, share := range c.RCodes {
		c.add("  "+cmp.Or(code, "no reply"), percent(share))
	}
	c.next()
	if c.Waste != nil {
		c.add("searches that fail", percent(*c.Waste))
	}

	c.next()
	for name, value := range map[string]*time.Duration{"p50 below": c.P50, "p99 below": c.P99} {
		switch {
		case value == nil:
		case c.Queries != nil && *c.Queries == 0:
			c.add(name, "-")
		default:
			c.add(name, value.String())
		}
	}
	c.next()
	for name, n := range map[string]*float64{"different clients": c.Clients, "different names": c.Names} {
		if n != nil {
			c.add(name, fmt.Sprintf("about %.0f", *n))
		}
	}
	c.next()
	if c.Sampled != nil {
		c.add("queries recorded", percent(*c.Sampled))
	}
}

// age returns an age in seconds as text.
func age(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// oldest returns the kind of objects with the oldest data, and its age; "never" for one of which
// nothing has been received.
func oldest(s *adminclient.Status) (kind, text string, ok bool) {
	most := -1.0
	ages := series(s, "seamark_kubernetes_data_age_seconds", "resource")
	synced := series(s, "seamark_kubernetes_synced", "resource")
	stale := series(s, "seamark_kubernetes_stale", "zones")
	for _, k := range slices.Sorted(maps.Keys(ages)) {
		if n, known := synced[k]; known && n == 0 && len(stale) > 0 {
			return k, "never", true
		}
		if ages[k] > most {
			kind, most = k, ages[k]
		}
	}
	return kind, age(most), len(ages) > 0
}

// addSeries adds metrics, with a row for each value of a label.
func (c *statusCells) addSeries() {
	number := func(_ string, v float64) string { return fmt.Sprintf("%.0f", v) }
	megabytes := func(_ string, v float64) string { return fmt.Sprintf("%.1f MB", v/1e6) }
	most := series(c.Status, "seamark_memory_max_bytes", "part")
	part := func(name string, v float64) string {
		if v == 0 {
			return "0"
		}
		return fmt.Sprintf("%.1f of at most %.1f MB", v/1e6, most[name]/1e6)
	}
	choose := func(one, zero string) func(string, float64) string {
		return func(_ string, v float64) string {
			if v == 0 {
				return zero
			}
			return one
		}
	}
	synced := series(c.Status, "seamark_kubernetes_synced", "resource")
	objects := func(kind string, v float64) string {
		if n, ok := synced[kind]; ok && n == 0 {
			return "not synced"
		}
		return number("", v)
	}

	c.next()
	if kind, age, ok := oldest(c.Status); ok {
		c.add("data age", fmt.Sprintf("%s (%s)", age, kind))
	}
	source := func(zones string, stale float64) string {
		for name, n := range c.Metrics {
			family, labels := metrics.ParseSeries(name)
			if family == "seamark_kubernetes_synced" && labels["zones"] == zones && n == 0 && stale == 0 {
				return "not synced"
			}
		}
		return choose("from a snapshot", "synced")(zones, stale)
	}
	etcdAge := func(_ string, v float64) string {
		if v < 0 {
			return "never"
		}
		return age(v)
	}
	used := series(c.Status, "coredns_forward_requests_total", "to")
	usedOverGRPC := series(c.Status, "coredns_grpc_requests_total", "to")
	upstream := func(to string, up float64) string {
		if used[to]+usedOverGRPC[to] == 0 && up != 0 {
			return "not used yet"
		}
		return choose("up", "DOWN")(to, up)
	}
	for _, m := range []struct {
		name, family, label string
		format              func(key string, v float64) string
		quiet               bool
	}{
		{"data", "seamark_kubernetes_stale", "zones", source, false},
		{"records hash", hashFamily, "zones", number, false},
		{"objects:", "seamark_kubernetes_objects", "resource", objects, false},
		{"data age (etcd)", "seamark_etcd_data_age_seconds", "path", etcdAge, false},
		{"keys (etcd)", "seamark_etcd_keys", "path", number, false},
		{"upstream", "seamark_forward_upstream_up", "to", upstream, false},
		{"cached answers:", "coredns_cache_entries", "type", number, false},
		{"waiting for", "seamark_forward_waiting_queries", "to", number, true},
		{"waiting queries", "seamark_waiting_queries", "", number, true},
		{"given up:", "seamark_given_up_queries_total", "reason", number, true},
		{"panics", "coredns_panics_total", "", number, true},
		{"resident memory", "process_resident_memory_bytes", "", megabytes, false},
		{"memory budget", "seamark_memory_total_bytes", "", megabytes, false},
		{"memory for own data", "seamark_memory_own_bytes", "", megabytes, false},
		{"memory of", "seamark_memory_used_bytes", "part", part, true},
		{"refused memory of", "seamark_memory_refused_total", "part", number, true},
	} {
		c.next()
		for key, value := range series(c.Status, m.family, m.label) {
			c.found[statusRow{c.order, strings.TrimSpace(m.name + " " + key), m.quiet}] = m.format(key, value)
		}
	}
}
