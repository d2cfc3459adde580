package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// ParseZones parses the zones in a directive's arguments: names, and CIDRs
// (10.96.0.0/12, fd00::/8), which become the reverse zones that cover them. It
// returns every error; errors begin with path.
func ParseZones(path string, args []corefile.Token) ([]wire.Name, error) {
	var zones []wire.Name
	var errs []error
	for _, a := range args {
		z, err := parseZone(a.Text)
		if err != nil {
			errs = append(errs, a.Errorf(path, "%w", err))
		}
		zones = append(zones, z...)
	}
	return zones, errors.Join(errs...)
}

// ZonesOr returns the zones in d's arguments, or the block's zones if d has no
// arguments, as in CoreDNS.
func (b *Block) ZonesOr(d corefile.Directive) ([]wire.Name, error) {
	if len(d.Args) == 0 {
		return b.Zones, nil
	}
	return ParseZones(d.Path, d.Args)
}

func parseZone(s string) ([]wire.Name, error) {
	// Names may contain a slash too: 0/26.2.0.192.in-addr.arpa (RFC 2317).
	address, bits, ok := strings.Cut(s, "/")
	if ok && !strings.Contains(bits, ".") && (number(bits) || strings.Trim(address, "0123456789.") == "") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CIDR: want one like 10.96.0.0/12 or fd00::/8", s)
		}
		return wire.ReverseZones(p), nil
	}
	if strings.Contains(s, ":") {
		return nil, fmt.Errorf("%q is not a zone: want a name or a CIDR like fd00::/8", s)
	}
	name, err := wire.ParseName(s)
	if err != nil {
		return nil, fmt.Errorf("not a zone: %w", err)
	}
	return []wire.Name{name}, nil
}

func number(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// A Scheme is the protocol by which a key's address is served.
type Scheme string

const (
	DNS    Scheme = "dns"    // over UDP and TCP
	TLS    Scheme = "tls"    // DNS over TLS, RFC 7858
	HTTPS  Scheme = "https"  // DNS over HTTPS, RFC 8484
	GRPC   Scheme = "grpc"   // CoreDNS's gRPC service
	QUIC   Scheme = "quic"   // DNS over QUIC, RFC 9250
	HTTPS3 Scheme = "https3" // DNS over HTTPS with HTTP/3
)

// NeedsTLS reports whether the protocol cannot do without TLS. HTTPS and gRPC can, behind a proxy.
func (s Scheme) NeedsTLS() bool { return s == TLS || s == QUIC || s == HTTPS3 }

// UDP and TCP report whether the protocol uses that transport.
func (s Scheme) UDP() bool { return s == DNS || s == QUIC || s == HTTPS3 }
func (s Scheme) TCP() bool { return s != QUIC && s != HTTPS3 }

// StreamLimits are limits of the connections of a scheme.
type StreamLimits struct {
	Connections int // 0 means no limit
	Streams     int // of one connection; 0 is the standard of the protocol's library
	Workers     int // of QUIC
}

// standards has the default port of each scheme, where zero means the default passed to
// ParseKey, and CoreDNS's limits of its connections. Over QUIC CoreDNS has 200 of them: here one
// that is idle makes room for another, and costs about 80 KB.
var standards = map[Scheme]struct {
	port   uint16
	limits StreamLimits
}{
	DNS:    {},
	TLS:    {port: 853},
	HTTPS:  {443, StreamLimits{Connections: 200, Streams: 250}},
	GRPC:   {443, StreamLimits{Connections: 200, Streams: 256}},
	QUIC:   {853, StreamLimits{Connections: 500, Streams: 256, Workers: 1024}},
	HTTPS3: {443, StreamLimits{Connections: 500, Streams: 256}},
}

// StandardLimits returns the limits of connections for which no directive sets others.
func (s Scheme) StandardLimits() StreamLimits { return standards[s].limits }

// A Key is one zone and port of a server block.
type Key struct {
	Scheme Scheme
	Zone   wire.Name
	Port   uint16
	From   corefile.Token // the key's position in the Corefile
}

// ParseKey parses the key of a server block, scheme://zone:port. The scheme, the
// port and, as in ":53", the zone are optional; the default zone is the root. port is
// the default of dns://. A CIDR may result in several keys.
func ParseKey(key corefile.Token, port uint16) ([]Key, error) {
	keys, err := parseKey(key, port)
	if err != nil && !key.Shown() {
		return nil, key.Errorf("", "not a server block's key, want ZONE[:PORT]")
	}
	return keys, err
}

func parseKey(key corefile.Token, port uint16) ([]Key, error) {
	text, scheme := key.Text, DNS
	if word, rest, ok := strings.Cut(text, "://"); ok {
		text, scheme = rest, Scheme(word)
		standard, known := standards[scheme]
		if !known {
			return nil, key.Errorf("", "%s: unknown scheme %q, want dns://, tls://, https://, https3://, "+
				"quic:// or grpc://", key.Text, scheme)
		}
		port = cmp.Or(standard.port, port)
	}

	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.Contains(text[i:], "/") {
		n, err := strconv.ParseUint(text[i+1:], 10, 16)
		if err != nil {
			return nil, key.Errorf("", "%s: want a port of 0..65535 after the last colon, got %q", key.Text, text[i+1:])
		}
		text, port = text[:i], uint16(n)
		if text == "" {
			text = "."
		}
	}

	zones, err := parseZone(text)
	if err != nil {
		return nil, key.Errorf("", "%w", err)
	}
	var keys []Key
	for _, z := range zones {
		keys = append(keys, Key{scheme, z, port, key})
	}
	return keys, nil
}
