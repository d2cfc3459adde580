package admin

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/order"
)

// An overview is what the first page shows.
type overview struct {
	Status
	Chart     chart
	NXDomain  traffic.Top
	Searches  traffic.Top // that cannot succeed
	Upstreams []upstreamState
	Cluster   []dataState
	Hashes    []zoneState
	Cached    float64
	Memory    float64 // megabytes
}

type (
	upstreamState struct {
		To      string
		Up      bool
		Used    bool
		Waiting float64         // queries
		Failure *health.Failure // the last one, nil if there has been none
	}
	// A dataState is the state of the data of one kind.
	dataState struct {
		Kind, Zones string
		Objects     float64
		Synced      bool
		Age         time.Duration
	}
	// A zoneState is the state of the zones of one directive.
	zoneState struct {
		Zones string
		Hash  string // of the records
		Stale bool
	}
)

// inOverview is the number of entries of each list on the overview.
const inOverview = 5

func (s *service) overviewPage(r *http.Request) (any, int, error) {
	now := time.Now()
	o := overview{
		Status: s.state(), Chart: newChart(s.recorder.History(now), now),
		NXDomain: s.recorder.Top(traffic.NXDomain, inOverview, now),
	}
	o.Searches, _ = s.topList(r.Context(), traffic.Waste, inOverview) // the page of the list has the error

	o.Chart.addMultiples(&o.Status)
	o.addMetrics()
	return o, http.StatusOK, nil
}

// addMetrics adds what is known from metrics.
func (o *overview) addMetrics() {
	value := func(family string, labels ...string) float64 { return o.Metrics[metrics.SeriesName(family, labels...)] }

	for _, name := range slices.Sorted(maps.Keys(o.Metrics)) {
		family, labels := metrics.ParseSeries(name)
		v := o.Metrics[name]

		switch family {
		case "seamark_forward_upstream_up":
			waiting := value("seamark_forward_waiting_queries", "to", labels["to"])
			requests := value("coredns_forward_requests_total", "to", labels["to"]) +
				value("coredns_grpc_requests_total", "to", labels["to"])
			o.Upstreams = append(o.Upstreams, upstreamState{
				To: labels["to"], Up: v != 0, Used: requests > 0, Waiting: waiting,
				Failure: health.FailureOf(o.Failures, labels["to"]),
			})
		case "seamark_kubernetes_objects":
			zones, kind := labels["zones"], labels["resource"]
			o.Cluster = append(o.Cluster, dataState{
				Kind: kind, Zones: zones, Objects: v,
				Synced: value("seamark_kubernetes_synced", "zones", zones, "resource", kind) != 0,
				Age:    seconds(value("seamark_kubernetes_data_age_seconds", "resource", kind)),
			})
		case "seamark_etcd_keys":
			age := value("seamark_etcd_data_age_seconds", "path", labels["path"]) // -1: never
			o.Cluster = append(o.Cluster, dataState{
				Kind: "keys of etcd", Zones: labels["path"], Objects: v, Synced: age >= 0, Age: seconds(age),
			})
		case "seamark_kubernetes_records_hash":
			stale := value("seamark_kubernetes_stale", "zones", labels["zones"]) != 0
			o.Hashes = append(o.Hashes, zoneState{labels["zones"], strconv.FormatFloat(v, 'f', 0, 64), stale})
		case "coredns_cache_entries":
			o.Cached += v
		case "process_resident_memory_bytes":
			o.Memory = v / (1 << 20)
		}
	}
}

func seconds(f float64) time.Duration {
	return time.Duration(f * float64(time.Second)).Round(time.Second)
}

// A topPage is a list of the most frequent keys.
type topPage struct {
	traffic.Top
	List       topList
	Lists      []topList
	Pods       bool   // entries have pods
	PodError   error  // why some are missing
	NoPods     bool   // Waste without the option pods
	Fix        string // for Waste
	Namespaces []namespaceWaste
}

// A topList is one of the lists, and what its columns show.
type topList struct {
	By, Title, Key, Count, Example string
	IsName, IsNameExample          bool // the keys, or the examples, are names
}

// topLists describe the lists, in the order of traffic.ListNames.
var topLists = []topList{
	{"names", "Names", "Name", "Queries", "", true, false},
	{"clients", "Clients", "Client", "Queries", "A name", false, true},
	{"namespaces", "Namespaces of clients", "Namespace", "Queries", "A name", false, true},
	{"nxdomain", "Names that do not exist", "Name", "Queries", "A client", true, false},
	{"servfail", "Names whose answer is SERVFAIL", "Name", "Queries", "A client", true, false},
	{"slow", "Slow names", "Name", "Seconds in all", "Answered by", true, false},
	{"waste", "Clients whose searches cannot succeed", "Client", "Queries", "A name", false, true},
	{"denied", "Names that policy denies, or only audits", "Name", "Queries", "A client", true, false},
}

// topLimit is the number of entries on a page.
const topLimit = 100

func (s *service) topPage(r *http.Request) (any, int, error) {
	i := 0
	if by := r.FormValue("by"); by != "" {
		if i = slices.Index(traffic.ListNames[:], by); i < 0 {
			return nil, http.StatusBadRequest, unknownList(by)
		}
	}

	p := topPage{List: topLists[i], Lists: topLists}
	p.Top, p.PodError = s.topList(r.Context(), i, topLimit)
	p.Pods = slices.ContainsFunc(p.Entries, func(e traffic.Entry) bool { return e.Pod != "" })
	if i == traffic.Waste {
		p.Fix, p.Namespaces, p.NoPods = traffic.WasteRemedy, s.namespaces(), s.pods == nil
	}
	return p, http.StatusOK, nil
}

// A namespaceWaste is the number of recent searches of a namespace's pods that cannot
// succeed, of all in that time.
type namespaceWaste struct {
	Namespace string
	Count, Of float64
}

// namespaces returns the namespaces with the most searches that cannot succeed, of the
// recent queries.
func (s *service) namespaces() (list []namespaceWaste) {
	events, _ := s.recorder.Since(0, math.MaxInt)
	counts, all := map[string]float64{}, 0.0
	for _, e := range events {
		if e.Search != "" {
			counts[e.Namespace] += e.Weight
			all += e.Weight
		}
	}

	for namespace, n := range counts {
		if namespace != "" {
			list = append(list, namespaceWaste{namespace, n, all})
		}
	}

	order.Slice(list, func(a, b namespaceWaste) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Namespace, b.Namespace))
	})
	return list[:min(len(list), topLimit)]
}

// showNext returns the page that shows what a command of a condition's next step prints; "" if there
// is none.
func showNext(c health.Condition) string {
	words := strings.Fields(c.Next)
	if len(words) < 3 || words[0] != "seamark" {
		return ""
	}
	switch argument := strings.TrimSuffix(words[2], ","); {
	case words[1] == "top":
		return showLink("top", "by", argument)
	case words[1] == "explain":
		return showLink("explain", "name", argument)
	case words[1] == "tail" && argument == "--client" && len(words) > 3:
		return showLink("queries", "client", words[3], "name", strings.TrimSuffix(c.Object, "."))
	}
	return ""
}

// healthClass returns the class of style for sorted conditions.
func healthClass(conditions []health.Condition) string {
	switch {
	case len(conditions) == 0:
		return "good"
	case conditions[0].Severity == health.Critical:
		return "bad"
	}
	return "warning"
}
