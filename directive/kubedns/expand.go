package kubedns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/wire"
)

// expand returns server block s, whose kubedns_config has index at, with the
// directives for c. The kubedns_config itself remains, for the plan to check.
func (u use) expand(s corefile.Server, at int, c kubednsconfig.Config) corefile.Server {
	w := expander{use: u, d: s.Directives[at], block: s}
	w.out = slices.Clone(s.Directives)
	for _, stub := range c.StubDomains {
		names := slices.ContainsFunc(stub.Servers, func(server kubednsconfig.Server) bool {
			return server.Name != "" && w.within(server.Name)
		})
		w.insert(w.forward(stub.Domain, w.words(targets(stub.Servers)), names), stub.Domain)
		w.admit(stub.Domain)
		w.passOn(stub.Domain)
	}

	own := slices.IndexFunc(w.out, func(d corefile.Directive) bool { return slices.Contains(forwarded(d), wire.Root) })
	var to []string
	for _, addr := range c.Upstreams {
		to = add(to, addr.String())
	}
	switch {
	case len(to) > 0 && u.joined && own >= 0:
		w.joinUpstreams(own, to)
	case len(to) > 0:
		w.insert(w.forward(".", w.words(to), false), ".")
	case own < 0 && u.defaults[0].Text != none:
		w.insert(w.forward(".", u.defaults, false), ".")
	}

	// A federation needs the endpoints of Services.
	k := corefile.IndexOf(w.out, "kubernetes")
	if len(c.Federations) > 0 && k >= 0 && corefile.IndexOf(w.out[k].Body, "noendpoints", "only") < 0 {
		w.addFederations(c.Federations)
	}
	s.Directives = w.out
	return s
}

// targets returns the servers as arguments TO of forward, without duplicates. The
// directive accepts 15.
func targets(servers []kubednsconfig.Server) (to []string) {
	const limit = 15
	for _, s := range servers {
		to = add(to, target(s))
	}
	return to[:min(len(to), limit)]
}

