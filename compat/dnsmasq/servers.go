package dnsmasq

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/wire"
)

// Zones that are not domains.
const (
	root        = "."
	singleLabel = "//" // names without a dot
)

// A group has the upstreams of one domain, from one or more options.
type group struct {
	zone    string // in lower case, without a dot at the end; root; singleLabel
	place   setting
	local   bool // do not forward
	useRoot bool // use the upstreams of the root
	servers []upstream
}

// An upstream is a server and the source address for queries to it.
type upstream struct {
	to     string // IP:PORT, [IP]:PORT or NAME:PORT
	v6     bool
	name   bool
	source netip.Addr // the zero Addr is any
}

func (r *reader) server(s setting) error {
	zones, rest, err := r.domains(s.value)
	if err != nil {
		return err
	}
	if len(zones) == 0 {
		if rest == "" {
			return errors.New("want a server, or /DOMAIN/ for names that are not forwarded")
		}
		zones = []string{root}
	}
	return r.addServer(s, zones, rest)
}

// addServer adds a server to zones: "" does not forward, # uses the upstreams of the
// root.
func (r *reader) addServer(s setting, zones []string, server string) error {
	var u upstream
	if server != "" && server != "#" {
		var err error
		if u, err = parseUpstream(server); err != nil {
			return err
		}
	}
	for _, zone := range zones {
		g := r.group(zone, s)
		switch {
		case server == "":
			g.local = true
		case server == "#":
			g.useRoot = true
		case !slices.Contains(g.servers, u):
			g.servers = append(g.servers, u)
		}
	}
	return nil
}

func (r *reader) group(zone string, s setting) *group {
	for _, g := range r.servers {
		if g.zone == zone {
			return g
		}
	}
	g := &group{zone: zone, place: s}
	r.servers = append(r.servers, g)
	return g
}

// domains parses the optional /DOMAIN/ part and returns the rest.
func (r *reader) domains(text string) (zones []string, rest string, err error) {
	if !strings.HasPrefix(text, "/") {
		return nil, text, nil
	}
	end := strings.LastIndexByte(text, '/')
	if end == 0 {
		return nil, "", fmt.Errorf("want /DOMAIN/ADDRESS, got %q", unescape(text))
	}

	for part := range strings.SplitSeq(text[1:end], "/") {
		zone := root
		switch {
		case part == "":
			zone = singleLabel
		case part == "#":
		case strings.HasPrefix(part, "*"):
			return nil, "", fmt.Errorf("not served: a domain that begins with *, which covers only some of its names, "+
				"got %q", unescape(part))
		default:
			if zone, err = parseName(strings.TrimPrefix(part, ".")); err != nil {
				return nil, "", err
			}
		}
		zones = append(zones, zone)
	}
	return zones, text[end+1:], nil
}

// parseUpstream parses HOST[#PORT][@SOURCE].
func parseUpstream(text string) (u upstream, err error) {
	parts := strings.Split(text, "@")
	for _, from := range parts[1:] {
		addr, port, ported := strings.Cut(from, "#")
		switch u.source, err = netip.ParseAddr(unescape(addr)); {
		case ported:
			return u, fmt.Errorf("not served: the source port %q: queries are sent from random ports", unescape(port))
		case err != nil || u.source.Zone() != "":
			return u, fmt.Errorf("not served: the source interface %q: set the source address", unescape(addr))
		}
	}

	host, portText, ported := strings.Cut(parts[0], "#")
	host = unescape(host)
	port := 53
	if ported && portText != "" {
		if port, err = parseNumber(portText, 1, 65535); err != nil {
			return u, fmt.Errorf("port: %w", err)
		}
	}

	if addr, err := netip.ParseAddr(host); err == nil {
		u.v6 = addr.Is6() && !addr.Is4In6()
		special := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"\{}#%[]`, c) }
		if strings.ContainsFunc(addr.Zone(), special) {
			return u, fmt.Errorf("want an address, got %q", host)
		}
		u.to = netip.AddrPortFrom(addr.Unmap(), uint16(port)).String()
		return u, nil
	}

	name, err := parseName(host)
	if last := name[strings.LastIndexByte(name, '.')+1:]; err != nil || strings.Trim(last, "0123456789") == "" {
		return u, fmt.Errorf("want an IP address or the name of a host, got %q", host)
	}
	u.name, u.to = true, name+":"+strconv.Itoa(port)
	return u, nil
}

// reverseServer parses IP[/BITS][,SERVER].
func (r *reader) reverseServer(s setting) error {
	network, server, _ := strings.Cut(s.value, ",")
	network = unescape(network)
	if addr, err := netip.ParseAddr(network); err == nil {
		network = netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	p, err := netip.ParsePrefix(network)
	if err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
		return fmt.Errorf("want IP/BITS,SERVER, got %q", unescape(s.value))
	}
	return r.addServer(s, reverseZones(p), server)
}

// reverseZones returns the text forms of the reverse zones of a prefix, without
// final dots.
func reverseZones(p netip.Prefix) (zones []string) {
	for _, z := range wire.ReverseZones(p) {
		zones = append(zones, strings.TrimSuffix(z.String(), "."))
	}
	return zones
}

// check returns the mistakes in a complete group.
func (g *group) check() (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s"+format, append([]any{g.place}, args...)...))
	}
	if g.useRoot && len(g.servers) > 0 && g.zone != root {
		fail("%s has servers of its own and those of the root", g.zone)
	}

	var sources [2][]netip.Addr // by family of the server
	for _, u := range g.servers {
		family := 0
		if u.v6 {
			family = 1
		}
		if u.source.IsValid() && u.source.Unmap().Is6() != u.v6 && !u.name {
			fail("%s cannot be the source address of queries to %s", u.source, u.to)
		}
		if !slices.Contains(sources[family], u.source) {
			sources[family] = append(sources[family], u.source)
		}
	}

	suffix := ""
	if g.zone != root {
		suffix = " of " + g.zone
	}
	if len(g.sources()) > 1 || len(sources[0]) > 1 || len(sources[1]) > 1 {
		fail("not served: servers%s with different source addresses", suffix)
	}
	if limit := 15; len(g.servers) > limit {
		fail("want at most %d servers%s, got %d", limit, suffix, len(g.servers))
	}
	return errs
}

// sources returns the source addresses.
func (g *group) sources() (all []netip.Addr) {
	for _, u := range g.servers {
		if u.source.IsValid() && !slices.Contains(all, u.source) {
			all = append(all, u.source)
		}
	}
	return all
}
