// Package kubedns reads what operators of kube-dns have configured: the ConfigMap
// kube-dns, from the directory that it is mounted in or from the API server. A
// source (Directory, Object) calls back with each Config that is good; Forwards
// says which servers are to be asked for what, and a Resolver finds the addresses
// of those that are given as names. What turns them into a server calls it. It
// answers no questions and opens no sockets of its own.
package kubedns

import (
	"net/netip"
	"slices"
	"strings"
)

// A Config is what a ConfigMap says. The zero Config is the default, which holds
// without one. Equal ConfigMaps give equal Configs.
type Config struct {
	StubDomains []StubDomain     // in the order of their domains
	Upstreams   []netip.AddrPort // for everything else, in the order given; none is the node's own
	Federations []Federation     // in the order of their names
}

// A StubDomain has servers of its own, one at least, in the order given.
type StubDomain struct {
	Domain  string // in lower case, without a dot at the end
	Servers []Server
}

// A Server is an address, or a host's name, whose port is 53.
type Server struct {
	Name string // in lower case, without a dot at the end; "" is an address
	Addr netip.AddrPort
}

// String is the name, or ip:port.
func (s Server) String() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Addr.String()
}

// A Federation is the name of one, and the domain of its clusters.
type Federation struct{ Name, Domain string }

// Equal says whether both say the same.
func (c Config) Equal(other Config) bool {
	return slices.Equal(c.Upstreams, other.Upstreams) && slices.Equal(c.Federations, other.Federations) &&
		slices.EqualFunc(c.StubDomains, other.StubDomains, func(a, b StubDomain) bool {
			return a.Domain == b.Domain && slices.Equal(a.Servers, b.Servers)
		})
}

// names lists the servers that are given as names, each once, in their order.
func (c Config) names() (names []string) {
	for _, d := range c.StubDomains {
		for _, s := range d.Servers {
			if s.Name != "" {
				names = append(names, s.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A Forward says who is asked for the names of a zone. Of several the one with
// the longest zone that a name is in counts.
type Forward struct {
	// Zone is a stub domain, without a dot at the end, or "." for the rest.
	Zone string
	// Servers are ip:port, [ip]:port or hosts' names, no two the same; for the
	// rest it may be the path of a resolv.conf. If there are none nobody can be
	// asked now, because no server's name has an address: questions are SERVFAIL
	// then, and the servers of another zone must not see them.
	Servers []string
}

// ResolvConf is who is asked if a Config names no upstreams.
const ResolvConf = "/etc/resolv.conf"

// Forwards gives the stub domains in their order, and the rest as the last. Names
// stand in it as they are; see Resolver.
func (c Config) Forwards() []Forward {
	return c.forwards(func(name string) []string { return []string{name} })
}

// forwards has what at gives in the place of a server's name.
func (c Config) forwards(at func(name string) []string) []Forward {
	all := make([]Forward, 0, len(c.StubDomains)+1)
	for _, d := range c.StubDomains {
		f := Forward{Zone: d.Domain}
		for _, s := range d.Servers {
			if s.Name != "" {
				f.add(at(s.Name)...)
			} else {
				f.add(s.Addr.String())
			}
		}
		all = append(all, f)
	}
	rest := Forward{Zone: "."}
	for _, u := range c.Upstreams {
		rest.add(u.String())
	}
	if len(rest.Servers) == 0 {
		rest.add(ResolvConf)
	}
	return append(all, rest)
}

func (f *Forward) add(servers ...string) {
	for _, s := range servers {
		if !slices.Contains(f.Servers, s) {
			f.Servers = append(f.Servers, s)
		}
	}
}

func equalForwards(a, b []Forward) bool {
	return slices.EqualFunc(a, b, func(a, b Forward) bool {
		return a.Zone == b.Zone && slices.Equal(a.Servers, b.Servers)
	})
}

// isLabel is a label of RFC 1123 as Kubernetes has it: in lower case.
func isLabel(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}

// isSubdomain is labels with dots between. Kubernetes lets a label be longer than
// 63 bytes, of which no name can be made.
func isSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return len(s) <= 253
}
