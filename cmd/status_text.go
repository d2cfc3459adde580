package cmd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/operate/table"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/order"
	"github.com/seamark/seamark/sys/terminal"
)

// A statusRow is a figure of a server.
type statusRow struct {
	order int
	group string // heading
	name  string
	quiet bool // not shown if it is 0
}

func (r statusRow) compare(other statusRow) int {
	return cmp.Or(cmp.Compare(r.order, other.order), cmp.Compare(r.name, other.name))
}

// showStatus shows what is wrong with each server, and then their figures.
func (p *program) showStatus(report statusReport, c colors) {
	for _, r := range report.Servers {
		summary, mark := "The server does not report its health.", c.good()
		switch {
		case r.Status == nil:
			summary, mark = r.Error, c.bad()
		case r.Status.Summary != "":
			summary, mark = r.Status.Summary, c.mark(r.Status.Conditions)
		}
		fmt.Fprintf(p.out, "%s%s: %s\n", mark, c.bold(explain.Clean(r.Server)), explain.Clean(summary))
		if r.Status != nil {
			fmt.Fprintln(p.out, "  "+c.faint(explain.Clean(describe(r.Node, r.Status))))
			p.showConditions(r.Status.Conditions, c)
		}
	}
	if len(report.Conditions) > 0 {
		summary := explain.Clean(health.Summary(report.Conditions))
		fmt.Fprintf(p.out, "%s%s: %s\n", c.mark(report.Conditions), c.bold("together"), summary)
		p.showConditions(report.Conditions, c)
	}

	var up []replica
	for _, r := range report.Servers {
		if r.Status != nil {
			up = append(up, r)
		}
	}
	switch {
	case len(up) == 1 && len(report.Servers) == 1:
		p.showFigures(up[0].Status, c)
	case len(up) > 0:
		p.showReplicas(up)
	}
}

// describe says which server it is.
func describe(node string, s *adminclient.Status) string {
	parts := []string{}
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("host %s", s.Host)
	add("node %s", node)
	add("version %s", s.Version)
	if s.ProcessStarted != nil {
		add("started %s ago", span(time.Since(*s.ProcessStarted)))
	}
	if len(parts) == 0 {
		return "an older version"
	}
	return strings.Join(parts, ", ")
}

// identity returns the name of a server and what describes it.
func identity(server *servers.Server, s *adminclient.Status) string {
	return fmt.Sprintf("%s (%s)", server.Address(), describe(cmp.Or(server.Node, s.Node), s))
}

// span returns a duration in the two largest units of days, hours, minutes and seconds: 3d4h.
func span(d time.Duration) string {
	d = max(0, d.Round(time.Second))
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm%ds", minutes, int(d.Seconds())%60)
	}
	return d.String()
}

// showFigures shows the figures of one server in groups.
func (p *program) showFigures(s *adminclient.Status, c colors) {
	rows := cells(s)
	zero := func(value string) bool { return value == "0" || value == "-" }
	maps.DeleteFunc(rows, func(row statusRow, value string) bool { return row.quiet && zero(value) })

	sorted := order.Sorted(maps.Keys(rows), statusRow.compare)
	width, columns := 0, terminal.Columns(p.console())
	for _, row := range sorted {
		width = max(width, len(row.name))
	}
	width = min(width, 32)
	group := ""
	for _, row := range sorted {
		if row.group != group {
			group = row.group
			fmt.Fprintf(p.out, "\n%s\n", c.bold(group))
		}
		name, value := explain.Clean(row.name), explain.Clean(rows[row])
		if columns > 0 {
			name = table.Middle(name, width)
			value = table.Middle(value, max(table.Narrowest, columns-width-2*table.Gap))
		}
		isPrefix := func(bad string) bool { return strings.HasPrefix(value, bad) }
		if slices.ContainsFunc([]string{"DOWN", "not synced", "never", "no:"}, isPrefix) {
			value = c.red(value)
		}
		fmt.Fprintf(p.out, "  %-*s  %s\n", width, name, value)
	}
}

