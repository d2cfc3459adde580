package main

import "strings"

// A row is a heading and its panels: single numbers, or graphs.
type row struct {
	title  string
	stats  bool
	panels []panel
}

// A panel shows its queries. A number from bad on is red, and so is one below good.
type panel struct {
	title, unit, description string
	bad, good                float64
	queries                  []query
}

type query struct{ expression, legend string }

// q returns a query. In the expression, {} after the name of a series selects the chosen
// jobs and instances, {...,} these and more, and [] is the interval of a rate.
func q(expression, legend string) query {
	const chosen = `{job=~"$job",instance=~"$instance"`
	e := strings.NewReplacer("{}", chosen+"}", "{,", chosen+",", "[]", "[$__rate_interval]").Replace(expression)
	return query{e, legend}
}

var rows = [...]row{
	{"Health", true, []panel{
		{title: "Pods that are scraped", unit: "none", good: 1, queries: []query{q(`count(up{} == 1)`, "")}},
		{title: "Kinds not received yet", unit: "none", bad: 1,
			description: "Names that depend on them are SERVFAIL, unless there is a snapshot.",
			queries:     []query{q(`count(seamark_kubernetes_synced{}) - sum(seamark_kubernetes_synced{})`, "")}},
		{title: "Oldest data", unit: "s", bad: 300,
			queries: []query{q(`max(seamark_kubernetes_data_age_seconds{})`, "")}},
		{title: "Sets of records", unit: "none", bad: 2, description: "More than one: pods answer differently.",
			queries: []query{q(`max(count by (zones) (count_values by (zones) ("hash", seamark_kubernetes_records_hash{})))`, "")}},
		{title: "Upstreams that are down", unit: "none", bad: 1,
			queries: []query{q(`count(seamark_forward_upstream_up{}) - sum(seamark_forward_upstream_up{})`, "")}},
		{title: "Share of SERVFAIL", unit: "percentunit", bad: 0.01,
			queries: []query{q(`(sum(rate(coredns_dns_responses_total{,rcode="SERVFAIL"}[])) or vector(0)) / sum(rate(coredns_dns_responses_total{}[]))`, "")}},
	}},
	{"Queries", false, []panel{
		{title: "Queries per second by type", unit: "reqps",
			queries: []query{q(`sum by (type) (rate(coredns_dns_requests_total{}[]))`, "{{type}}")}},
		{title: "Replies per second by response code", unit: "reqps",
			queries: []query{q(`sum by (rcode) (rate(coredns_dns_responses_total{}[]))`, "{{rcode}}")}},
		{title: "Time to the reply", unit: "s", queries: []query{
			q(`histogram_quantile(0.5, sum by (le) (rate(coredns_dns_request_duration_seconds_bucket{}[])))`, "p50"),
			q(`histogram_quantile(0.9, sum by (le) (rate(coredns_dns_request_duration_seconds_bucket{}[])))`, "p90"),
			q(`histogram_quantile(0.99, sum by (le) (rate(coredns_dns_request_duration_seconds_bucket{}[])))`, "p99"),
		}},
		{title: "Queries per second by transport", unit: "reqps",
			queries: []query{q(`sum by (proto) (rate(coredns_dns_requests_total{}[]))`, "{{proto}}")}},
		{title: "Replies per second by directive", unit: "reqps",
			queries: []query{q(`sum by (plugin) (rate(coredns_dns_responses_total{}[]))`, "{{plugin}}")}},
		{title: "Queries per second by pod", unit: "reqps",
			queries: []query{q(`sum by (instance) (rate(coredns_dns_requests_total{}[]))`, "{{instance}}")}},
	}},
	{"Cluster data", false, []panel{
		{title: "Age of the data", unit: "s",
			queries: []query{q(`max by (instance, resource) (seamark_kubernetes_data_age_seconds{})`,
				"{{instance}} {{resource}}")}},
		{title: "Objects", unit: "none",
			queries: []query{q(`max by (resource) (seamark_kubernetes_objects{})`, "{{resource}}")}},
		{title: "Changes per second", unit: "ops",
			queries: []query{q(`sum by (resource) (rate(seamark_kubernetes_events_total{}[]))`, "{{resource}}")}},
		{title: "From a change of endpoints to the answer, p99", unit: "s", queries: []query{
			q(`histogram_quantile(0.99, sum by (service_kind, le) (rate(coredns_kubernetes_dns_programming_duration_seconds_bucket{}[])))`, "{{service_kind}}")}},
		{title: "Failed lists and watches per second", unit: "ops",
			queries: []query{q(`sum by (resource) (rate(seamark_kubernetes_watch_errors_total{}[]))`, "{{resource}}")}},
		{title: "Lists", unit: "none",
			queries: []query{q(`sum by (resource) (increase(seamark_kubernetes_relists_total{}[]))`, "{{resource}}")}},
	}},
	{"Cache and upstreams", false, []panel{
		{title: "Cache: share of hits", unit: "percentunit",
			description: "Of the queries for names that this server does not answer itself.",
			queries:     []query{q(`sum(rate(coredns_cache_hits_total{}[])) / sum(rate(coredns_cache_requests_total{}[]))`, "hits")}},
		{title: "Cache: entries", unit: "none",
			queries: []query{q(`sum by (type) (coredns_cache_entries{})`, "{{type}}")}},
		{title: "Cache: expired answers served per second", unit: "reqps",
			queries: []query{q(`sum(rate(coredns_cache_served_stale_total{}[]))`, "stale")}},
		{title: "Queries per second by upstream", unit: "reqps",
			queries: []query{q(`sum by (to) (rate(coredns_forward_requests_total{}[]))`, "{{to}}")}},
		{title: "Time to the reply of an upstream, p99", unit: "s", queries: []query{
			q(`histogram_quantile(0.99, sum by (to, le) (rate(coredns_proxy_request_duration_seconds_bucket{,proxy_name="forward"}[])))`, "{{to}}")}},
		{title: "Unanswered queries per second", unit: "reqps",
			queries: []query{q(`sum by (to) (rate(seamark_forward_failures_total{}[]))`, "{{to}}")}},
		{title: "Upstreams that are up", unit: "none", description: "0 if one pod finds it down.",
			queries: []query{q(`min by (to) (seamark_forward_upstream_up{})`, "{{to}}")}},
		{title: "Queries that wait for an upstream", unit: "none",
			queries: []query{q(`sum by (to) (seamark_forward_waiting_queries{})`, "{{to}}")}},
		{title: "Replies of upstreams per second by response code", unit: "reqps",
			queries: []query{q(`sum by (to, rcode) (rate(coredns_forward_responses_total{}[]))`, "{{to}} {{rcode}}")}},
	}},
	{"Overload and limits", false, []panel{
		{title: "Dropped queries per second", unit: "reqps",
			description: "client: clients above their share; full: all clients, the buffer is full.",
			queries:     []query{q(`sum by (reason) (rate(seamark_transport_shed_queries_total{}[]))`, "{{reason}}")}},
		{title: "Queries per second given up with SERVFAIL", unit: "reqps",
			queries: []query{q(`sum by (reason) (rate(seamark_given_up_queries_total{}[]))`, "{{reason}}")}},
		{title: "Waiting queries", unit: "none",
			queries: []query{q(`sum by (instance) (seamark_waiting_queries{})`, "{{instance}}")}},
		{title: "Open TCP connections", unit: "none",
			queries: []query{q(`sum by (instance) (seamark_transport_connections{})`, "{{instance}}")}},
		{title: "Connections closed by limits per second", unit: "ops",
			queries: []query{q(`sum by (why) (rate(seamark_transport_connections_closed_total{}[]))`, "{{why}}")}},
		{title: "Panics and failed reloads", unit: "none", queries: []query{
			q(`sum(increase(coredns_panics_total{}[]))`, "panics"),
			q(`sum(increase(coredns_reload_failed_total{}[]))`, "failed reloads")}},
	}},
	{"Process", false, []panel{
		{title: "Processors", unit: "none", queries: []query{q(`rate(process_cpu_seconds_total{}[])`, "{{instance}}")}},
		{title: "Memory", unit: "bytes", queries: []query{
			q(`process_resident_memory_bytes{}`, "{{instance}} resident"),
			q(`go_memstats_heap_inuse_bytes{}`, "{{instance}} heap")}},
		{title: "Share of the file descriptors", unit: "percentunit",
			queries: []query{q(`process_open_fds{} / process_max_fds{}`, "{{instance}}")}},
		{title: "Goroutines", unit: "none", queries: []query{q(`go_goroutines{}`, "{{instance}}")}},
		{title: "Start", unit: "dateTimeFromNow",
			queries: []query{q(`process_start_time_seconds{} * 1000`, "{{instance}}")}},
		{title: "Version", unit: "none",
			queries: []query{q(`count by (version) (seamark_build_info{})`, "{{version}}")}},
	}},
}
