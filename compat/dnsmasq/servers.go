package dnsmasq

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Zones that are not domains.
const (
	root     = "."
	plainest = "//" // names without a dot
)

// A group has the upstreams of one domain, from one or more options.
type group struct {
	zone    string // in lower case, without a dot at the end; root; plainest
	place   setting
	local   bool // do not forward
	usual   bool // the upstreams of the root
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
			return errors.New("want a server, or /DOMAIN/ for names that are not asked of others")
		}
		zones = []string{root}
	}
	return r.ask(s, zones, rest)
}

// ask adds a server to zones: "" for none, # for the upstreams of the root.
func (r *reader) ask(s setting, zones []string, server string) error {
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
			g.usual = true
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
		return nil, "", fmt.Errorf("want /DOMAIN/ADDRESS, got %q", show(text))
	}
	for part := range strings.SplitSeq(text[1:end], "/") {
		zone := root
		switch {
		case part == "":
			zone = plainest
		case part == "#":
		case strings.HasPrefix(part, "*"):
			return nil, "", fmt.Errorf("not served: a domain that begins with *, which means some of its names, got %q", show(part))
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
		switch u.source, err = netip.ParseAddr(show(addr)); {
		case ported:
			return u, fmt.Errorf("not served: the port %q to ask from: questions leave from random ports", show(port))
		case err != nil || u.source.Zone() != "":
			return u, fmt.Errorf("not served: an interface to ask through, %q: give the address to ask from", show(addr))
		}
	}
	host, portText, ported := strings.Cut(parts[0], "#")
	host = show(host)
	port := 53
	if ported && portText != "" {
		if port, err = parseNumber(portText, 1, 65535); err != nil {
			return u, fmt.Errorf("port: %w", err)
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		u.v6 = addr.Is6() && !addr.Is4In6()
		if strings.ContainsFunc(addr.Zone(), func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"\{}#%[]`, c) }) {
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
	network = show(network)
	if addr, err := netip.ParseAddr(network); err == nil {
		network = netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	p, err := netip.ParsePrefix(network)
	if err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
		return fmt.Errorf("want IP/BITS,SERVER, got %q", show(s.value))
	}
	return r.ask(s, reverse(p.Masked()), server)
}

// reverse returns the reverse zones of a prefix: one, unless the prefix ends inside a
// label.
func reverse(p netip.Prefix) (zones []string) {
	bytes, width, end := p.Addr().AsSlice(), 8, "in-addr.arpa"
	if p.Addr().Is6() {
		width, end = 4, "ip6.arpa"
	}
	label := func(i int) int {
		if width == 8 {
			return int(bytes[i])
		}
		return int(bytes[i/2]>>(4*(1-i%2))) & 15
	}
	text := func(n int) string {
		if width == 8 {
			return strconv.Itoa(n)
		}
		return strconv.FormatInt(int64(n), 16)
	}
	whole := (p.Bits() - 1) / width // labels in front of the last, which may be cut
	for i := range whole {
		end = text(label(i)) + "." + end
	}
	free := (whole+1)*width - p.Bits()
	for n := range 1 << free {
		zones = append(zones, text(label(whole)+n)+"."+end)
	}
	return zones
}

// check returns the mistakes of a complete group.
func (g *group) check() (errs []error) {
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s"+format, append([]any{g.place}, args...)...))
	}
	of := func() string {
		if g.zone == root {
			return ""
		}
		return " of " + g.zone
	}
	if g.usual && len(g.servers) > 0 && g.zone != root {
		wrong("%s has servers of its own and those of the rest", g.zone)
	}
	var from [2]map[netip.Addr]bool
	for i := range from {
		from[i] = map[netip.Addr]bool{}
	}
	for _, u := range g.servers {
		family := 0
		if u.v6 {
			family = 1
		}
		if u.source.IsValid() && u.source.Unmap().Is6() != u.v6 && !u.name {
			wrong("%s is no address to ask %s from", u.source, u.to)
		}
		from[family][u.source] = true
	}
	if sources := g.sources(); len(sources) > 1 || len(from[0]) > 1 || len(from[1]) > 1 {
		wrong("not served: servers%s that are asked from different addresses", of())
	}
	if most := 15; len(g.servers) > most {
		wrong("want at most %d servers%s, got %d", most, of(), len(g.servers))
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
