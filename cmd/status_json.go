package cmd

import (
	"maps"
	"slices"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/seamark/seamark/sys/health"
)

// A serverState is the state of a server in JSON: lists for programs in place of the names of series,
// and units in the names. A member that is not known is left out.
type serverState struct {
	Host           string             `json:"host,omitempty"`
	Version        string             `json:"version,omitempty"`
	ProcessStarted *time.Time         `json:"process_started,omitempty"`
	Started        *time.Time         `json:"started,omitempty"` // of the configuration
	Ready          *bool              `json:"ready,omitempty"`
	Unready        []string           `json:"unready,omitempty"`
	Summary        string             `json:"summary,omitempty"`
	Conditions     []health.Condition `json:"conditions"`
	Servers        []string           `json:"servers,omitempty"`

	QueriesPerSecond *float64           `json:"queries_per_second,omitempty"`
	RCodeShares      map[string]float64 `json:"rcode_shares,omitempty"`
	DirectiveShares  map[string]float64 `json:"directive_shares,omitempty"` // of the directives that answered
	P50Seconds       *float64           `json:"p50_seconds,omitempty"`
	P99Seconds       *float64           `json:"p99_seconds,omitempty"`
	WasteShare       *float64           `json:"waste_share,omitempty"`
	RecordedShare    *float64           `json:"recorded_share,omitempty"`
	Clients          *float64           `json:"clients,omitempty"`
	Names            *float64           `json:"names,omitempty"`

	Kernel *traffic.Kernel `json:"kernel,omitempty"` // replies that the kernel of the node repeats

	Data      []dataState     `json:"data,omitempty"`
	Zones     []zoneState     `json:"zones,omitempty"`
	Upstreams []upstreamState `json:"upstreams,omitempty"`

	CachedAnswers       map[string]float64 `json:"cached_answers,omitempty"` // by type
	WaitingQueries      *float64           `json:"waiting_queries,omitempty"`
	ResidentMemoryBytes *float64           `json:"resident_memory_bytes,omitempty"`
}

// A dataState is about the objects of one kind.
type dataState struct {
	Resource   string   `json:"resource"`
	Synced     *bool    `json:"synced,omitempty"`
	AgeSeconds *float64 `json:"age_seconds,omitempty"`
	Objects    *float64 `json:"objects,omitempty"`
}

// A zoneState is about the zones of a cluster.
type zoneState struct {
	Zones       string   `json:"zones"` // separated by spaces
	RecordsHash *float64 `json:"records_hash,omitempty"`
	Stale       *bool    `json:"stale,omitempty"` // from a snapshot
}

type upstreamState struct {
	Address        string     `json:"address"`
	Up             bool       `json:"up"`
	Requests       *float64   `json:"requests,omitempty"` // since the start
	WaitingQueries *float64   `json:"waiting_queries,omitempty"`
	LastError      string     `json:"last_error,omitempty"`
	LastErrorAt    *time.Time `json:"last_error_at,omitempty"`
}

// newServerState returns the state of a server for programs.
func newServerState(s *adminclient.Status) *serverState {
	state := &serverState{
		Host: s.Host, Version: s.Version, ProcessStarted: s.ProcessStarted, Started: s.Started,
		Ready: s.Ready, Unready: s.Unready, Summary: s.Summary, Conditions: s.Conditions, Servers: s.Servers,
		QueriesPerSecond: s.Queries, RCodeShares: s.RCodes, DirectiveShares: s.Sources, P50Seconds: inSeconds(s.P50), P99Seconds: inSeconds(s.P99),
		WasteShare: s.Waste, RecordedShare: s.Sampled, Clients: s.Clients, Names: s.Names,
		Kernel:        s.Kernel,
		CachedAnswers: series(s, "coredns_cache_entries", "type"),
	}
	if state.Conditions == nil {
		state.Conditions = []health.Condition{}
	}

	get := func(family, label string) func(key string) *float64 {
		values := series(s, family, label)
		return func(key string) *float64 {
			if v, ok := values[key]; ok {
				return &v
			}
			return nil
		}
	}
	state.WaitingQueries = get("seamark_waiting_queries", "")("")
	state.ResidentMemoryBytes = get("process_resident_memory_bytes", "")("")

	// The age of objects that have never been received is that of the process.
	ages, objects := oldestByKind(s), get("seamark_kubernetes_objects", "resource")
	received := receivedByKind(s)
	for _, kind := range slices.Sorted(maps.Keys(ages)) {
		d := dataState{Resource: kind, Objects: objects(kind)}
		all, known := received[kind]
		if known {
			d.Synced = new(all)
		}
		if !known || all {
			d.AgeSeconds = new(ages[kind])
		}
		state.Data = append(state.Data, d)
	}

	stale := series(s, "seamark_kubernetes_stale", "zones")
	hash := get(hashFamily, "zones")
	for _, zones := range slices.Sorted(maps.Keys(stale)) {
		state.Zones = append(state.Zones, zoneState{zones, hash(zones), new(stale[zones] != 0)})
	}

	up := series(s, "seamark_forward_upstream_up", "to")
	requests, waiting := get("coredns_forward_requests_total", "to"), get("seamark_forward_waiting_queries", "to")
	for _, address := range slices.Sorted(maps.Keys(up)) {
		one := upstreamState{
			Address: address, Up: up[address] != 0, Requests: requests(address), WaitingQueries: waiting(address),
		}
		if f := health.FailureOf(s.Failures, address); f != nil {
			one.LastError, one.LastErrorAt = f.Error, &f.At
		}
		state.Upstreams = append(state.Upstreams, one)
	}
	return state
}

// oldestByKind returns the age of each kind's data: that of the oldest of several clusters.
func oldestByKind(s *adminclient.Status) map[string]float64 {
	ages := map[string]float64{}
	for name, age := range s.Metrics {
		if family, labels := metrics.ParseSeries(name); family == "seamark_kubernetes_data_age_seconds" {
			ages[labels["resource"]] = max(ages[labels["resource"]], age)
		}
	}
	return ages
}

// receivedByKind reports for each kind whether its objects have been received from every cluster.
func receivedByKind(s *adminclient.Status) map[string]bool {
	received := map[string]bool{}
	for name, synced := range s.Metrics {
		if family, labels := metrics.ParseSeries(name); family == "seamark_kubernetes_synced" {
			all, known := received[labels["resource"]]
			received[labels["resource"]] = synced != 0 && (all || !known)
		}
	}
	return received
}

func inSeconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(d.Seconds())
}