// showReplicas shows a row for each server.
func (p *program) showReplicas(up []replica) {
	fmt.Fprintln(p.out)
	t := p.newTable()
	t.Row("SERVER", "NODE", "UP", "QPS", "NXDOMAIN", "SERVFAIL", "P99", "DATA AGE", "MEMORY")

	for _, r := range up {
		// A cell keeps its dash where the server does not know the value.
		s := r.Status
		row := []any{r.Server, cmp.Or(r.Node, "-"), "-", "-", "-", "-", "-", "-", "-"}
		if s.ProcessStarted != nil {
			row[2] = span(time.Since(*s.ProcessStarted))
		}

		if s.Queries != nil {
			row[3] = fmt.Sprintf("%.1f", *s.Queries)
		}
		for i, code := range []string{"NXDOMAIN", "SERVFAIL"} {
			if s.RCodes != nil {
				row[4+i] = percent(s.RCodes[code])
			}
		}
		if s.P99 != nil && s.Queries != nil && *s.Queries > 0 {
			row[6] = short(*s.P99)
		}

		if _, text, ok := oldest(s); ok {
			row[7] = text
		}
		if memory, ok := s.Metrics["process_resident_memory_bytes"]; ok {
			row[8] = fmt.Sprintf("%.0f MB", memory/1e6)
		}

		t.Row(row...)
	}
	t.Flush()
}

// showConditions shows what is wrong with a server.
func (p *program) showConditions(conditions []health.Condition, colors colors) {
	for _, c := range conditions {
		since := ""
		if lasts := time.Since(c.Since).Round(time.Second); !c.Since.IsZero() && lasts > 0 {
			since = ", for " + span(lasts)
		}
		severity := fmt.Sprintf("%-8s", explain.Clean(strings.ToUpper(string(c.Severity))))
		fmt.Fprintf(p.out, "  %s  %s%s\n", colors.severity(c.Severity, severity), explain.Clean(c.Text), since)
		if next := c.Remedy(); next != "" {
			fmt.Fprintf(p.out, "  %-8s  next: %s\n", "", explain.Clean(p.asTyped(next)))
		}
	}
}

// cells returns the values of one server.
func cells(s *adminclient.Status) map[statusRow]string {
	c := statusCells{s, map[statusRow]string{}, 0, "Server"}
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
	group string
}

// next begins the next order.
func (c *statusCells) next() { c.order++ }

func (c *statusCells) add(name, value string) {
	c.found[statusRow{c.order, c.group, name, false}] = value
}

