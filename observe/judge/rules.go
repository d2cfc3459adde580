package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/sys/health"
)

// A rule finds conditions. Its bounds are those of its alert, but it does not wait until a condition
// has lasted.
type rule struct {
	alert string // "" if there is none
	judge func(e *evidence) []health.Condition
}

// The rules need these families of metrics.
var used = []string{
	"coredns_forward_healthcheck_broken_total", "coredns_forward_requests_total", "coredns_grpc_requests_total",
	"coredns_kubernetes_dns_programming_duration_seconds_bucket", "coredns_panics_total",
	"coredns_proxy_healthcheck_failures_total", "coredns_proxy_request_duration_seconds_bucket",
	"coredns_proxy_request_duration_seconds_count",
	"seamark_forward_failures_total", "seamark_forward_upstream_up", "seamark_forward_waiting_queries",
	"seamark_given_up_queries_total", "seamark_kubedns_config_valid", "seamark_kubernetes_comparisons_total",
	"seamark_kubernetes_data_age_seconds", "seamark_kubernetes_stale", "seamark_kubernetes_synced",
	"seamark_kubernetes_watch_errors_total", "seamark_loop_detected", "seamark_memory_refused_total",
	"seamark_memory_tight_total", "seamark_sign_failed_total", "seamark_sign_signature_expiry_seconds",
	"seamark_tls_certificate_expiry_seconds", "seamark_transport_shed_queries_total",
}

func isUsed(family string) bool { return slices.Contains(used, family) }

const (
	rateTime  = 5 * time.Minute // of the alerts' rates
	week      = 7 * 24 * time.Hour
	slow      = 4.0 // seconds, also in the alerts
	minFailed = 5   // failures below it are no share
	// minObserved is the least number of observations with a 99th percentile.
	minObserved = 100
)

var rules = []rule{
	{"SeamarkErrorsHigh", errorsHigh},
	{"SeamarkLatencyHigh", latencyHigh},
	{"SeamarkForwardHealthcheckBroken", allDown},
	{"SeamarkForwardHealthcheckFailures", upstreamsDown},
	{"SeamarkForwardTimeouts", upstreamsSilent},
	{"SeamarkForwardErrorsHigh", upstreamErrors},
	{"SeamarkForwardLatencyHigh", upstreamsSlow},
	{"SeamarkForwardWaiting", func(e *evidence) (found []health.Condition) {
		for to, n := range sum(e.of("seamark_forward_waiting_queries"), "to") {
			if n > 100 {
				found = append(found, warn(to, "%.0f queries wait for the upstream %s", n, to))
			}
		}
		return found
	}},
	{"SeamarkPanics", func(e *evidence) []health.Condition {
		if n := sum(e.increase("coredns_panics_total", 10*time.Minute), "")[""]; n > 0 {
			c := condition(health.Critical, "",
				"a directive has a defect: %.0f queries ended in a panic; the log has the stack", n)
			c.Lost = e.lost(n, 10*time.Minute)
			return []health.Condition{c}
		}
		return nil
	}},
	{"SeamarkReloadFailed", reported},  // by package server, until a reload succeeds
	{"SeamarkZoneNotServed", reported}, // by directive secondary, as the next one
	{"SeamarkZoneNotRefreshed", reported},
	{"SeamarkNotSynced", notSynced},
	{"SeamarkDataOld", dataOld},
	{"SeamarkSnapshotServed", snapshotServed},
	{"SeamarkWatchErrors", watchErrors},
	{"SeamarkMissedEvents", missedEvents},
	{"SeamarkProgrammingLatencyHigh", func(e *evidence) (found []health.Condition) {
		buckets := e.increase("coredns_kubernetes_dns_programming_duration_seconds_bucket", rateTime)
		for kind, q := range quantile(buckets, "service_kind", 0.99) {
			if q.seconds > 10 && q.count >= minObserved {
				found = append(found,
					warn(kind, "changes of endpoints (%s) are answered late: the 99th percentile is %s", kind,
						seconds(q.seconds)))
			}
		}
		return found
	}},
	{"SeamarkQueriesShed", func(e *evidence) []health.Condition {
		return rates(e, "seamark_transport_shed_queries_total", "the kernel drops %s queries a second of overload",
			map[string]string{"client": "clients above their share", "full": "full socket buffers"})
	}},
	{"SeamarkQueriesGivenUp", func(e *evidence) []health.Condition {
		return rates(e, "seamark_given_up_queries_total", "%s queries a second get SERVFAIL because too many wait",
			map[string]string{"client": "one client's", "handler": "for one group of upstreams", "full": "all clients'"})
	}},
	{"SeamarkCertificateExpires", func(e *evidence) []health.Condition {
		found := expiries(e, "seamark_tls_certificate_expiry_seconds", "file", "the certificate", week)
		return advise(found, "replace the file, which the server then reads again")
	}},

	// Alerts cannot evaluate these, or have none of them.
	{"", func(e *evidence) []health.Condition {
		found := expiries(e, "seamark_sign_signature_expiry_seconds", "zone", "the signatures of", 24*time.Hour)
		return advise(found, checkKeys)
	}},
	{"", func(e *evidence) (found []health.Condition) {
		for zone, n := range sum(e.increase("seamark_sign_failed_total", kept), "zone") {
			if n > 0 {
				found = append(found, warn(zone, "the zone %s could not be signed", zone))
			}
		}
		return advise(found, checkKeys)
	}},
	{"", func(e *evidence) (found []health.Condition) {
		for _, s := range e.of("seamark_kubedns_config_valid") {
			if source := s.labels["source"]; s.value == 0 {
				found = append(found,
					warn(source, "the ConfigMap kube-dns (%s) is invalid, and an earlier state serves", source))
			}
		}
		return advise(found, "correct the ConfigMap; the log has the error")
	}},
	{"", func(e *evidence) (found []health.Condition) {
		for to, n := range sum(e.of("seamark_loop_detected"), "to") {
			if n > 0 {
				found = append(found, warn(to, "the upstream %s leads back to this server and is excluded", to))
			}
		}
		return advise(found, "name other servers in forward: "+health.Page("reference/directives/loop.md"))
	}},
	{"", memoryFull},
	{"", storms},
	{"", missingNames},
	{"", waste},
}

