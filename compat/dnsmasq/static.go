package dnsmasq

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A record is one that is served here.
type record struct {
	place string // what stands in front of its option in errors
	name  string
	ttl   int // -1 is that of all
	kind  string
	data  string // as in a zone file
}

// aside says whether the name's other types are asked of others.
func (r record) aside() bool { return r.kind != "CNAME" && r.kind != "PTR" }

// A hostRecord is names and their addresses.
type hostRecord struct {
	names []string
	addrs []netip.Addr
	ttl   int // -1 is that of all
}

// An address stands for every name in a zone.
type address struct {
	place setting
	zone  string // or root
	addr  netip.Addr
}

func (r *reader) record(s setting, name, kind, format string, args ...any) {
	r.records = append(r.records, record{place: s.prefix(), name: name, ttl: -1, kind: kind, data: fmt.Sprintf(format, args...)})
}

func (r *reader) address(s setting) error {
	zones, rest, err := r.domains(s.value)
	if err != nil {
		return err
	}
	if len(zones) == 0 {
		zones = []string{root}
	}
	if slices.Contains(zones, plainest) {
		return errors.New("not served: an address for the names without a dot: give each by --host-record")
	}
	if rest == "" {
		if !strings.HasPrefix(s.value, "/") {
			return errors.New("want /DOMAIN/ADDRESS, got nothing")
		}
		return r.ask(s, zones, "")
	}
	addrs := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	if rest != "#" {
		addr, err := netip.ParseAddr(show(rest))
		if err != nil || addr.Zone() != "" {
			return fmt.Errorf("want an IP address or #, got %q", show(rest))
		}
		addrs = []netip.Addr{addr.Unmap()}
	}
	for _, zone := range zones {
		for _, addr := range addrs {
			r.addresses = append(r.addresses, address{s, zone, addr})
		}
	}
	return nil
}

func (r *reader) hostRecord(s setting) error {
	h := hostRecord{ttl: -1}
	for _, field := range strings.Split(s.value, ",") {
		if field == "" {
			continue
		}
		if addr, err := netip.ParseAddr(show(field)); err == nil && addr.Zone() == "" {
			h.addrs = append(h.addrs, addr.Unmap())
			continue
		}
		if n, err := strconv.Atoi(field); err == nil && (len(h.addrs) > 0 && n >= 0 && n < 1<<31) {
			h.ttl = n
			continue
		}
		name, err := parseName(field)
		if err != nil {
			return err
		}
		if len(h.addrs) > 0 {
			return fmt.Errorf("want names in front of addresses, got %q", show(s.value))
		}
		h.names = append(h.names, name)
	}
	if len(h.names) == 0 || len(h.addrs) == 0 {
		return fmt.Errorf("want NAME,ADDRESS, got %q", show(s.value))
	}
	r.hostRecords = append(r.hostRecords, h)
	return nil
}

// aliasName is one that may begin with *.
func aliasName(text string) (string, error) {
	rest, wild := strings.CutPrefix(text, "*.")
	name, err := parseName(rest)
	if wild {
		name = "*." + name
	}
	return name, err
}

func (r *reader) alias(s setting) error {
	fields := strings.Split(s.value, ",")
	ttl := -1
	if n, err := strconv.Atoi(fields[len(fields)-1]); err == nil && n >= 0 && n < 1<<31 && len(fields) > 2 {
		ttl, fields = n, fields[:len(fields)-1]
	}
	if len(fields) < 2 {
		return fmt.Errorf("want ALIAS,TARGET, got %q", show(s.value))
	}
	target, err := parseName(fields[len(fields)-1])
	if err != nil {
		return err
	}
	for _, field := range fields[:len(fields)-1] {
		name, err := aliasName(field)
		if err != nil {
			return err
		}
		if name == target {
			return fmt.Errorf("%s leads to itself", name)
		}
		r.record(s, name, "CNAME", "%s.", target)
		r.records[len(r.records)-1].ttl = ttl
	}
	return nil
}

// fields cuts a value at commas: a name and what stands behind it, least to most of
// them.
func fields(s setting, least, most int, form string) (name string, rest []string, err error) {
	all := strings.Split(s.value, ",")
	if len(all)-1 < least || len(all)-1 > most {
		return "", nil, fmt.Errorf("want %s, got %q", form, show(s.value))
	}
	name, err = parseName(all[0])
	return name, all[1:], err
}

// at is a field, or what stands for one that is not there.
func at(fields []string, i int, otherwise string) string {
	if i < len(fields) && fields[i] != "" {
		return fields[i]
	}
	return otherwise
}

