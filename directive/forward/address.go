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

// The ways to reach an upstream.
const (
	plain     = "dns"
	overTLS   = "tls"
	overHTTPS = "https"
)

// A place is one TO of a forward, as it is written.
type place struct {
	scheme string
	file   string         // that lists addresses: a resolv.conf
	host   string         // a name that stands for addresses
	addr   netip.AddrPort // an address
	port   uint16
	server string // the name that the upstream's certificate must have
	url    string // of DNS over HTTPS
}

// A target is one upstream's identity.
type target struct {
	scheme string
	addr   netip.AddrPort
	server string
	url    string
}

// String is what metrics and errors call the upstream.
func (t target) String() string {
	if t.scheme == overHTTPS {
		return t.url
	}
	return t.addr.String()
}

// at is the upstream at an address of the place.
func (p place) at(addr netip.Addr) target {
	t := target{scheme: p.scheme, addr: netip.AddrPortFrom(addr, p.port), server: p.server}
	if t.server == "" && p.scheme == overTLS {
		t.server = p.host
	}
	return t
}

// parsePlace reads one TO. exists says whether a path is that of a file.
func parsePlace(text string, exists func(path string) bool) (p place, err error) {
	p.scheme, p.port = plain, 53
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		rest = after
		switch scheme {
		case plain:
		case overTLS:
			p.scheme, p.port = overTLS, 853
		case overHTTPS:
			return parseURL(text)
		default:
			return p, fmt.Errorf("unknown scheme %q: want dns://, tls:// or https://", scheme)
		}
	}
	if p.scheme == overTLS {
		rest, p.server, _ = strings.Cut(rest, "%")
		if server, port, ok := strings.Cut(p.server, ":"); ok { // tls://ip%name:port
			p.server, rest = server, rest+":"+port
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
	if !hostname(host) {
		return p, fmt.Errorf("want an address, a host's name or a file, got %q", text)
	}
	p.host = host
	return p, nil
}

// hostname says whether text can be the name of a host: what ends in a number
// is an address with a mistake in it.
func hostname(text string) bool {
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

func parseURL(text string) (place, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
		return place{}, fmt.Errorf("want https://HOST[:PORT][/PATH], got %q", text)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && !hostname(u.Hostname()) {
		return place{}, fmt.Errorf("want https://HOST[:PORT][/PATH], got %q", text)
	}
	if u.Path == "" {
		u.Path = "/dns-query"
	}
	return place{scheme: overHTTPS, url: u.String()}, nil
}

// parseResolvConf gives the name servers of a resolv.conf(5).
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
