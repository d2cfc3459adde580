package convert

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/internal/kubednsconfig"
)

// dnsmasqs are the directives that one server has as dnsmasq has them, who stands in
// front, and not as kube-dns does behind it.
var dnsmasqs = [...]string{"bind", "bufsize", "lameduck", "chaos", "loadbalance", "cache", "loop", "forward", "kubedns_config"}

// A joining makes one server of dnsmasq and of kube-dns behind it: what dnsmasq asks
// of kube-dns it knows by itself.
type joining struct {
	*merging
	kube  corefile.Server
	self  string          // an address at which kube-dns was asked
	main  corefile.Server // in the making
	asked []string        // zones that kube-dns was asked for, without a dot at the end
}

// join gives the blocks of dnsmasq with what kube-dns knows in the last. One for the
// names without a dot may stand before it; what kube-dns knows has more labels.
func (m *merging) join(masq []corefile.Server, kube corefile.Server, config kubednsconfig.Config) ([]corefile.Server, error) {
	j := joining{merging: m, kube: kube, self: kubedns.ListenAddress(kube)}
	out := slices.Clone(masq)
	for i, s := range out {
		j.asked = nil
		out[i] = j.cut(s)
	}
	last := len(out) - 1
	j.main = out[last]
	cluster := first(kube, "kubernetes")
	if zones := kube.Directives[cluster].Args; len(zones) > 0 && !slices.ContainsFunc(j.asked, func(z string) bool { return related(z, zone(zones[0])) }) {
		m.note("dnsmasq asks kube-dns, at %s, for no name of %s: the cluster's names are answered all the same now", j.self, zones[0].Text)
		j.asked = append(j.asked, "")
	}
	for _, d := range kube.Directives {
		if d.Text == "kubernetes" {
			d = j.zones(d)
		}
		if !slices.Contains(dnsmasqs[:], d.Text) && first(j.main, d.Text) < 0 {
			j.main.Directives = append(j.main.Directives, d)
		}
	}
	if err := j.others(config); err != nil {
		return nil, err
	}
	out[last] = j.main
	m.note("one server answers now, where dnsmasq did: nothing listens at %s any more", j.self)
	return out, nil
}

// isKube says whether TO of a forward, or a resolver, is kube-dns.
func (j *joining) isKube(to corefile.Token) bool {
	self, _ := netip.ParseAddrPort(j.self)
	addr, err := netip.ParseAddrPort(to.Text)
	return err == nil && addr.Port() == self.Port() && (addr.Addr().IsLoopback() || addr == self)
}

// cut takes kube-dns out of who is asked by a block.
func (j *joining) cut(s corefile.Server) corefile.Server {
	var out []corefile.Directive
	for _, d := range s.Directives {
		if d.Text == "forward" && slices.ContainsFunc(d.Args, j.isKube) {
			j.asked = append(j.asked, zone(d.Args[0]))
			d.Args = slices.DeleteFunc(slices.Clone(d.Args), j.isKube)
			if len(d.Args) == 1 {
				continue
			}
		}
		d.Body = slices.Clone(d.Body)
		for i, o := range d.Body {
			if o.Text == "resolver" && slices.ContainsFunc(o.Args, j.isKube) {
				d.Body[i].Args = []corefile.Token{{Text: kubedns.ListenAddress(s), File: o.File, Line: o.Line}}
			}
		}
		out = append(out, d)
	}
	s.Directives = out
	return s
}

// zones leaves kubernetes those that kube-dns was asked for.
func (j *joining) zones(d corefile.Directive) corefile.Directive {
	var args []corefile.Token
	for _, a := range d.Args {
		n := len(args)
		whole := false
		for _, asked := range j.asked {
			whole = whole || inside(zone(a), asked)
		}
		for _, asked := range j.asked {
			if !whole && inside(asked, zone(a)) {
				args = append(args, corefile.Token{Text: asked, File: a.File, Line: a.Line})
			}
		}
		if whole {
			args = append(args, a)
		} else if len(args) == n {
			j.note("dnsmasq asks others for %s: kube-dns's records there have not been seen by anybody, and are left out", a.Text)
		}
	}
	d.Args = args
	return d
}