func (r *reader) service(s setting) error {
	name, rest, err := fields(s, 0, 4, "NAME,TARGET,PORT,PRIORITY,WEIGHT")
	if err != nil {
		return err
	}
	target := ""
	if text := at(rest, 0, ""); text != "" {
		if target, err = parseName(text); err != nil {
			return err
		}
	}
	port, wrongPort := parseNumber(at(rest, 1, "1"), 0, 65535)
	priority, wrongPriority := parseNumber(at(rest, 2, "0"), 0, 65535)
	weight, wrongWeight := parseNumber(at(rest, 3, "0"), 0, 65535)
	if err := errors.Join(wrongPort, wrongPriority, wrongWeight); err != nil {
		return err
	}
	r.record(s, name, "SRV", "%d %d %d %s.", priority, weight, port, target)
	return nil
}

func (r *reader) txt(s setting) error {
	name, texts, err := fields(s, 0, 1<<16, "NAME,TEXT")
	if err != nil {
		return err
	}
	var data []string
	for _, text := range texts {
		text = show(text)
		for len(text) > 255 { // a character-string has no more (RFC 1035 §3.3)
			data, text = append(data, quoted(text[:255])), text[255:]
		}
		data = append(data, quoted(text))
	}
	if len(data) == 0 {
		data = []string{quoted("")}
	}
	r.record(s, name, "TXT", "%s", strings.Join(data, " "))
	return nil
}

// quoted is a text in the form of a zone file, with nothing in it that means
// something to a Corefile.
func quoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || strings.IndexByte(`"\{}`, c) >= 0 {
			fmt.Fprintf(&b, `\%03d`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (r *reader) pointer(s setting) error {
	name, rest, err := fields(s, 0, 1, "NAME,TARGET")
	if err != nil {
		return err
	}
	target := ""
	if text := at(rest, 0, ""); text != "" {
		if target, err = parseName(text); err != nil {
			return err
		}
	}
	r.record(s, name, "PTR", "%s.", target)
	return nil
}

func (r *reader) mail(s setting) error {
	name, rest, err := fields(s, 0, 2, "NAME,TARGET,PREFERENCE")
	if err != nil {
		return err
	}
	preference, err := parseNumber(at(rest, 1, "1"), 0, 65535)
	if err != nil {
		return err
	}
	if at(rest, 0, "") == "" {
		if preference != 1 {
			return fmt.Errorf("want NAME,TARGET,PREFERENCE, got %q", show(s.value))
		}
		r.record(s, name, "MX", "") // its target is known at the end
		return nil
	}
	target, err := parseName(rest[0])
	if err != nil {
		return err
	}
	r.record(s, name, "MX", "%d %s.", preference, target)
	return nil
}

func (r *reader) mailTarget(s setting) (err error) {
	r.mxTarget, err = parseName(s.value)
	return err
}

func (r *reader) naptr(s setting) error {
	name, rest, err := fields(s, 5, 6, "NAME,ORDER,PREFERENCE,FLAGS,SERVICE,REGEXP[,REPLACEMENT]")
	if err != nil {
		return err
	}
	order, wrongOrder := parseNumber(rest[0], 0, 65535)
	preference, wrongPreference := parseNumber(rest[1], 0, 65535)
	replacement, wrongName := "", error(nil)
	if text := at(rest, 5, ""); text != "" {
		replacement, wrongName = parseName(text)
	}
	if err := errors.Join(wrongOrder, wrongPreference, wrongName); err != nil {
		return err
	}
	texts := make([]any, 3)
	for i, text := range rest[2:5] {
		if text = show(text); len(text) > 255 {
			return fmt.Errorf("want at most 255 characters, got %d", len(text))
		}
		texts[i] = quoted(text)
	}
	r.record(s, name, "NAPTR", "%d %d %s %s %s %s.", append([]any{order, preference}, append(texts, replacement)...)...)
	return nil
}

func (r *reader) caa(s setting) error {
	name, rest, err := fields(s, 3, 3, "NAME,FLAGS,TAG,VALUE")
	if err != nil {
		return err
	}
	flags, err := parseNumber(rest[0], 0, 255)
	if tag := show(rest[1]); tag == "" || strings.Trim(strings.ToLower(tag), "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		err = errors.Join(err, fmt.Errorf("want a tag of letters and digits, got %q", tag))
	}
	if err != nil {
		return err
	}
	r.record(s, name, "CAA", "%d %s %s", flags, rest[1], quoted(show(rest[2])))
	return nil
}

func (r *reader) anyRecord(s setting) error {
	name, rest, err := fields(s, 1, 2, "NAME,NUMBER[,HEX]")
	if err != nil {
		return err
	}
	number, err := parseNumber(rest[0], 1, 65535)
	if err != nil {
		return err
	}
	digits := strings.NewReplacer(":", "", " ", "").Replace(show(at(rest, 1, "")))
	if _, err := hex.DecodeString(digits); err != nil {
		return fmt.Errorf("want bytes as hexadecimal digits, got %q", show(rest[1]))
	}
	r.record(s, name, fmt.Sprintf("TYPE%d", number), `\# %d %s`, len(digits)/2, digits)
	return nil
}
