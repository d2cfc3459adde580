package dnsmasq

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

func (w *writer) screen(plain *group) {
	var options, local, except []string
	for _, g := range w.sorted(plain) {
		if g.local {
			local = append(local, g.zone)
		}
	}

	// private_reverse does not apply to a reverse zone with upstreams.
	private := func(g *group) bool {
		return w.privateReverse && len(g.servers) > 0 && g.zone != root &&
			(within("in-addr.arpa", g.zone) || within("ip6.arpa", g.zone) ||
				within(g.zone, "in-addr.arpa") || within(g.zone, "ip6.arpa"))
	}
	for _, g := range w.sorted(plain) {
		belowLocal := func(l string) bool { return g.zone != l && within(g.zone, l) }
		if !g.local && (private(g) || slices.ContainsFunc(local, belowLocal)) {
			except = append(except, g.zone)
		}
	}

	list := func(name string, zones []string) {
		if len(zones) > 0 {
			options = append(options, name+" "+strings.Join(zones, " "))
		}
	}
	list("local", local)
	list("except", except)
	if w.plainLocal {
		options = append(options, "plain_names")
	}
	if w.privateReverse {
		options = append(options, "private_reverse")
	}
	if w.stopRebind {
		options = append(options, strings.TrimSpace("rebind "+strings.Join(w.rebindOK, " ")))
		if w.localhost {
			options = append(options, "rebind_localhost_ok")
		}
	}
	list("drop", w.dropped)
	if len(options) > 0 {
		w.Directive("screen", options...)
	}
}

// sorted returns the groups of a block, the longest zones first, since the first match
// wins. In the block of plain names, the zone of plain is the root.
func (w *writer) sorted(plain *group) (all []*group) {
	for _, g := range w.servers {
		switch {
		case g.zone == singleLabel && plain != nil:
			own := *g
			own.zone = root
			all = append(all, &own)
		case g.zone == singleLabel, plain != nil && (g.zone == root || strings.Contains(g.zone, ".")):
		default:
			all = append(all, g)
		}
	}
	slices.SortStableFunc(all, func(a, b *group) int {
		return cmp.Or(labels(b.zone)-labels(a.zone), strings.Compare(a.zone, b.zone))
	})
	return all
}

func labels(zone string) int {
	if zone == root {
		return 0
	}
	return 1 + strings.Count(zone, ".")
}

// forwardOptions returns the options of every forward.
func (w *writer) forwardOptions() (options []string) {
	if w.strict {
		options = append(options, "policy sequential")
	}
	if w.forwardMax > 0 {
		options = append(options, fmt.Sprintf("max_concurrent %d", w.forwardMax))
	}
	return append(options, "failover SERVFAIL REFUSED")
}

func (w *writer) configMap() {
	options := []string{"period " + w.at.Period.String(), "join_upstreams"} // dnsmasq uses both
	if w.at.Resolver != "" {
		options = append(options, "resolver "+w.at.Resolver)
	}
	if len(w.rootServers()) == 0 {
		options = append(options, "default none")
	}
	w.Directive("kubedns_config "+word(w.at.ConfigMap), append(options, w.forwardOptions()...)...)
}

// rootServers returns the upstreams of the root.
func (w *writer) rootServers() (to []string) {
	if g := w.find(root); g != nil {
		for _, u := range g.servers {
			to = append(to, u.to)
		}
	}
	if w.noResolv {
		return to
	}
	files := w.resolvFiles
	if len(files) == 0 {
		files = []string{ResolvConf}
	}
	return append(to, files...)
}

func (w *writer) forwards(plain *group) {
	groups := w.sorted(plain)
	upstreams := w.rootServers()
	written := false
	for _, g := range groups {
		to := upstreams
		if g.zone != root || plain != nil {
			to = nil
			for _, u := range g.servers {
				to = append(to, u.to)
			}
			if g.useRoot && plain != nil && g.zone == root {
				to = upstreams
			}
		}
		if g.local || len(to) == 0 {
			continue
		}

		written = written || g.zone == root
		options := w.forwardOptions()
		var except []string
		for _, other := range groups { // later forwards handle these
			if other.useRoot && other.zone != g.zone && g.zone != root && within(other.zone, g.zone) {
				except = append(except, other.zone)
			}
		}
		if len(except) > 0 {
			options = append(options, "except "+strings.Join(except, " "))
		}
		for _, source := range g.sources() {
			options = append(options, "source_address "+source.String())
		}
		resolved := func(u upstream) bool { return u.name && w.hasUpstreams(u.to) }
		if w.at.Resolver != "" && slices.ContainsFunc(g.servers, resolved) {
			options = append(options, "resolver "+w.at.Resolver)
		}
		w.forward(g.zone, to, options)
	}
	if !written && len(upstreams) > 0 && plain == nil {
		w.forward(root, upstreams, w.forwardOptions())
	}
}

// hasUpstreams reports whether a name is in a zone with upstreams of its own.
func (w *writer) hasUpstreams(name string) bool {
	host, _, _ := strings.Cut(name, ":")
	return slices.ContainsFunc(w.servers, func(g *group) bool {
		return g.zone != root && g.zone != singleLabel && len(g.servers) > 0 && within(host, g.zone)
	})
}

func (w *writer) forward(zone string, to, options []string) {
	words := []string{"forward", zone}
	for _, t := range to {
		words = append(words, word(t))
	}
	w.Directive(strings.Join(words, " "), options...)
}
