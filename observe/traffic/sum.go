package traffic

import (
	"cmp"
	"slices"
)

// Sum returns the list of several servers together, with the n most frequent keys: each client sends
// to all of them. A list that lacks a key counts it as 0.
func Sum(tops []Top, n int) Top {
	sum := tops[0]
	if len(tops) == 1 {
		sum.Entries = sum.Entries[:min(n, len(sum.Entries))]
		return sum
	}

	sum.Total, sum.Entries, sum.Groups = 0, nil, nil
	entries, groups := map[string]Entry{}, map[string]Group{}
	for _, t := range tops {
		sum.Total += t.Total
		sum.Window, sum.Sampled = max(sum.Window, t.Window), min(sum.Sampled, t.Sampled)

		for _, e := range t.Entries {
			if old, ok := entries[e.Key]; ok {
				e.Count, e.Excess = e.Count+old.Count, e.Excess+old.Excess
				e.Namespace, e.Pod, e.Owner = cmp.Or(e.Namespace, old.Namespace), cmp.Or(e.Pod, old.Pod), cmp.Or(e.Owner, old.Owner)
			}
			entries[e.Key] = e
		}
		for _, g := range t.Groups {
			// Each server has seen other random names, of about the same clients.
			old := groups[g.Parent]
			if old.Count > g.Count {
				g.Example = old.Example
			}
			g.Count, g.Names, g.Clients = g.Count+old.Count, g.Names+old.Names, max(g.Clients, old.Clients)
			g.Recent += old.Recent
			groups[g.Parent] = g
		}
	}

	for _, e := range entries {
		e.Share = e.Count / max(1, sum.Total)
		sum.Entries = append(sum.Entries, e)
	}
	for _, g := range groups {
		g.Share = g.Count / max(1, sum.Total)
		sum.Groups = append(sum.Groups, g)
	}
	slices.SortFunc(sum.Entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	slices.SortFunc(sum.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Parent, b.Parent))
	})
	sum.Entries = sum.Entries[:min(n, len(sum.Entries))]
	return sum
}
