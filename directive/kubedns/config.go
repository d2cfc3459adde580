// Package kubedns reads what operators of kube-dns have configured: the ConfigMap
// kube-dns, from the directory that it is mounted in or from the API server, and
// puts it into the blocks of a Corefile: the directive kubedns_config. A source
// (Directory, Object) calls back with each Config that is good; a Follower reads a
// Corefile with what they say in it. Package cmd calls it, and the server plans
// what it gives as if it had read it. It answers no questions and opens no sockets.
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

// ResolvConf is who is asked if a Config names no upstreams.
const ResolvConf = "/etc/resolv.conf"

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