// reported finds nothing: the part of the server that knows the condition reports it on the board.
func reported(*evidence) []health.Condition { return nil }

// condition returns a condition about an object.
func condition(s health.Severity, object, format string, args ...any) health.Condition {
	return health.Condition{Severity: s, Object: object, Text: fmt.Sprintf(format, args...)}
}

func warn(object, format string, args ...any) health.Condition {
	return condition(health.Warning, object, format, args...)
}

func one(s health.Severity, object, format string, args ...any) []health.Condition {
	return []health.Condition{condition(s, object, format, args...)}
}

// Next steps for several conditions.
const (
	examine = "seamark doctor" // the API server and the permissions
	ask     = "seamark query example.com --server OBJECT"

	checkKeys = "check the key files and the zone file; the log has the error"
)

// advise sets the next step of conditions. OBJECT in it is that of the condition.
func advise(found []health.Condition, next string) []health.Condition {
	for i := range found {
		found[i].Next = strings.ReplaceAll(next, "OBJECT", found[i].Object)
	}
	return found
}

// seconds returns a time with the precision of an age.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// share returns a share as text.
func share(f float64) string {
	if f < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*f)
	}
	return fmt.Sprintf("%.0f %%", 100*f)
}

func errorsHigh(e *evidence) []health.Condition {
	part := e.failing()
	if part <= 0.01 {
		return nil
	}

	c := warn("", "%s of the replies of the last minute are SERVFAIL", share(part))
	c.Lost = part
	if top := e.recorder.Top(traffic.ServFail, 1, e.now); len(top.Entries) > 0 {
		if most := top.Entries[0]; most.Count-most.Excess > top.Total/2 {
			c.Text += "; most of the last minutes are for " + most.Key
		}
	}
	c.Next = "seamark top servfail"
	return []health.Condition{c}
}

func latencyHigh(e *evidence) []health.Condition {
	last, _ := e.recorder.Last(time.Minute, e.now)
	least := last.P99 / 2 // P99 is the upper bound of a class of powers of two
	if least < time.Duration(slow*float64(time.Second)) || last.Queries < minObserved {
		return nil
	}
	c := condition(health.Critical, "", "one query in a hundred takes longer than %v",
		least.Round(100*time.Millisecond))
	c.Next = "seamark top slow"
	return []health.Condition{c}
}

// rates returns a condition for counters of lost queries by reason, one of which grows by more than one a
// second.
func rates(e *evidence, family, format string, reasons map[string]string) []health.Condition {
	time := max(1, e.covered(rateTime).Seconds())
	most, all := 0.0, 0.0
	var parts []string
	for reason, n := range sorted(sum(e.increase(family, rateTime), "reason")) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", reasons[reason], perSecond(n/time)))
		}
		most, all = max(most, n/time), all+n
	}
	if most <= 1 {
		return nil
	}

	c := warn("", format+": %s", perSecond(all/time), strings.Join(parts, ", "))
	c.Lost, c.Next = e.lost(all, rateTime), "seamark top clients"
	return []health.Condition{c}
}

