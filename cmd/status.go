package cmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/order"
	"github.com/spf13/cobra"
)

// hashFamily is the metric with the hash of a server's records.
const hashFamily = "seamark_kubernetes_records_hash"

// A replica is the state of one server.
type replica struct {
	Server string              `json:"server"` // its address, or the name of its pod
	Pod    string              `json:"pod,omitempty"`
	Node   string              `json:"node,omitempty"`
	Error  string              `json:"error,omitempty"`
	Status *adminclient.Status `json:"-"`
	State  *serverState        `json:"status,omitempty"` // of Status
}

// A statusReport is the state of all servers.
type statusReport struct {
	Healthy bool      `json:"healthy"`
	Servers []replica `json:"servers"`
	// Conditions are what is wrong with the servers together.
	Conditions []health.Condition `json:"conditions,omitempty"`
}

func (p *program) statusCommand() *cobra.Command {
	var a adminFlags
	var s screen
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the health of running servers side by side",
		Long: `Status shows what is wrong with the servers, the worst first, and what to do. For one server it
also shows the age of its data, its upstreams, and the rates, response codes and latencies of the last
minute; for several, a row for each. It reports replicas that differ: in their version, their
Corefile, or, for longer than a moment, in the records that they serve.

` + findServers + `

The exit status is 1 if something is wrong with a server, also if it is not ready or does not
answer, or if the servers differ. A note, such as searches of pods that cannot succeed, is nothing
wrong.`,
		Example: `  seamark status
  seamark status --watch
  seamark status --pod seamark-6d8f
  seamark status --nodes
  seamark status --admin localhost:8053 --admin localhost:9053 --output json`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return p.watchServers(c.Context(), &a, s, func(found []*servers.Server) (all bool, err error) {
				report := readStatus(c.Context(), found)
				all = !slices.ContainsFunc(report.Servers, func(r replica) bool { return r.Error != "" })
				err = a.show(p.out, report, func() { p.showStatus(report, s.colors(p)) })
				if err == nil && !report.Healthy {
					err = different{}
				}
				return all, err
			})
		},
	}
	a.flags(c)
	outputFlag(c, &a.output)
	s.flags(c)
	return c
}

// readStatus returns the state of the servers.
func readStatus(ctx context.Context, found []*servers.Server) statusReport {
	replicas := states(ctx, found)
	// A moment later their records are equal, if one server was behind with a change.
	if len(differentHashes(replicas)) > 0 {
		clock.Sleep(ctx, time.Second)
		replicas = states(ctx, found)
	}

	report := statusReport{Servers: replicas, Conditions: differences(replicas)}
	report.Healthy = !health.Real(report.Conditions)
	for _, r := range replicas {
		if r.Error != "" || r.Status.Ready != nil && !*r.Status.Ready || health.Real(r.Status.Conditions) {
			report.Healthy = false
		}
	}
	return report
}

// states returns the state of each server.
func states(ctx context.Context, found []*servers.Server) []replica {
	replicas := make([]replica, len(found))
	for i, reply := range askAll(found, func(s *servers.Server) (adminclient.Status, error) { return s.Status(ctx) }) {
		s := reply.server
		r := replica{Server: s.Label(), Node: s.Node}
		if s.Pod.Name != "" {
			r.Pod = s.Pod.String()
		}
		if reply.err != nil {
			r.Error = reply.err.Error()
		} else {
			r.Status = &reply.value
			r.Node = cmp.Or(r.Node, reply.value.Node)
			addNodeConditions(ctx, s, r.Status)
			r.State = newServerState(r.Status)
		}
		replicas[i] = r
	}
	return replicas
}

// addNodeConditions adds what is wrong with the capture of a node cache. Without its supervisor's metrics
// the rest is known.
func addNodeConditions(ctx context.Context, s *servers.Server, status *adminclient.Status) {
	conditions, err := s.NodeConditions(ctx)
	if err != nil {
		conditions = []health.Condition{{Severity: health.Note, Object: "supervisor", Text: err.Error()}}
	}
	if len(conditions) > 0 {
		status.Conditions = append(status.Conditions, conditions...)
		health.Sort(status.Conditions)
		status.Summary = health.Summary(status.Conditions)
	}
}

// differences returns what differs among servers that should be equal.
func differences(replicas []replica) (found []health.Condition) {
	version := func(s *adminclient.Status) (string, *time.Time) { return s.Version, s.ProcessStarted }
	if text, since, differ := values(replicas, version); differ {
		found = append(found, health.Condition{Severity: health.Note, Object: "version", Since: since,
			Text: "the servers have different versions: " + text, Next: "wait for the rollout, or look at its status"})
	}
	corefile := func(s *adminclient.Status) (string, *time.Time) { return corefileHash(s), s.Started }
	if text, since, differ := values(replicas, corefile); differ {
		found = append(found, health.Condition{Severity: health.Warning, Object: "Corefile", Since: since,
			Text: "the servers run different Corefiles: " + text,
			Next: "wait for the kubelets to update the volume, a minute or two; then look for a failed reload"})
	}
	if zones := differentHashes(replicas); len(zones) > 0 {
		found = append(found, health.Condition{
			Severity: health.Warning, Alert: "SeamarkReplicasDiffer", Object: "records",
			Text: "the servers serve different records of the zones " + strings.Join(zones, ", ") + behind(replicas),
			Next: "seamark records, which shows the records that differ"})
	}
	health.Sort(found)
	return found
}

// values returns the values that servers have, with the servers of each, and whether they differ. They do so
// since the first server with the second value has it; zero if that is not known.
func values(replicas []replica, of func(*adminclient.Status) (string, *time.Time)) (
	text string, since time.Time, differ bool) {
	servers, begun := map[string][]string{}, map[string]time.Time{}
	for _, r := range replicas {
		if r.Status == nil {
			continue
		}
		value, at := of(r.Status)
		if value == "" {
			continue
		}

		servers[value] = append(servers[value], r.Server)
		if first := begun[value]; at != nil && (first.IsZero() || at.Before(first)) {
			begun[value] = *at
		}
	}
	if len(servers) < 2 {
		return "", since, false
	}

	var parts []string
	for _, v := range slices.Sorted(maps.Keys(servers)) {
		parts = append(parts, fmt.Sprintf("%.12s (%s)", v, strings.Join(servers[v], ", ")))
	}
	if len(begun) == len(servers) {
		since = order.Sorted(maps.Values(begun), time.Time.Compare)[1]
	}
	return strings.Join(parts, ", "), since, true
}

// behind names the server with the oldest data, if that is minutes older than the newest, as the end of a
// sentence.
func behind(replicas []replica) string {
	server, oldest, newest := "", -1.0, math.Inf(1)
	for _, r := range replicas {
		if r.Status == nil {
			continue
		}
		most := 0.0
		for _, one := range oldestByKind(r.Status) {
			most = max(most, one)
		}
		if most > oldest {
			server, oldest = r.Server, most
		}
		newest = min(newest, most)
	}
	if oldest-newest < 120 {
		return ""
	}
	return fmt.Sprintf("; the data of %s is the oldest, %s", server, age(oldest))
}

// corefileHash returns the hash of the Corefile that a server with the directive reload runs.
func corefileHash(s *adminclient.Status) string {
	for hash := range series(s, "coredns_reload_version_info", "value") {
		return hash
	}
	return ""
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
