package forward

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/redact"
	"github.com/seamark/seamark/wire"
)

// The transports to an upstream.
const (
	schemeDNS   = "dns"
	schemeTLS   = "tls"
	schemeHTTPS = "https"
	schemeGRPC  = "grpc" // with or without TLS
	schemeQUIC  = "quic"
)

// A destination is one TO argument of a forward. Its upstreams are at addr, at the
// addresses in file, at the addresses of host, or at url.
type destination struct {
	scheme     string
	file       string // a resolv.conf that lists addresses
	host       string // a host name to look up
	addr       netip.AddrPort
	port       uint16
	serverName string // the name in the upstream's certificate
	url        string // for DNS over HTTPS, and of a Unix domain socket
	fallback   bool   // of the option fallback
	damaged    bool   // the address is in brackets that are not one pair
}

// An upstreamID identifies one upstream.
type upstreamID struct {
	scheme     string
	addr       netip.AddrPort
	serverName string
	url        string
	fallback   bool
}

// multiplexed reports whether each query is a request of HTTP or a stream of QUIC, which package
// http or quic-go assigns to its reply.
func (id upstreamID) multiplexed() bool {
	return id.scheme == schemeHTTPS || id.scheme == schemeGRPC || id.scheme == schemeQUIC
}

// String returns the upstream's name in metrics and errors.
func (id upstreamID) String() string {
	if id.url != "" {
		return id.url
	}
	return id.addr.String()
}

// upstreamAt returns the upstream at an address of the destination.
func (d destination) upstreamAt(addr netip.Addr) upstreamID {
	id := upstreamID{
		scheme: d.scheme, addr: netip.AddrPortFrom(addr, d.port), serverName: d.serverName, fallback: d.fallback,
	}
	if id.serverName == "" && (d.scheme == schemeTLS || d.scheme == schemeGRPC || d.scheme == schemeQUIC) {
		id.serverName = d.host
	}
	return id
}

// parseDestination parses one TO argument. exists reports whether there is a file at a
// path.
func parseDestination(text string, exists func(path string) bool) (d destination, err error) {
	d.scheme, d.port = schemeDNS, 53
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		rest = after
		switch scheme {
		case schemeDNS:
		case schemeTLS, schemeQUIC:
			d.scheme, d.port = scheme, 853
		case schemeHTTPS:
			return parseURL(text)
		case schemeGRPC:
			return d, errors.New("grpc:// is not supported here: use the directive grpc")
		case "https3":
			return d, errors.New("https3:// is not supported here: use https:// or quic://")
		default:
			return d, fmt.Errorf("unknown scheme %q: want dns://, tls://, https:// or quic://", scheme)
		}
	}

	if d.scheme == schemeTLS || d.scheme == schemeQUIC {
		rest, d.serverName, _ = strings.Cut(rest, "%")
		if server, port, ok := strings.Cut(d.serverName, ":"); ok { // SCHEME://IP%NAME:PORT
			d.serverName, rest = server, rest+":"+port
		}
	}

	switch found := exists(rest); {
	case found:
		d.file = rest
		return d, nil
	case strings.Contains(rest, "/"):
		return d, fmt.Errorf("not an address, and no such file: %q", text)
	}

	host := rest
	if h, port, err := net.SplitHostPort(rest); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return d, fmt.Errorf("want a port of 1..65535, got %q", port)
		}
		host, d.port = h, uint16(n)
	}
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil { // as CoreDNS, which accepts [::1
		d.addr = netip.AddrPortFrom(addr.Unmap(), d.port)
		d.damaged = strings.ContainsAny(corefile.Unbracketed(host), "[]")
		return d, nil
	}
	if !isHostname(host) {
		return d, fmt.Errorf("want an address, a host's name or a file, got %q", redact.URL(text))
	}
	d.host = host
	return d, nil
}

// isHostname reports whether text is a valid host name. A name whose last label is a
// number is not: it is probably a misspelled address.
func isHostname(text string) bool {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
		return false
	}
	labels := strings.Split(strings.TrimSuffix(text, "."), ".")
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return false
	}
	_, err := wire.ParseName(text)
	return err == nil
}

// parseURL parses the URL of a server for DNS over HTTPS.
func parseURL(text string) (destination, error) {
	u, err := corefile.ParseURL(text)
	if err == nil && u.Path != "" && u.Hostname() != "" {
		return destination{}, fmt.Errorf(
			"want https://HOST[:PORT] without a path, which is always /dns-query: got %q", redact.URL(text))
	}
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
		return destination{}, fmt.Errorf("want https://HOST[:PORT], got %q", redact.URL(text))
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && !isHostname(u.Hostname()) {
		return destination{}, fmt.Errorf("want https://HOST[:PORT], got %q", redact.URL(text))
	}
	u.Path = "/dns-query"
	return destination{scheme: schemeHTTPS, url: u.String()}, nil
}

// parseResolvConf returns the name servers of a resolv.conf(5), whose path is in the errors of
// damaged lines, which are skipped.
func parseResolvConf(path string, text []byte) (addrs []netip.Addr, damaged []error) {
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		at := corefile.Token{File: path, Line: number}

		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";"):
		case strings.ContainsFunc(line, isControl):
			damaged = append(damaged, at.Errorf("", "a line with a control character: %q", line))
		case len(fields) < 2 || fields[0] != "nameserver":
		default:
			addr, err := netip.ParseAddr(corefile.Unbracketed(fields[1]))
			if err != nil {
				damaged = append(damaged, at.Errorf("", "nameserver: want an IP address, got %q", fields[1]))
				continue
			}
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs, damaged
}

// isControl reports whether c is a control character that is no space.
func isControl(c rune) bool { return unicode.IsControl(c) && !unicode.IsSpace(c) }