// perSecond returns a rate as text.
func perSecond(rate float64) string {
	if rate < 10 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

// expiries returns conditions for what expires within some time or has expired.
func expiries(e *evidence, family, label, what string, within time.Duration) (found []health.Condition) {
	for object, at := range sum(e.of(family), label) {
		switch left := time.Unix(int64(at), 0).Sub(e.now); {
		case at <= 0: // not known yet
		case left <= 0:
			c := condition(health.Critical, object, "%s %s expired", what, object)
			c.Since = time.Unix(int64(at), 0)
			found = append(found, c)
		case left < within:
			found = append(found, warn(object, "%s %s expires in %v", what, object, rough(left)))
		}
	}
	return found
}

// rough returns a duration in days, or in hours and minutes.
func rough(d time.Duration) string {
	if d >= 48*time.Hour {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
}

// memoryFull finds parts of the memory that are full. The cache counts each entry that it evicts, so
// it is full when it works as it should, and so are the records of recent queries; replies are refused to
// one client that does not read them.
func memoryFull(e *evidence) (found []health.Condition) {
	for part, n := range sum(e.increase("seamark_memory_refused_total", rateTime), "part") {
		what := map[string]string{
			"waiting": "queries that wait, which get SERVFAIL", "files": "hosts files and records of objects",
			"tcp": "connections over TCP", "tls": "connections over TLS", "https": "connections over HTTPS",
			"quic": "connections over QUIC",
		}[part]
		if n > 0 && !slices.Contains([]string{"cache", "replies", "records"}, part) {
			c := warn(part, "no memory for more %s: refused %.0f times in the last minutes", cmp.Or(what, part), n)
			c.Next = "raise the memory limit, or take away what fills the part: " + memoryPage
			found = append(found, c)
		}
	}

	if n := sum(e.increase("seamark_memory_tight_total", rateTime), "")[""]; n >= manyTight {
		c := warn("", "memory is tight: %.0f collections in the last minutes had almost nothing to free", n)
		c.Next = "raise the memory limit: " + memoryPage
		found = append(found, c)
	}
	return found
}

var memoryPage = health.Page("reference/memory.md")

// A few collections find memory tight in a burst; where it lasts, one follows another.
const manyTight = 100

const (
	stormNames   = 1000 // different names below one parent
	stormShare   = 0.1  // of all queries
	wasteShare   = 0.3
	missingShare = 0.3
)

// storms finds random names that do not exist.
func storms(e *evidence) (found []health.Condition) {
	last, _ := e.recorder.Last(time.Minute, e.now)
	all := e.recorder.Top(traffic.Names, 0, e.now).Total
	for _, g := range e.recorder.Top(traffic.NXDomain, 0, e.now).Groups {
		part := g.Count / max(1, all)
		if g.Names < stormNames || part < stormShare {
			continue
		}

		// The lists reach back for minutes, in which the storm may have ended. Others, and searches of pods, are
		// no reason to think that it goes on.
		if g.Recent/max(1, last.Queries) < stormShare {
			continue
		}
		c := warn(g.Parent, "%s of the queries are for names that do not exist: %s", share(part), g)
		c.Next = "seamark tail --client " + g.Example
		found = append(found, c)
	}
	return found
}

func waste(e *evidence) []health.Condition {
	last, _ := e.recorder.Last(time.Minute, e.now)
	part := last.Waste / max(1, last.Queries)
	if part < wasteShare {
		return nil
	}
	c := condition(health.Note, "", "%s of the queries are searches of pods that cannot succeed", share(part))
	c.Next = "seamark top waste"
	return []health.Condition{c}
}

// missingNames finds that many queries are for names that do not exist, which are no random names and no
// searches of pods.
func missingNames(e *evidence) []health.Condition {
	last, _ := e.recorder.Last(time.Minute, e.now)
	part := (last.RCodes["NXDOMAIN"] - last.Waste) / max(1, last.Queries)
	top := e.recorder.Top(traffic.NXDomain, 1, e.now)
	if last.Queries < minObserved || part < missingShare || len(top.Entries) == 0 || len(storms(e)) > 0 {
		return nil
	}

	name := top.Entries[0].Key
	c := condition(health.Note, "", "%s of the queries are for names that do not exist, most for %s", share(part), name)
	c.Next = "seamark explain " + name
	return []health.Condition{c}
}
