//go:build linux

package main

// A goal is a limit for a number. Series are named "scenario/contender".
type goal struct {
	text        string
	how         func(over, under []float64) []float64 // nil: the values of over alone
	over, under string
	limit       float64 // 0 means no limit
	unit        string
}

// goals lists the project's performance goals.
func goals() []goal {
	gs := []goal{
		{"CPU of a ClusterIP A, to Knot", ratios, "A/seamark", "A/knot", 0.85, ""},
		{"CPU of a ClusterIP A, to the bare loop", ratios, "A/seamark", "A/loop", 1.10, ""},
		{"CPU of a ClusterIP A, over the bare loop", differences, "A/seamark", "A/loop", 0.2, "µs"},
		{"CPU of a ClusterIP A, to CoreDNS", ratios, "A/seamark", "A/coredns", 1.0 / 14, ""},
	}

	// Without a limit: the lower bound on this machine.
	gs = append(gs, goal{"for comparison: the bare loop to Knot, ClusterIP A", ratios, "A/loop", "A/knot", 0, ""},
		goal{"for comparison: the bare loop to Knot, 1,000 q/s", ratios, "idle/loop", "idle/knot", 0, ""})
	for _, w := range []struct{ name, text string }{
		{"nxdomain", "search-path NXDOMAIN"}, {"nodata", "NODATA"},
		{"headless3", "headless with 3 endpoints"}, {"headless60", "headless with 60 endpoints"},
		{"endpoint", "endpoint names"}, {"srv", "SRV"}, {"ptr", "PTR"},
	} {
		gs = append(gs,
			goal{"CPU of " + w.text + ", to Knot", ratios, w.name + "/seamark", w.name + "/knot", 0.90, ""})
	}

	for _, w := range []struct{ name, text string }{
		{"16x1", "16 connections of 1"}, {"16x6", "16 connections of 6"}, {"1x100", "100 outstanding on a connection"},
	} {
		for _, peer := range []struct{ name, text string }{{"unbound", "Unbound"}, {"nsd", "NSD"}} {
			gs = append(gs, goal{"DoT, " + w.text + ", to " + peer.text, ratios, "dot " + w.name + "/seamark",
				"dot " + w.name + "/" + peer.name, 1.10, ""})
		}
		gs = append(gs, goal{"for comparison: DoH, " + w.text + ", to Unbound", ratios,
			"doh " + w.name + "/seamark", "doh " + w.name + "/unbound", 0, ""},
			goal{"for comparison: DoQ, " + w.text + ", to our DoH", ratios, "doq " + w.name + "/seamark",
				"doh " + w.name + "/seamark", 0, ""})
	}

	return append(gs,
		goal{"CPU of a cached name from upstream, to our ClusterIP A", ratios, "paths/cached", "paths/A", 1.05, ""},
		goal{"two readers, to Knot with two workers", ratios, "two/seamark", "two/knot", 0.85, ""},
		goal{"TCP, 100 outstanding on a connection, to our UDP", ratios, "paths/tcp 1x100", "paths/A", 0.60, ""},
		goal{"TCP, 16 connections of 6, to our UDP", ratios, "paths/tcp 16x6", "paths/A", 1.50, ""},
		goal{"TCP, a connection for each query, to Knot", ratios, "new/seamark", "new/knot", 1.30, ""},
		goal{"CPU of a query at 1,000 q/s, to Knot", ratios, "idle/seamark", "idle/knot", 0.90, ""},

		// The cache of a node.
		goal{"CPU of an answer to a pod, to node-cache", ratios, "node/tcx", "node/node-cache", 0.20, ""},
		goal{"CPU of an answer to a pod, to CoreDNS with node-cache's Corefile", ratios, "node/tcx",
			"node/coredns", 0.20, ""},
		goal{"the same at 20,000 q/s", ratios, "node 20k/tcx", "node 20k/coredns", 0.20, ""},
		goal{"the same at 1,000 q/s", ratios, "node 1k/tcx", "node 1k/coredns", 0.05, ""},
		goal{"for comparison: time of all CPUs for an answer to a pod, the generator included, to CoreDNS", ratios,
			"node machine/tcx", "node machine/coredns", 0, ""},
		goal{"for comparison: the same at 20,000 q/s", ratios,
			"node 20k machine/tcx", "node 20k machine/coredns", 0, ""},

		goal{"machine time of an answer to a pod, to a tc program with a fixed reply", ratios,
			"node one machine/tcx", "node one machine/fixed", 1.2, ""},
		goal{"for comparison: the time of the program and its server alone", ratios, "node one/tcx", "node one/fixed", 0, ""},
		goal{"p50 of a round trip at 1,000 q/s, to without repeated replies", ratios,
			"node 1k p50/tcx", "node 1k p50/tcx, not repeated", 0.4, ""},
		goal{"p99 of a round trip at 1,000 q/s, to without repeated replies", ratios,
			"node 1k p99/tcx", "node 1k p99/tcx, not repeated", 0.2, ""},

		goal{"change to an answer that the kernel repeats, p99, to without repeated replies", ratios,
			"node change/tcx", "node change/tcx, not repeated", 1.1, ""}, // equal, within the noise of two runs

		// The parts of the cache of a node.
		goal{"for comparison: without repeated replies, to CoreDNS", ratios, "node/tcx, not repeated",
			"node/coredns", 0, ""},
		goal{"for comparison: the same at 20,000 q/s", ratios, "node 20k/tcx, not repeated", "node 20k/coredns", 0,
			""},
		goal{"for comparison: the same at 1,000 q/s", ratios, "node 1k/tcx, not repeated", "node 1k/coredns", 0, ""},
		goal{"for comparison: recvfrom and sendto to CoreDNS", ratios, "node/echo", "node/coredns", 0, ""},
		goal{"for comparison: the same at 20,000 q/s", ratios, "node 20k/echo", "node 20k/coredns", 0, ""},
		goal{"for comparison: the same at 1,000 q/s", ratios, "node 1k/echo", "node 1k/coredns", 0, ""},
		// With 6 MB of replies that the kernel repeats.
		goal{"memory of the cache of a node, everything full", nil, "node memory/tcx", "", 26, "MB"},
		goal{"CPU with the directive admin, to without", ratios, "admin/on", "admin/off", 1.01, ""},
		goal{"for comparison: the same at 1,000 q/s", ratios, "admin idle/on", "admin idle/off", 0, ""},
		goal{"memory of the directive admin", differences, "admin memory/on", "admin memory/off", 8, "MB"},
		goal{"CPU of 100,000 rules of policy, a name from outside", differences, "policy/on", "policy/off", 0.3, "µs"},
		goal{"CPU of 100,000 rules of policy, ClusterIP A", differences, "policy cluster/on", "policy cluster/off", 0.3,
			"µs"},
		goal{"allocations of an answer for policy", differences, "policy allocations/on", "policy allocations/off", 0.2, ""},
		goal{"heap of a record of an object, beyond its data", nil, "objects/heap", "", 200, "bytes"},
		goal{"change of a record of an object to its answer", nil, "objects/change", "", 50, "ms"},
		goal{"resident memory, watched from an API server", nil, "memory/api", "", 48, "MB"},
		goal{"resident memory, from a folder", nil, "memory/folder", "", 48, "MB"},
		goal{"peak at a restart of the API server, to steady", nil, "restart/peak", "", 1.15, ""},
		goal{"start to first right answer, from an API server", nil, "start/api", "", 0.5, "s"},
		goal{"for comparison: start to first right answer, from a folder", nil, "start/folder", "", 0, "s"},
		goal{"change to answer at 100 changes/s, p99 over a bare watch", nil, "change/p99", "", 0.5, "ms"},
		goal{"change to answer in a burst of 5,000 slices, p99 over a bare watch", nil, "burst/p99", "", 5, "ms"},
		goal{"p99 at half load under 200 changes/s, over the bare loop", differences, "latency/seamark",
			"latency/loop", 0.25, "ms"},
		goal{"stripped binary", nil, "binary/size", "", 34, "MB"},
	)
}

// A verdict is a goal and the measured number.
type verdict struct {
	Goal    string  `json:"goal"`
	Limit   float64 `json:"limit"`
	Unit    string  `json:"unit,omitempty"`
	Value   *spread `json:"value,omitempty"` // nil if not measured
	Verdict string  `json:"verdict"`
}

// judgeAll compares the goals with the measurements.
func judgeAll(goals []goal, series map[string][]float64) []verdict {
	var out []verdict
	for _, g := range goals {
		v := verdict{Goal: g.text, Limit: g.limit, Unit: g.unit, Verdict: unknown}
		if values := g.values(series); len(values) > 0 {
			s := spreadOf(values)
			v.Value, v.Verdict = &s, judge(s, g.limit)
			if g.limit == 0 {
				v.Verdict = ""
			}
		}
		out = append(out, v)
	}
	return out
}

func (g goal) values(series map[string][]float64) []float64 {
	if g.how == nil {
		return series[g.over]
	}
	return g.how(series[g.over], series[g.under])
}
