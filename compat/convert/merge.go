package convert

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
)

// frontDirectives are the directives that the merged server takes from dnsmasq, which
// receives the clients' queries, and not from kube-dns behind it.
var frontDirectives = [...]string{
	"bind", "bufsize", "lameduck", "chaos", "loadbalance", "cache", "loop", "forward", "kubedns_config",
}

// A joiner merges dnsmasq and the kube-dns behind it into one server, which answers
// itself the queries that dnsmasq forwarded to kube-dns.
type joiner struct {
	*merger
	kube      corefile.Server
	kubeAddr  string          // at which dnsmasq queried kube-dns
	main      corefile.Server // the result
	forwarded []string        // zones that dnsmasq forwarded to kube-dns, without a trailing dot
}

// join returns dnsmasq's blocks with kube-dns's directives in the last one. A block
// for names without a dot may precede it; the names of kube-dns have more labels.
func (m *merger) join(
	masq []corefile.Server, kube corefile.Server, config kubednsconfig.Config,
) ([]corefile.Server, error) {
	j := joiner{merger: m, kube: kube, kubeAddr: kubedns.ListenAddress(kube)}
	out := slices.Clone(masq)
	for i, s := range out {
		j.forwarded = nil
		out[i] = j.removeKube(s)
	}

	last := len(out) - 1
	j.main = out[last]
	zones := kube.Directives[first(kube, "kubernetes")].Args
	ofCluster := func(z string) bool { return related(z, zone(zones[0])) }
	if len(zones) > 0 && !slices.ContainsFunc(j.forwarded, ofCluster) {
		m.note("dnsmasq forwards no names of %s to kube-dns at %s; the new server answers them nevertheless",
			zones[0].Text, j.kubeAddr)
		j.forwarded = append(j.forwarded, "")
	}

	for _, d := range kube.Directives {
		if d.Text == "kubernetes" {
			d = j.limitZones(d)
		}
		if !slices.Contains(frontDirectives[:], d.Text) && first(j.main, d.Text) < 0 {
			j.main.Directives = append(j.main.Directives, d)
		}
	}
	if err := j.addUpstreams(config); err != nil {
		return nil, err
	}
	out[last] = j.main
	m.note("one server replaces both, at the address of dnsmasq: nothing listens at %s any more", j.kubeAddr)
	return out, nil
}

// isKube reports whether a TO of forward, or a resolver, is kube-dns.
func (j *joiner) isKube(to corefile.Token) bool {
	kube, _ := netip.ParseAddrPort(j.kubeAddr)
	addr, err := netip.ParseAddrPort(to.Text)
	return err == nil && addr.Port() == kube.Port() && (addr.Addr().IsLoopback() || addr == kube)
}

