package forward

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/seamark/seamark/wire"
)

// The transports to an upstream.
const (
	schemeDNS   = "dns"
	schemeTLS   = "tls"
	schemeHTTPS = "https"
)

// A destination is one TO argument of a forward.
type destination struct {
	scheme     string
	file       string // a resolv.conf that lists addresses
	host       string // a host name to look up
	addr       netip.AddrPort
	port       uint16
	serverName string // the name in the upstream's certificate
	url        string // for DNS over HTTPS
}

// A target identifies one upstream.
type target struct {
	scheme     string
	addr       netip.AddrPort
	serverName string
	url        string
}

// String returns the upstream's name in metrics and errors.
func (t target) String() string {
	if t.scheme == schemeHTTPS {
		return t.url
	}
	return t.addr.String()
}

// targetAt returns the upstream at an address of the destination.
func (p destination) targetAt(addr netip.Addr) target {
	t := target{scheme: p.scheme, addr: netip.AddrPortFrom(addr, p.port), serverName: p.serverName}
	if t.serverName == "" && p.scheme == schemeTLS {
		t.serverName = p.host
	}
	return t
}

// parseDestination reads one TO argument. exists reports whether a path is that
// of a file.
func parseDestination(text string, exists func(path string) bool) (p destination, err error) {
	p.scheme, p.port = schemeDNS, 53
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		rest = after
		switch scheme {
		case schemeDNS:
		case schemeTLS:
			p.scheme, p.port = schemeTLS, 853
		case schemeHTTPS:
			return parseURL(text)
		case "quic", "grpc", "https3":
			return p, fmt.Errorf("%s:// is known, not supported yet", scheme)
		default:
			return p, fmt.Errorf("unknown scheme %q: want dns://, tls:// or https://", scheme)
		}
	}
	if p.scheme == schemeTLS {
		rest, p.serverName, _ = strings.Cut(rest, "%")
		if server, port, ok := strings.Cut(p.serverName, ":"); ok { // tls://IP%NAME:PORT
			p.serverName, rest = server, rest+":"+port
		}
	}
	if strings.Contains(rest, "/") || exists(rest) {
		if !exists(rest) {
			return p, fmt.Errorf("not an address, and no such file: %q", text)
		}
		p.file = rest
		return p, nil
	}
	host := rest
	if addr, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		p.addr = netip.AddrPortFrom(addr.Unmap(), p.port)
		return p, nil
	}
	if h, port, err := net.SplitHostPort(rest); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return p, fmt.Errorf("want a port of 1..65535, got %q", port)
		}
		host, p.port = h, uint16(n)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		p.addr = netip.AddrPortFrom(addr.Unmap(), p.port)
		return p, nil
	}
	if !isHostname(host) {
		return p, fmt.Errorf("want an address, a host's name or a file, got %q", text)
	}
	p.host = host
	return p, nil
}

// isHostname reports whether text can be a host name. A name whose last label is
// a number is taken for a misspelled address.
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

func parseURL(text string) (destination, error) {
	u, err := url.Parse(text)
	if err == nil && u.Path != "" && u.Hostname() != "" {
		return destination{}, fmt.Errorf("want https://HOST[:PORT] without a path, which is always /dns-query: got %q", text)
	}
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
		return destination{}, fmt.Errorf("want https://HOST[:PORT], got %q", text)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && !isHostname(u.Hostname()) {
		return destination{}, fmt.Errorf("want https://HOST[:PORT], got %q", text)
	}
	u.Path = "/dns-query"
	return destination{scheme: schemeHTTPS, url: u.String()}, nil
}

// parseResolvConf returns the name servers of a resolv.conf(5).
func parseResolvConf(text []byte) (addrs []netip.Addr) {
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs
}