// target returns a server as an argument TO of forward. To forward, a hostname
// that ends in a number is a malformed address; to kube-dns it is a host without
// addresses. A name below invalid. has none either (RFC 6761 §6.4). The port keeps
// forward from taking a hostname for a file name.
func target(s kubednsconfig.Server) string {
	if s.Name == "" {
		return s.Addr.String()
	}
	const room = 253 - len(".invalid")
	name := s.Name
	if last := name[strings.LastIndexByte(name, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		for len(name) > room {
			_, name, _ = strings.Cut(name, ".")
		}
		name += ".invalid"
	}
	return name + ":53"
}

// joinUpstreams adds upstreams to the forward at an index and removes its files.
func (e *expander) joinUpstreams(at int, to []string) {
	f := e.out[at]
	isFile := func(a corefile.Token) bool { return strings.HasPrefix(a.Text, "/") }
	args := slices.DeleteFunc(slices.Clone(f.Args), isFile)
	for _, server := range to {
		if !slices.ContainsFunc(args, func(a corefile.Token) bool { return a.Text == server }) {
			args = append(args, e.word(server))
		}
	}
	f.Args = args
	e.out[at] = f
}

// addFederations adds federations to the block's directive federation, or to a new one.
func (e *expander) addFederations(federations []kubednsconfig.Federation) {
	at := corefile.IndexOf(e.out, "federation")
	if at < 0 {
		at = len(e.out)
		e.out = append(e.out, e.line("federation"))
	}
	f := e.out[at]
	f.Block, f.Body = true, slices.Clone(f.Body)
	for _, one := range federations {
		f.Body = append(f.Body, corefile.Directive{
			Token: e.word(one.Name), Args: e.words([]string{one.Domain}), Path: f.Path + ": " + one.Name,
		})
	}
	e.out[at] = f
}

func add(to []string, server string) []string {
	if slices.Contains(to, server) {
		return to
	}
	return append(to, server)
}

// An expander expands one block. New directives get the position of kubedns_config.
type expander struct {
	use
	d     corefile.Directive
	block corefile.Server
	out   []corefile.Directive
}

func (e *expander) word(text string) corefile.Token {
	return corefile.Token{Text: text, File: e.d.File, Line: e.d.Line}
}

func (e *expander) words(texts []string) (words []corefile.Token) {
	for _, text := range texts {
		words = append(words, e.word(text))
	}
	return words
}

func (e *expander) line(name string, args ...corefile.Token) corefile.Directive {
	return corefile.Directive{Token: e.word(name), Args: args, Path: e.d.Path + ": " + name}
}

// forward returns a forward for a zone. If names is true, the server itself or the
// option resolver resolves the hostnames of upstreams.
func (e *expander) forward(zone string, to []corefile.Token, names bool) corefile.Directive {
	f := e.line("forward", append([]corefile.Token{e.word(zone)}, to...)...)
	f.Body = slices.Clone(e.options)
	if names {
		r := e.line("resolver", e.resolver...)
		if len(r.Args) == 0 {
			r.Args = []corefile.Token{e.self()}
		}
		r.Path = f.Path + ": resolver"
		f.Body = append(f.Body, r)
	}
	f.Block = len(f.Body) > 0
	return f
}

// self returns an address at which this block receives queries.
func (e *expander) self() corefile.Token {
	host, port := netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(53)
	for _, d := range e.block.Directives {
		if d.Text == "bind" && len(d.Args) > 0 {
			addr, err := netip.ParseAddr(d.Args[0].Text)
			switch {
			case err == nil && addr == netip.IPv6Unspecified():
				host = netip.IPv6Loopback()
			case err == nil && !addr.IsUnspecified():
				host = addr
			}
		}
	}
	for _, key := range e.block.Keys {
		if k, err := config.ParseKey(key, port); err == nil && len(k) > 0 {
			port = k[0].Port
			break
		}
	}
	return e.word(netip.AddrPortFrom(host, port).String())
}

// within reports whether the block answers name from the cluster or forwards it by a
// zone other than the root.
func (e *expander) within(name string) bool {
	n := parseName(name)
	contains := func(z wire.Name) bool { return z != wire.Root && n.Within(z) }
	return slices.ContainsFunc(e.block.Directives, func(d corefile.Directive) bool {
		return slices.ContainsFunc(append(e.served(d), forwarded(d)...), contains)
	})
}

// insert inserts a forward before the first one whose zone contains its own.
func (e *expander) insert(f corefile.Directive, zone string) {
	z := parseName(zone)
	at := slices.IndexFunc(e.out, func(d corefile.Directive) bool {
		return slices.ContainsFunc(forwarded(d), z.Within)
	})
	if at < 0 {
		at = len(e.out)
	}
	e.out = slices.Insert(e.out, at, f)
}

// admit exempts a stub domain from the local zones of a screen.
func (e *expander) admit(zone string) {
	i := corefile.IndexOf(e.out, "screen")
	if i < 0 {
		return
	}
	d := e.out[i]
	d.Body = slices.Clone(d.Body)

	z, local, known := parseName(zone), false, false
	for j, o := range d.Body {
		o.Args = slices.DeleteFunc(slices.Clone(o.Args), func(a corefile.Token) bool {
			return o.Text == "local" && slices.Equal(parseZones([]corefile.Token{a}), []wire.Name{z})
		})
		zones := parseZones(o.Args)
		local = local || o.Text == "local" && slices.ContainsFunc(zones, z.Within)
		known = known || o.Text == "except" && slices.Contains(zones, z)
		d.Body[j] = o
	}
	d.Body = slices.DeleteFunc(d.Body, func(o corefile.Directive) bool { return o.Text == "local" && len(o.Args) == 0 })

	// A local zone above the stub domain remains, so the domain becomes an exception.
	if local && !known {
		except := e.line("except", e.word(zone))
		except.Path = d.Path + ": except"
		d.Body = append(d.Body, except)
	}
	e.out[i] = d
	if len(d.Body) == 0 {
		e.out = slices.Delete(e.out, i, i+1)
	}
}

// passOn lets names of a stub domain fall through kubernetes. dnsmasq, which receives
// queries before kube-dns, forwards stub domains below the cluster's zone, too.
func (e *expander) passOn(zone string) {
	for i, d := range e.out {
		if !slices.ContainsFunc(e.served(d), parseName(zone).Within) {
			continue
		}
		at := corefile.IndexOf(d.Body, "fallthrough")
		d.Block, d.Body = true, slices.Clone(d.Body)
		switch {
		case at < 0:
			through := e.line("fallthrough", e.word(zone))
			through.Path = d.Path + ": fallthrough"
			d.Body = append(d.Body, through)
		case len(d.Body[at].Args) > 0: // without zones it applies to all
			d.Body[at].Args = append(slices.Clone(d.Body[at].Args), e.word(zone))
		}
		e.out[i] = d
	}
}

// served returns the zones of a kubernetes directive; none for other directives.
func (e *expander) served(d corefile.Directive) []wire.Name {
	switch {
	case d.Text != "kubernetes":
		return nil
	case len(d.Args) == 0:
		return parseZones(e.block.Keys)
	}
	return parseZones(d.Args)
}

// forwarded returns the zone of a forward; none for other directives.
func forwarded(d corefile.Directive) []wire.Name {
	if d.Text != "forward" || len(d.Args) == 0 {
		return nil
	}
	return parseZones(d.Args[:1])
}

// parseZones parses zones and keys of server blocks. It skips invalid ones, which the
// plan reports.
func parseZones(words []corefile.Token) (zones []wire.Name) {
	for _, word := range words {
		if some, err := config.ParseZones("", []corefile.Token{word}); err == nil {
			zones = append(zones, some...)
		} else if keys, err := config.ParseKey(word, 53); err == nil {
			for _, k := range keys {
				zones = append(zones, k.Zone)
			}
		}
	}
	return zones
}

// parseName parses a name that kubednsconfig.Parse has accepted.
func parseName(name string) wire.Name {
	parsed, err := wire.ParseName(name)
	if err != nil {
		return ""
	}
	return parsed
}
