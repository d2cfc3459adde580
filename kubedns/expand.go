package kubedns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// expand puts what a ConfigMap says into the server block, whose directive stands
// at place at. The directive itself stays, for the plan to check.
func (u use) expand(s corefile.Server, at int, c Config) corefile.Server {
	w := writing{use: u, d: s.Directives[at], block: s}
	w.out = slices.Clone(s.Directives)
	for _, stub := range c.StubDomains {
		var to []string
		names := false
		for _, server := range stub.Servers[:min(len(stub.Servers), mostServers)] {
			to = add(to, server.place())
			names = names || server.Name != "" && w.within(server.Name)
		}
		w.insert(w.forward(stub.Domain, w.words(to), names), stub.Domain)
		w.admit(stub.Domain)
	}
	if len(c.Upstreams) > 0 {
		var to []string
		for _, addr := range c.Upstreams {
			to = add(to, addr.String())
		}
		w.insert(w.forward(".", w.words(to), false), ".")
	} else if !slices.ContainsFunc(w.out, isForwardOf(".")) {
		switch {
		case len(u.defaults) == 0:
			w.insert(w.forward(".", w.words([]string{ResolvConf}), false), ".")
		case u.defaults[0].Text != none:
			w.insert(w.forward(".", u.defaults, false), ".")
		}
	}
	if len(c.Federations) > 0 && w.find("kubernetes") >= 0 {
		w.join(c.Federations)
	}
	s.Directives = w.out
	return s
}

// mostServers is as many as a forward takes.
const mostServers = 15

// place is the server as a TO of forward. That takes a name which ends in a number
// for an address with a mistake in it, and kube-dns for a host without addresses:
// no name in invalid has any (RFC 6761 §6.4).
func (s Server) place() string {
	last := s.Name[strings.LastIndexByte(s.Name, '.')+1:]
	if s.Name == "" || strings.Trim(last, "0123456789") != "" {
		return s.String()
	}
	const room = 253 - len(".invalid")
	name := s.Name
	for len(name) > room {
		_, name, _ = strings.Cut(name, ".")
	}
	return name + ".invalid"
}

// join adds federations to the block's own, or to a directive that is new.
func (w *writing) join(all []Federation) {
	at := w.find("federation")
	if at < 0 {
		at = len(w.out)
		w.out = append(w.out, w.line("federation"))
	}
	f := w.out[at]
	f.Block, f.Body = true, slices.Clone(f.Body)
	for _, one := range all {
		f.Body = append(f.Body, corefile.Directive{
			Token: w.word(one.Name), Args: w.words([]string{one.Domain}), Path: f.Path + ": " + one.Name,
		})
	}
	w.out[at] = f
}

// find gives the place of the first directive of that name; -1 if there is none.
func (w *writing) find(name string) int {
	return slices.IndexFunc(w.out, func(d corefile.Directive) bool { return d.Text == name })
}

func add(to []string, server string) []string {
	if slices.Contains(to, server) {
		return to
	}
	return append(to, server)
}

// A writing is a block that is being expanded. All that is written stands where
// the directive does.
type writing struct {
	use
	d     corefile.Directive
	block corefile.Server
	out   []corefile.Directive
}

func (w *writing) word(text string) corefile.Token {
	return corefile.Token{Text: text, File: w.d.File, Line: w.d.Line}
}

func (w *writing) words(texts []string) (words []corefile.Token) {
	for _, text := range texts {
		words = append(words, w.word(text))
	}
	return words
}

func (w *writing) line(name string, args ...corefile.Token) corefile.Directive {
	return corefile.Directive{Token: w.word(name), Args: args, Path: w.d.Path + ": " + name}
}

// forward is the line for a zone. Names of servers that this block answers are
// looked up here.
func (w *writing) forward(zone string, to []corefile.Token, names bool) corefile.Directive {
	f := w.line("forward", append([]corefile.Token{w.word(zone)}, to...)...)
	f.Body = slices.Clone(w.options)
	if names {
		r := w.line("resolver", w.resolver...)
		if len(r.Args) == 0 {
			r.Args = []corefile.Token{w.self()}
		}
		r.Path = f.Path + ": resolver"
		f.Body = append(f.Body, r)
	}
	f.Block = len(f.Body) > 0
	return f
}

// self is an address at which this block is asked.
func (w *writing) self() corefile.Token {
	host, port := netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(53)
	for _, d := range w.block.Directives {
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
	for _, key := range w.block.Keys {
		if k, err := config.ParseKey(key, port); err == nil && len(k) > 0 {
			port = k[0].Port
			break
		}
	}
	return w.word(netip.AddrPortFrom(host, port).String())
}

// within says whether a name lies in a zone that this block answers by itself, or
// asks somebody else for who is not asked for everything.
func (w *writing) within(name string) bool {
	for _, d := range w.block.Directives {
		var zones []corefile.Token
		switch {
		case d.Text == "kubernetes" && len(d.Args) == 0:
			for _, key := range w.block.Keys {
				if keys, err := config.ParseKey(key, 53); err == nil && len(keys) > 0 {
					zones = append(zones, w.word(keys[0].Zone.String()))
				}
			}
		case d.Text == "kubernetes":
			zones = d.Args
		case d.Text == "forward" && len(d.Args) > 0:
			zones = d.Args[:1]
		}
		for _, zone := range zones {
			if z := plainZone(zone.Text); z != "" && inside(name, z) {
				return true
			}
		}
	}
	return false
}

// insert puts a forward in front of the first one of a zone that its own is in.
func (w *writing) insert(f corefile.Directive, zone string) {
	at := slices.IndexFunc(w.out, func(d corefile.Directive) bool {
		return d.Text == "forward" && len(d.Args) > 0 && inside(plainZone(zone), plainZone(d.Args[0].Text))
	})
	if at < 0 {
		at = len(w.out)
	}
	w.out = slices.Insert(w.out, at, f)
}

// admit lets a screen of the block have the names of a zone be asked, which has
// servers now.
func (w *writing) admit(zone string) {
	for i, d := range w.out {
		if d.Text != "screen" {
			continue
		}
		local, known := false, false
		d.Body = slices.Clone(d.Body)
		for j, o := range d.Body {
			o.Args = slices.DeleteFunc(slices.Clone(o.Args), func(a corefile.Token) bool {
				return o.Text == "local" && plainZone(a.Text) == plainZone(zone)
			})
			for _, a := range o.Args {
				local = local || o.Text == "local" && inside(plainZone(zone), plainZone(a.Text))
				known = known || o.Text == "except" && plainZone(a.Text) == plainZone(zone)
			}
			d.Body[j] = o
		}
		d.Body = slices.DeleteFunc(d.Body, func(o corefile.Directive) bool { return o.Text == "local" && len(o.Args) == 0 })
		if local && !known {
			d.Body = append(d.Body, corefile.Directive{Token: w.word("except"), Args: w.words([]string{zone}), Path: d.Path + ": except"})
		}
		w.out[i] = d
		if len(d.Body) == 0 {
			w.out = slices.Delete(w.out, i, i+1)
		}
		return
	}
}

func isForwardOf(zone string) func(corefile.Directive) bool {
	return func(d corefile.Directive) bool {
		return d.Text == "forward" && len(d.Args) > 0 && plainZone(d.Args[0].Text) == plainZone(zone)
	}
}

// plainZone is a zone as this package writes them; "" is the root.
func plainZone(text string) string { return strings.ToLower(strings.TrimSuffix(text, ".")) }

func inside(name, zone string) bool {
	return zone == "" || name == zone || strings.HasSuffix(name, "."+zone)
}