// addFigures adds the figures of the last minutes. One that is missing is not known.
func (c *statusCells) addFigures() {
	if c.Started != nil {
		running := max(0, time.Since(*c.Started)).Round(time.Second) // the clocks may differ
		c.add("serves", fmt.Sprintf("%s for %v", strings.Join(c.Servers, " "), running))
	}
	c.next()
	if c.Ready != nil {
		c.add("ready", map[bool]string{true: "yes", false: "no: " + strings.Join(c.Unready, ", ")}[*c.Ready])
	}

	c.group = "Queries in the last minute"
	c.next()
	if c.Queries != nil {
		c.add("queries per second", fmt.Sprintf("%.1f", *c.Queries))
	}
	c.next()
	for code, share := range c.RCodes {
		c.add("  "+cmp.Or(code, "no reply"), percent(share))
	}
	c.next()
	for directive, share := range c.Sources {
		c.add("  by "+cmp.Or(directive, "no directive"), percent(share))
	}
	c.addKernel()
	c.next()
	if c.Waste != nil {
		c.add("wasted searches", percent(*c.Waste))
	}

	c.next()
	for name, value := range map[string]*time.Duration{"p50 below": c.P50, "p99 below": c.P99} {
		switch {
		case value == nil:
		case c.Queries != nil && *c.Queries == 0:
			c.add(name, "-")
		default:
			c.add(name, short(*value))
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

// addKernel adds what the kernel of the node answers in the server's place.
func (c *statusCells) addKernel() {
	k := c.Kernel
	if k == nil {
		return
	}
	c.next()
	c.add("repeated by the kernel", fmt.Sprintf("%.1f per second more, %s of all", k.Queries, percent(k.Share)))
	c.next()
	for _, p := range k.Prevented {
		c.add("  not those of "+p.Zones, "because of "+p.Directive)
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
	ages, received := oldestByKind(s), receivedByKind(s)
	stale := series(s, "seamark_kubernetes_stale", "zones")
	for _, k := range slices.Sorted(maps.Keys(ages)) {
		if all, known := received[k]; known && !all && len(stale) > 0 {
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
	received := receivedByKind(c.Status)
	objects := func(kind string, v float64) string {
		if all, known := received[kind]; known && !all {
			return "not synced"
		}
		return number("", v)
	}

	c.group = "Data"
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

	zoneAge := func(_ string, v float64) string { return age(v) }

	used := series(c.Status, "coredns_forward_requests_total", "to")
	usedOverGRPC := series(c.Status, "coredns_grpc_requests_total", "to")
	upstream := func(to string, up float64) string {
		if used[to]+usedOverGRPC[to] == 0 && up != 0 {
			return "not used yet"
		}
		state := choose("up", "DOWN")(to, up)
		if f := health.FailureOf(c.Failures, to); f != nil {
			state += ", last error: " + f.Ago(time.Now())
		}
		return state
	}
	for _, m := range []struct {
		group, name, family, label string
		format                     func(key string, v float64) string
		quiet                      bool
	}{
		{"Data", "data", "seamark_kubernetes_stale", "zones", source, false},
		{"Data", "records hash", hashFamily, "zones", number, false},
		{"Data", "objects:", "seamark_kubernetes_objects", "resource", objects, false},
		{"Data", "data age (etcd)", "seamark_etcd_data_age_seconds", "path", etcdAge, false},
		{"Data", "data age", "seamark_secondary_data_age_seconds", "zone", zoneAge, false},
		{"Data", "serial number", "seamark_secondary_serial", "zone", number, false},
		{"Data", "followers", "seamark_transfer_followers", "", number, true},
		{"Data", "keys (etcd)", "seamark_etcd_keys", "path", number, false},
		{"Upstreams", "upstream", "seamark_forward_upstream_up", "to", upstream, false},
		{"Upstreams", "waiting for", "seamark_forward_waiting_queries", "to", number, true},
		{"Cache", "cached answers:", "coredns_cache_entries", "type", number, false},
		{"Overload", "waiting queries", "seamark_waiting_queries", "", number, true},
		{"Overload", "given up:", "seamark_given_up_queries_total", "reason", number, true},
		{"Overload", "panics", "coredns_panics_total", "", number, true},
		{"Memory", "resident memory", "process_resident_memory_bytes", "", megabytes, false},
		{"Memory", "memory budget", "seamark_memory_total_bytes", "", megabytes, false},
		{"Memory", "memory for own data", "seamark_memory_own_bytes", "", megabytes, false},
		{"Memory", "memory of", "seamark_memory_used_bytes", "part", part, true},
		{"Memory", "refused memory of", "seamark_memory_refused_total", "part", number, true},
	} {
		c.next()
		for key, value := range series(c.Status, m.family, m.label) {
			if zone, others, ok := strings.Cut(key, " "); ok && m.label == "zones" {
				key = fmt.Sprintf("%s +%d", zone, 1+strings.Count(others, " "))
			}
			row := statusRow{c.order, m.group, strings.TrimSpace(m.name + " " + key), m.quiet}
			c.found[row] = m.format(key, value)
		}
	}
}