// others sees to names that kube-dns was asked for and asked others for.
func (j *joining) others(config kubednsconfig.Config) error {
	own, theirs := first(j.main, "kubedns_config"), first(j.kube, "kubedns_config")
	everything := slices.Contains(j.asked, "") && root(j.main) == nil
	switch {
	case everything && theirs >= 0 && own < 0:
		j.add(j.kube.Directives[theirs])
	case everything && theirs < 0 && root(j.kube) != nil:
		j.add(*root(j.kube))
	case theirs >= 0 && own >= 0:
		j.place(&j.main.Directives[own], j.kube.Directives[theirs])
	case theirs >= 0:
		if err := j.federations(config); err != nil {
			return err
		}
	}
	both, err := kubedns.Expand([]corefile.Server{j.main, j.kube}, config)
	if err != nil {
		return err
	}
	mine, before := servers(root(both[0])), root(both[1])
	for _, z := range j.asked {
		if z == "" || slices.Equal(mine, servers(before)) || before == nil || j.final(z) {
			continue
		}
		if theirs >= 0 && j.Config == nil {
			j.note("names of %s that the cluster does not have were asked of who kube-dns's ConfigMap names; dnsmasq's servers are asked now", z)
			continue
		}
		f := *before
		f.Args = append([]corefile.Token{{Text: z, File: f.File, Line: f.Line}}, f.Args[1:]...)
		j.add(f)
	}
	return nil
}

// add puts a directive at the end; a forward in front of those whose zone it is in,
// since the first that fits is asked.
func (j *joining) add(d corefile.Directive) {
	at := len(j.main.Directives)
	for i, f := range j.main.Directives[:at] {
		if d.Text == "forward" && f.Text == "forward" && inside(zone(d.Args[0]), zone(f.Args[0])) {
			at = i
			break
		}
	}
	j.main.Directives = slices.Insert(j.main.Directives, at, d)
}

// place has dnsmasq's ConfigMap read where kube-dns read it, which is to be the same.
func (j *joining) place(own *corefile.Directive, theirs corefile.Directive) {
	a, b := own.Args[0].Text, theirs.Args[0].Text
	if a == b {
		return
	}
	if directory(a) && directory(b) {
		own.Args = theirs.Args
	}
	if j.Config == nil {
		j.note("the ConfigMap was read in two places, %s and %s: they are taken for one", a, b)
	}
}

// federations writes those of a ConfigMap that kube-dns reads and dnsmasq does not.
func (j *joining) federations(config kubednsconfig.Config) error {
	if j.Config == nil {
		j.note("kube-dns's ConfigMap is not followed, since dnsmasq does not read it: give it here, and its federations are written out")
		return nil
	}
	out, err := kubedns.Expand([]corefile.Server{j.kube}, kubednsconfig.Config{Federations: config.Federations})
	if err != nil {
		return err
	}
	if at := first(out[0], "federation"); at >= 0 {
		j.add(out[0].Directives[at])
	}
	return nil
}

// final says whether kubernetes asks nobody else for the names of a zone.
func (j *joining) final(z string) bool {
	d := j.main.Directives[first(j.main, "kubernetes")]
	return slices.ContainsFunc(d.Args, func(a corefile.Token) bool { return inside(z, zone(a)) }) &&
		!slices.ContainsFunc(through(d), func(a corefile.Token) bool { return inside(z, zone(a)) })
}

// letStubs lets names of zones that others are asked for pass kubernetes, whose zone
// they are in.
func (m *merging) letStubs(s *corefile.Server) {
	at := first(*s, "kubernetes")
	if at < 0 {
		return
	}
	d := s.Directives[at]
	var pass []corefile.Token
	for _, f := range s.Directives {
		if f.Text != "forward" {
			continue
		}
		z := f.Args[0]
		within := func(zones []corefile.Token) bool {
			return slices.ContainsFunc(zones, func(a corefile.Token) bool { return inside(zone(z), zone(a)) })
		}
		if within(d.Args) && !within(through(d)) && !within(pass) {
			pass = append(pass, z)
			m.note("%s lies within the cluster's zone: names that the cluster does not have are asked of its servers", z.Text)
		}
	}
	d.Body = slices.Clone(d.Body)
	for i, o := range d.Body {
		if o.Text == "fallthrough" {
			d.Body[i].Args = append(slices.Clone(o.Args), pass...)
		}
	}
	s.Directives[at] = d
}

// through are the zones of fallthrough.
func through(d corefile.Directive) (zones []corefile.Token) {
	for _, o := range d.Body {
		if o.Text == "fallthrough" {
			zones = append(zones, o.Args...)
		}
	}
	return zones
}

// root is the first forward of everything; nil if there is none.
func root(s corefile.Server) *corefile.Directive {
	for i, d := range s.Directives {
		if d.Text == "forward" && zone(d.Args[0]) == "" {
			return &s.Directives[i]
		}
	}
	return nil
}

// servers are who a forward asks.
func servers(f *corefile.Directive) []string {
	if f == nil {
		return nil
	}
	return f.Words()[1:]
}

// zone is one without the dot at its end; "" is the root.
func zone(t corefile.Token) string { return strings.ToLower(strings.TrimSuffix(t.Text, ".")) }

func inside(name, zone string) bool {
	return zone == "" || name == zone || strings.HasSuffix(name, "."+zone)
}

func related(a, b string) bool { return inside(a, b) || inside(b, a) }

// directory says whether a kubedns_config reads one.
func directory(name string) bool { return strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") }
