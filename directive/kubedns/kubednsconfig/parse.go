package kubednsconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seamark/seamark/sys/order"
)

// The keys of the ConfigMap.
const (
	federations = "federations"
	stubDomains = "stubDomains"
	upstreams   = "upstreamNameservers"
)

// maxUpstreams is the limit that resolv.conf has, too.
const maxUpstreams = 3

// The expected forms, for errors.
const (
	wantDomain     = "want a domain name (labels of a-z, 0-9 and inner -, without a trailing dot)"
	wantAddress    = "want IP, IPv4:PORT or [IPv6]:PORT with a port of 1..65535"
	wantServer     = wantAddress + ", or a hostname in lower case"
	wantStubs      = `want a JSON object of domains and their nameservers such as {"acme.local": ["1.2.3.4"]}`
	wantUpstreams  = `want a JSON array of at most 3 nameservers such as ["8.8.8.8", "8.8.4.4"]`
	wantFederation = "want NAME=DOMAIN,NAME=DOMAIN"
	wantLabel      = "want a federation name (a-z, 0-9 and inner -, at most 63 bytes)"
)

// Parse parses the data of a ConfigMap. Each key may be absent; unknown keys are
// ignored. stubDomains is a JSON object of lists of servers, upstreamNameservers
// a JSON array, federations either NAME=DOMAIN pairs separated by commas or a
// JSON object; JSON's null is an empty value. A stub domain without servers is
// dropped. On any mistake Parse returns the default Config and all mistakes,
// joined: it never applies half of a ConfigMap.
func Parse(data map[string]string) (Config, error) {
	var p parser
	for _, key := range []struct {
		name  string
		parse func(string)
	}{
		{federations, p.federations},
		{stubDomains, p.stubDomains},
		{upstreams, p.upstreams},
	} {
		value, ok := data[key.name]
		switch p.key = key.name; {
		case !ok:
		case !utf8.ValidString(value):
			p.fail("want UTF-8, got", value)

		default:
			key.parse(value)
		}
	}
	if len(p.errs) > 0 {
		return Config{}, errors.Join(p.errs...)
	}
	return p.config, nil
}

// UnknownKeys returns the keys that Parse ignores, sorted.
func UnknownKeys(data map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(data)), func(key string) bool {
		return key == federations || key == stubDomains || key == upstreams
	})
}

// A parser collects the Config and all mistakes.
type parser struct {
	key    string // being parsed
	config Config
	errs   []error
}

// fail reports a mistake in a value. want is the expected form and ends in "got".
func (p *parser) fail(want, value string) {
	p.errs = append(p.errs, fmt.Errorf("%s: %s %s", p.key, want, Quote(value)))
}

// Quote returns the start of value in quotes, at most 80 bytes of it.
func Quote(value string) string {
	const limit = 80
	if len(value) <= limit {
		return fmt.Sprintf("%q", value)
	}
	cut := limit
	for !utf8.RuneStart(value[cut]) && cut > limit-utf8.UTFMax {
		cut--
	}
	return fmt.Sprintf("%q and %d more bytes", value[:cut], len(value)-cut)
}

func (p *parser) federations(text string) {
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

	order.Slice(p.config.Federations, func(a, b Federation) int { return strings.Compare(a.Name, b.Name) })
}

func (p *parser) federation(name, domain string) {
	valid := true
	fail := func(want, value string) {
		p.fail(want+", got", value)
		valid = false
	}
	if !IsLabel(name) {
		fail(wantLabel, name)
	}
	if !IsSubdomain(domain) {
		fail(wantDomain, domain)
	}
	if slices.ContainsFunc(p.config.Federations, func(f Federation) bool { return f.Name == name }) {
		fail("want each name once", name)
	}
	if valid {
		p.config.Federations = append(p.config.Federations, Federation{name, domain})
	}
}

func (p *parser) stubDomains(text string) {
	seen := map[string]bool{}
	for _, f := range p.object(text, wantStubs) {
		if !IsSubdomain(f.name) {
			p.fail(wantDomain+", got", f.name)
		}
		if seen[f.name] {
			p.fail("want each domain once, got", f.name)
		}
		seen[f.name] = true

		var list []json.RawMessage
		if err := json.Unmarshal(f.value, &list); err != nil {
			p.fail(Quote(f.name)+`: want a list of nameservers such as ["1.2.3.4"], got`, string(f.value))
			continue
		}

		d := StubDomain{Domain: f.name}
		for _, item := range list {
			text, ok := asString(item)
			s, valid := parseServer(text)
			if !ok || !valid {
				p.fail(Quote(f.name)+": "+wantServer+", got", text)
				continue
			}
			d.Servers = append(d.Servers, s)
		}
		if len(d.Servers) > 0 {
			p.config.StubDomains = append(p.config.StubDomains, d)
		}
	}

	order.Slice(p.config.StubDomains, func(a, b StubDomain) int { return strings.Compare(a.Domain, b.Domain) })
}

func (p *parser) upstreams(text string) {
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		p.notJSON(text, wantUpstreams, err)
		return
	}
	if len(list) > maxUpstreams {
		p.fail(fmt.Sprintf("want at most %d nameservers, got %d:", maxUpstreams, len(list)), text)
	}
	for _, item := range list {
		text, ok := asString(item)
		addr, valid := ParseAddress(text)
		if !ok || !valid {
			p.fail(wantAddress+", got", text)
			continue
		}
		p.config.Upstreams = append(p.config.Upstreams, addr)
	}
}

// A field is one field of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// object returns the fields of a JSON object in their order, including
// duplicates.
func (p *parser) object(text, want string) (fields []field) {
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

	// The text is a valid object: the decoder cannot fail.
	d := json.NewDecoder(strings.NewReader(text))
	_, _ = d.Token()
	for d.More() {
		var f field
		name, _ := d.Token()
		f.name, _ = name.(string)
		_ = d.Decode(&f.value)
		fields = append(fields, f)
	}
	return fields
}

func (p *parser) notJSON(text, want string, err error) {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		p.fail(fmt.Sprintf("%s; at byte %d: %v: got", want, syntax.Offset, err), text)
	} else { // JSON of another type
		p.fail(want+", got", text)
	}
}

// asString returns the string in value. For anything else, null included, it
// returns the JSON text and false.
func asString(value json.RawMessage) (string, bool) {
	var s *string
	if json.Unmarshal(value, &s) != nil || s == nil {
		return string(value), false
	}
	return *s, true
}

// parseServer parses a nameserver of a stub domain. Text that resembles an
// address with too many numbers is a hostname without addresses, as in kube-dns.
func parseServer(text string) (Server, bool) {
	if addr, ok := ParseAddress(text); ok {
		return Server{Addr: addr}, true
	}
	return Server{Name: text}, IsSubdomain(text)
}

// ParseAddress parses IP, IP:PORT or [IPv6]:PORT; the default port is 53. It
// refuses IPv6 zones, which differ from node to node.
func ParseAddress(text string) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(text)
	port := uint16(53)
	if err != nil {
		addrPort, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.AddrPort{}, false
		}
		addr, port = addrPort.Addr(), addrPort.Port()
	}
	return netip.AddrPortFrom(addr.Unmap(), port), port != 0 && addr.Zone() == ""
}
