// Package kubednsconfig parses the data of kube-dns's ConfigMap: stub domains,
// upstream nameservers and federations. The directive kubedns_config and the
// commands of kube-dns's generation call Parse; the package reads no files and
// knows no Corefile.
package kubednsconfig

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A Config is the parsed data of a ConfigMap. The zero Config is the default,
// which applies without a ConfigMap. Equal data parse to equal Configs.
type Config struct {
	StubDomains []StubDomain     // sorted by domain
	Upstreams   []netip.AddrPort // for all other names, in the order given; empty: the node's own
	Federations []Federation     // sorted by name
}

// A StubDomain is a domain with nameservers of its own.
type StubDomain struct {
	Domain  string   // in lower case, without a trailing dot
	Servers []Server // at least one, in the order given
}

// A Server is a nameserver, by its address or by its hostname and port 53.
type Server struct {
	Name string // in lower case, without a trailing dot; "" if Addr is set
	Addr netip.AddrPort
}

// String returns the hostname or IP:PORT.
func (s Server) String() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Addr.String()
}

// A Federation has a name and the domain of its clusters.
type Federation struct{ Name, Domain string }

// Equal reports whether c and other are the same configuration.
func (c Config) Equal(other Config) bool {
	return slices.Equal(c.Upstreams, other.Upstreams) && slices.Equal(c.Federations, other.Federations) &&
		slices.EqualFunc(c.StubDomains, other.StubDomains, func(a, b StubDomain) bool {
			return a.Domain == b.Domain && slices.Equal(a.Servers, b.Servers)
		})
}

// String returns c on one line, for logs; "" for the default. It lists the first
// ten stub domains.
func (c Config) String() string {
	const limit = 10
	var words []string
	for _, d := range c.StubDomains[:min(len(c.StubDomains), limit)] {
		words = append(words, fmt.Sprintf("%s=%v", d.Domain, d.Servers))
	}
	if more := len(c.StubDomains) - limit; more > 0 {
		words = append(words, fmt.Sprintf("and %d more stub domains", more))
	}
	if len(c.Upstreams) > 0 {
		words = append(words, fmt.Sprintf("upstreams=%v", c.Upstreams))
	}
	for _, f := range c.Federations {
		words = append(words, "federation="+f.Name+":"+f.Domain)
	}
	return strings.Join(words, " ")
}

// IsLabel reports whether s is a label by RFC 1123 as Kubernetes applies it: in
// lower case.
func IsLabel(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// IsSubdomain reports whether s is a sequence of labels separated by dots.
// Kubernetes also accepts labels of more than 63 bytes, which no domain name can
// have.
func IsSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !IsLabel(label) {
			return false
		}
	}
	return len(s) <= 253
}
