package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/sys/health"
)

// allDown finds queries for which every upstream of a forward was down.
func allDown(e *evidence) []health.Condition {
	n := e.metAllDown()
	if n == 0 {
		return nil
	}

	const text = "every upstream of a forward was down for %.0f queries of the last 5 minutes"
	up, down := e.upstreams()
	switch {
	case len(up) == 0: // such as all excluded by the directive loop
		return advise(one(health.Critical, "forward", text, n), "seamark top servfail")
	case len(down) == 0:
		return advise(one(health.Warning, "forward", text+"; all are up again", n), "seamark top servfail")
	}

	// Some of those that are up may be of another forward.
	var names []string
	for _, s := range down {
		names = append(names, s.labels["to"])
	}
	c := warn("forward", text, n)
	c.Lost = e.lost(n, rateTime)
	if len(down) == len(up) {
		c.Severity, c.Lost = health.Critical, max(c.Lost, e.failing())
		c.Text = fmt.Sprintf("every upstream is down: %s%s", strings.Join(names, ", "), e.because(names[0]))
	}
	c.Next = strings.ReplaceAll(ask, "OBJECT", names[0])
	return []health.Condition{c}
}

// metAllDown returns the number of queries for which every upstream of a forward was down.
func (e *evidence) metAllDown() float64 {
	return sum(e.increase("coredns_forward_healthcheck_broken_total", rateTime), "")[""]
}

// upstreams returns all upstreams, and those that are down.
func (e *evidence) upstreams() (all, down []series) {
	all = e.of("seamark_forward_upstream_up")
	return all, slices.DeleteFunc(slices.Clone(all), func(s series) bool { return s.value > 0 })
}

// upstreamsDown finds upstreams by their health checks. If all are down, and queries have met that, one
// condition names them: see allDown.
func upstreamsDown(e *evidence) (found []health.Condition) {
	all, down := e.upstreams()
	if len(down) == len(all) && e.metAllDown() > 0 {
		return nil
	}

	failures := sum(e.increase("coredns_proxy_healthcheck_failures_total", rateTime), "to")
	for _, s := range all {
		switch to := s.labels["to"]; {
		case s.value == 0:
			found = append(found, warn(to, "the upstream %s is down%s", to, e.because(to)))
		case failures[to] > 0:
			found = append(found, condition(health.Note, to, // it is over
				"the upstream %s failed its health check in the last minutes (%.0f); it counts as up%s", to, failures[to],
				e.because(to)))
		}
	}
	return advise(found, ask)
}

// upstreamsSilent finds upstreams that do not answer queries, but are not down.
func upstreamsSilent(e *evidence) (found []health.Condition) {
	up := sum(e.of("seamark_forward_upstream_up"), "to")
	requests := sum(append(e.increase("coredns_forward_requests_total", rateTime),
		e.increase("coredns_grpc_requests_total", rateTime)...), "to")
	for to, failed := range sum(e.increase("seamark_forward_failures_total", rateTime), "to") {
		isUp, known := up[to]
		part := failed / max(1, requests[to])
		if failed >= minFailed && part > 0.05 && (isUp > 0 || !known) {
			found = append(found, warn(to, "the upstream %s does not answer %s of the queries%s", to,
				share(min(1, part)), e.because(to)))
		}
	}
	return advise(found, ask)
}

func upstreamErrors(e *evidence) (found []health.Condition) {
	all := e.increase("coredns_proxy_request_duration_seconds_count", rateTime)
	replies := sum(all, "to")
	for to, failed := range sum(where(all, "rcode", "SERVFAIL"), "to") {
		part := failed / max(1, replies[to])
		if failed < minFailed || part <= 0.01 {
			continue
		}

		c := warn(to, "%s of the replies of the upstream %s are SERVFAIL", share(part), to)
		if part > 0.03 {
			c.Severity = health.Critical
		}
		c.Lost = e.lost(failed, rateTime)
		found = append(found, c)
	}
	return advise(found, ask)
}

func upstreamsSlow(e *evidence) (found []health.Condition) {
	buckets := e.increase("coredns_proxy_request_duration_seconds_bucket", rateTime)
	for to, q := range quantile(buckets, "to", 0.99) {
		if q.seconds > slow && q.count >= minObserved {
			found = append(found, condition(health.Critical, to,
				"the upstream %s is slow: the 99th percentile is %s", to, seconds(q.seconds)))
		}
	}
	return advise(found, ask)
}
