package kubedns

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// The keys of the ConfigMap.
const (
	federations = "federations"
	stubDomains = "stubDomains"
	upstreams   = "upstreamNameservers"
)

// maxUpstreams is as many as a resolv.conf may have.
const maxUpstreams = 3

// What is wanted, for errors.
const (
	wantDomain     = "want the name of a domain (labels of a-z, 0-9 and - within, dots between, none at the end)"
	wantAddress    = "want IP, IPv4:PORT or [IPv6]:PORT with a port of 1..65535"
	wantServer     = wantAddress + ", or a host's name in lower case"
	wantStubs      = `want a JSON object of domains and their servers such as {"acme.local": ["1.2.3.4"]}`
	wantUpstreams  = `want a JSON array of at most 3 servers such as ["8.8.8.8", "8.8.4.4"]`
	wantFederation = "want NAME=DOMAIN, with a comma between two"
	wantLabel      = "want a name for the federation (a-z, 0-9 and - within, 63 bytes at most)"
)

// Parse reads the data of a ConfigMap. Each key may be missing; other keys mean
// nothing. stubDomains is a JSON object of lists of servers, upstreamNameservers
// a JSON array, federations either a list of NAME=DOMAIN with commas or a JSON
// object; JSON's null is nothing. A stub domain without servers is none. If
// anything is wrong the Config is the default, and the error says all that is: a
// part of a ConfigMap is not what its writer wanted.
func Parse(data map[string]string) (Config, error) {
	c, wrong := parse(data)
	return c, errors.Join(wrong...)
}

func parse(data map[string]string) (Config, []error) {
	var p parsing
	for _, key := range []struct {
		name string
		read func(string)
	}{
		{federations, p.federations},
		{stubDomains, p.stubDomains},
		{upstreams, p.upstreams},
	} {
		value, there := data[key.name]
		switch p.key = key.name; {
		case !there:
		case !utf8.ValidString(value):
			p.fail("want UTF-8, got", value)
		default:
			key.read(value)
		}
	}
	if len(p.wrong) > 0 {
		return Config{}, p.wrong
	}
	return p.config, nil
}

// unknown lists the keys that mean nothing, in order.
func unknown(data map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(data)), func(key string) bool {
		return key == federations || key == stubDomains || key == upstreams
	})
}

type parsing struct {
	key    string // that is being read
	config Config
	wrong  []error
}

// fail notes that something is wrong with a value: what comes before it in the
// error ends in "got".
func (p *parsing) fail(want, value string) {
	p.wrong = append(p.wrong, fmt.Errorf("%s: %s %s", p.key, want, quote(value)))
}

// quote shows the beginning of a value, which may be of any length.
func quote(value string) string {
	const most = 80
	if len(value) <= most {
		return fmt.Sprintf("%q", value)
	}
	cut := most
	for !utf8.RuneStart(value[cut]) && cut > most-utf8.UTFMax {
		cut--
	}
	return fmt.Sprintf("%q and %d bytes more", value[:cut], len(value)-cut)
}

func (p *parsing) federations(text string) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
	case text[0] == '{':
		for _, f := range p.object(text, wantFederation+`, or a JSON object such as {"name": "example.org"}`) {
			domain, ok := asString(f.value)
			if !ok {
				p.fail(f.name+": "+wantDomain+", got", domain)
				continue
			}
			p.federation(f.name, domain)
		}
	default:
		for part := range strings.SplitSeq(text, ",") {
			name, domain, ok := strings.Cut(part, "=")
			if !ok {
				p.fail(wantFederation+", got", part)
				continue
			}
			p.federation(strings.TrimSpace(name), strings.TrimSpace(domain))
		}
	}
	slices.SortFunc(p.config.Federations, func(a, b Federation) int { return strings.Compare(a.Name, b.Name) })
}