// removeKube removes kube-dns from the upstreams of a block.
func (j *joiner) removeKube(s corefile.Server) corefile.Server {
	var out []corefile.Directive
	for _, d := range s.Directives {
		if d.Text == "forward" && slices.ContainsFunc(d.Args, j.isKube) {
			j.forwarded = append(j.forwarded, zone(d.Args[0]))
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

// limitZones keeps the zones of kubernetes that dnsmasq forwarded to kube-dns.
func (j *joiner) limitZones(d corefile.Directive) corefile.Directive {
	var args []corefile.Token
	for _, a := range d.Args {
		if slices.ContainsFunc(j.forwarded, func(z string) bool { return inside(zone(a), z) }) {
			args = append(args, a)
			continue
		}
		n := len(args)
		for _, forwarded := range j.forwarded {
			if inside(forwarded, zone(a)) {
				args = append(args, corefile.Token{Text: forwarded, File: a.File, Line: a.Line})
			}
		}
		if len(args) == n {
			j.note("dnsmasq forwards %s to other servers: kube-dns's records in it were unreachable and are omitted",
				a.Text)
		}
	}
	d.Args = args
	return d
}

// addUpstreams adds the upstreams of kube-dns for names that dnsmasq forwarded to it.
func (j *joiner) addUpstreams(config kubednsconfig.Config) error {
	front, behind := first(j.main, "kubedns_config"), first(j.kube, "kubedns_config")
	everything := slices.Contains(j.forwarded, "") && root(j.main) == nil
	switch {
	case everything && behind >= 0 && front < 0:
		j.add(j.kube.Directives[behind])
	case everything && behind < 0 && root(j.kube) != nil:
		j.add(*root(j.kube))
	case behind >= 0 && front >= 0:
		j.mergeSource(&j.main.Directives[front], j.kube.Directives[behind])
	case behind >= 0:
		if err := j.federations(config); err != nil {
			return err
		}
	}

	both, err := kubedns.Expand([]corefile.Server{j.main, j.kube}, config)
	if err != nil {
		return err
	}
	mine, before := upstreams(root(both[0])), root(both[1])
	for _, z := range j.forwarded {
		if z == "" || slices.Equal(mine, upstreams(before)) || before == nil || j.final(z) {
			continue
		}
		if behind >= 0 && j.Config == nil {
			j.note("kube-dns forwarded names of %s that the cluster lacks to the upstreams in its ConfigMap; "+
				"the new server forwards them to dnsmasq's upstreams", z)
			continue
		}
		f := *before
		f.Args = append([]corefile.Token{{Text: z, File: f.File, Line: f.Line}}, f.Args[1:]...)
		j.add(f)
	}
	return nil
}

// add appends a directive; it inserts a forward before others whose zones contain its
// own, since the first match wins.
func (j *joiner) add(d corefile.Directive) {
	at := slices.IndexFunc(j.main.Directives, func(f corefile.Directive) bool {
		return d.Text == "forward" && f.Text == "forward" && inside(zone(d.Args[0]), zone(f.Args[0]))
	})
	if at < 0 {
		at = len(j.main.Directives)
	}
	j.main.Directives = slices.Insert(j.main.Directives, at, d)
}

// mergeSource makes dnsmasq's kubedns_config read the ConfigMap where kube-dns does.
func (j *joiner) mergeSource(own *corefile.Directive, behind corefile.Directive) {
	a, b := own.Args[0].Text, behind.Args[0].Text
	if a == b {
		return
	}
	if isDirectory(a) && isDirectory(b) {
		own.Args = behind.Args
	}
	if j.Config == nil {
		j.note("the programs read the ConfigMap in two places, %s and %s: "+
			"the conversion assumes that they are the same", a, b)
	}
}

// federations adds the federations of a ConfigMap that only kube-dns reads.
func (j *joiner) federations(config kubednsconfig.Config) error {
	if j.Config == nil {
		j.note("the Corefile does not follow kube-dns's ConfigMap, since dnsmasq does not read it: " +
			"add it to the input for its federations")
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

// final reports whether kubernetes passes no names of a zone on.
func (j *joiner) final(z string) bool {
	d := j.main.Directives[first(j.main, "kubernetes")]
	return slices.ContainsFunc(d.Args, func(a corefile.Token) bool { return inside(z, zone(a)) }) &&
		!slices.ContainsFunc(through(d), func(a corefile.Token) bool { return inside(z, zone(a)) })
}

// passStubDomains lets names of stub domains below the cluster's zone fall through
// kubernetes.
func (m *merger) passStubDomains(s *corefile.Server) {
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
			m.note("%s is below the cluster's zone: the server forwards names in it that the cluster lacks", z.Text)
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

// through returns the zones of fallthrough.
func through(d corefile.Directive) (zones []corefile.Token) {
	for _, o := range d.Body {
		if o.Text == "fallthrough" {
			zones = append(zones, o.Args...)
		}
	}
	return zones
}

// root returns the first forward of the root zone; nil if there is none.
func root(s corefile.Server) *corefile.Directive {
	for i, d := range s.Directives {
		if d.Text == "forward" && zone(d.Args[0]) == "" {
			return &s.Directives[i]
		}
	}
	return nil
}

// upstreams returns the upstreams of a forward.
func upstreams(f *corefile.Directive) []string {
	if f == nil {
		return nil
	}
	return f.Words()[1:]
}

// zone returns a zone without its trailing dot; "" is the root.
func zone(t corefile.Token) string { return strings.ToLower(strings.TrimSuffix(t.Text, ".")) }

func inside(name, zone string) bool {
	return zone == "" || name == zone || strings.HasSuffix(name, "."+zone)
}

func related(a, b string) bool { return inside(a, b) || inside(b, a) }

// isDirectory reports whether a kubedns_config reads a directory.
func isDirectory(name string) bool {
	return strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".")
}