func (p *parsing) federation(name, domain string) {
	good := true
	wrong := func(want, value string) {
		p.fail(want+", got", value)
		good = false
	}
	if !isLabel(name) {
		wrong(wantLabel, name)
	}
	if !isSubdomain(domain) {
		wrong(wantDomain, domain)
	}
	if slices.ContainsFunc(p.config.Federations, func(f Federation) bool { return f.Name == name }) {
		wrong("want each name once", name)
	}
	if good {
		p.config.Federations = append(p.config.Federations, Federation{name, domain})
	}
}

func (p *parsing) stubDomains(text string) {
	seen := map[string]bool{}
	for _, f := range p.object(text, wantStubs) {
		if !isSubdomain(f.name) {
			p.fail(wantDomain+", got", f.name)
		}
		if seen[f.name] {
			p.fail("want each domain once, got", f.name)
		}
		seen[f.name] = true
		var list []json.RawMessage
		if err := json.Unmarshal(f.value, &list); err != nil {
			p.fail(quote(f.name)+`: want a list of servers such as ["1.2.3.4"], got`, string(f.value))
			continue
		}
		d := StubDomain{Domain: f.name}
		for _, item := range list {
			text, ok := asString(item)
			s, known := parseServer(text)
			if !ok || !known {
				p.fail(quote(f.name)+": "+wantServer+", got", text)
				continue
			}
			d.Servers = append(d.Servers, s)
		}
		if len(d.Servers) > 0 {
			p.config.StubDomains = append(p.config.StubDomains, d)
		}
	}
	slices.SortFunc(p.config.StubDomains, func(a, b StubDomain) int { return strings.Compare(a.Domain, b.Domain) })
}

func (p *parsing) upstreams(text string) {
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		p.notJSON(text, wantUpstreams, err)
		return
	}
	if len(list) > maxUpstreams {
		p.fail(fmt.Sprintf("want %d servers at most, got %d:", maxUpstreams, len(list)), text)
	}
	for _, item := range list {
		text, ok := asString(item)
		addr, known := parseAddress(text)
		if !ok || !known {
			p.fail(wantAddress+", got", text)
			continue
		}
		p.config.Upstreams = append(p.config.Upstreams, addr)
	}
}

// A field of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// object gives the fields of a JSON object in their order, those that are there
// twice too.
func (p *parsing) object(text, want string) (all []field) {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		p.notJSON(text, want, err)
		return nil
	}
	switch value.(type) {
	case nil:
		return nil
	case map[string]any:
	default:
		p.fail(want+", got", text)
		return nil
	}
	// It is right, so nothing can fail from here on.
	d := json.NewDecoder(strings.NewReader(text))
	_, _ = d.Token()
	for d.More() {
		var f field
		name, _ := d.Token()
		f.name, _ = name.(string)
		_ = d.Decode(&f.value)
		all = append(all, f)
	}
	return all
}

func (p *parsing) notJSON(text, want string, err error) {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		p.fail(fmt.Sprintf("%s; at byte %d: %v: got", want, syntax.Offset, err), text)
	} else { // something else than was wanted
		p.fail(want+", got", text)
	}
}

// asString is false, and gives the JSON, for anything but a string, null too.
func asString(value json.RawMessage) (string, bool) {
	var s *string
	if json.Unmarshal(value, &s) != nil || s == nil {
		return string(value), false
	}
	return *s, true
}

// parseServer reads a server of a stub domain. What looks like a number of an
// address too many is a name, as it is to kube-dns: one that has no address.
func parseServer(text string) (Server, bool) {
	if addr, ok := parseAddress(text); ok {
		return Server{Addr: addr}, true
	}
	return Server{Name: text}, isSubdomain(text)
}

// parseAddress reads IP, IP:PORT or [IPv6]:PORT.
func parseAddress(text string) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(text)
	port := uint16(53)
	if err != nil {
		var both netip.AddrPort
		if both, err = netip.ParseAddrPort(text); err != nil {
			return netip.AddrPort{}, false
		}
		addr, port = both.Addr(), both.Port()
	}
	// The interface of a link-local address is a node's own affair.
	return netip.AddrPortFrom(addr.Unmap(), port), port != 0 && addr.Zone() == ""
}
