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

// A record is a static record.
type record struct {
	place string // prefix of the option's name in errors
	name  string
	ttl   int // -1 means the value of --local-ttl
	kind  string
	data  string // as in a zone file
}

// forwardsRest reports whether queries for other types of the name are forwarded.
func (r record) forwardsRest() bool { return r.kind != "CNAME" && r.kind != "PTR" }

// A hostRecord has names and their addresses.
type hostRecord struct {
	names []string
	addrs []netip.Addr
	ttl   int // -1 means the value of --local-ttl
}

// An override is an address of all names in a zone.
type override struct {
	place setting
	zone  string // or root
	addr  netip.Addr
}

func (r *reader) addressOption(s setting) error {
	zones, rest, err := r.domains(s.value)
	if err != nil {
		return err
	}
	if len(zones) == 0 {
		zones = []string{root}
	}
	if slices.Contains(zones, singleLabel) {
		return errors.New("not served: an address for all names without a dot: set each with --host-record")
	}
	if rest == "" {
		if !strings.HasPrefix(s.value, "/") {
			return errors.New("want /DOMAIN/ADDRESS, got nothing")
		}
		return r.addServer(s, zones, "")
	}

	addrs := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	if rest != "#" {
		addr, err := netip.ParseAddr(unescape(rest))
		if err != nil || addr.Zone() != "" {
			return fmt.Errorf("want an IP address or #, got %q", unescape(rest))
		}
		addrs = []netip.Addr{addr.Unmap()}
	}
	for _, zone := range zones {
		for _, addr := range addrs {
			r.overrides = append(r.overrides, override{s, zone, addr})
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
		if addr, err := netip.ParseAddr(unescape(field)); err == nil && addr.Zone() == "" {
			h.addrs = append(h.addrs, addr.Unmap())
			continue
		}
		if ttl, ok := parseTTL(field); ok && len(h.addrs) > 0 {
			h.ttl = ttl
			continue
		}

		name, err := parseName(field)
		if err != nil {
			return err
		}
		if len(h.addrs) > 0 {
			return fmt.Errorf("want names before addresses, got %q", unescape(s.value))
		}
		h.names = append(h.names, name)
	}
	if len(h.names) == 0 || len(h.addrs) == 0 {
		return fmt.Errorf("want NAME,ADDRESS, got %q", unescape(s.value))
	}
	r.hostRecords = append(r.hostRecords, h)
	return nil
}

func parseTTL(text string) (int, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int(n), err == nil && n >= 0
}

func (r *reader) cname(s setting) error {
	fields, ttl := strings.Split(s.value, ","), -1
	if n, ok := parseTTL(fields[len(fields)-1]); ok && len(fields) > 2 {
		ttl, fields = n, fields[:len(fields)-1]
	}
	if len(fields) < 2 {
		return fmt.Errorf("want ALIAS,TARGET, got %q", unescape(s.value))
	}
	target, err := parseName(fields[len(fields)-1])
	if err != nil {
		return err
	}

	for _, field := range fields[:len(fields)-1] {
		rest, wildcard := strings.CutPrefix(field, "*.")
		name, err := parseName(rest)
		switch {
		case err != nil:
			return err
		case wildcard:
			name = "*." + name
		case name == target:
			return fmt.Errorf("%s leads to itself", name)
		}
		r.records = append(r.records, record{s.prefix(), name, ttl, "CNAME", target + "."})
	}
	return nil
}

// fields are the fields of an option's value, which commas separate. The first one
// is the owner name. Methods that parse a field collect errors.
type fields struct {
	setting
	words []string
	errs  []error
}

// split splits a value into least to most fields. form describes them.
func split(s setting, least, most int, form string) *fields {
	f := &fields{setting: s, words: strings.Split(s.value, ",")}
	if n := len(f.words); n < least || n > most {
		f.words = nil
		f.errs = []error{fmt.Errorf("want %s, got %q", form, unescape(s.value))}
	}
	return f
}

// text returns field i; "" if it is absent.
func (f *fields) text(i int) string {
	if i < len(f.words) {
		return unescape(f.words[i])
	}
	return ""
}

// number returns field i, or absent if it is absent or empty.
func (f *fields) number(i, absent, least, most int) int {
	if f.text(i) == "" && (absent >= least || f.words == nil) {
		return absent
	}
	n, err := parseNumber(f.text(i), least, most)
	f.errs = append(f.errs, err)
	return n
}

// name returns field i; "" if it is absent or empty.
func (f *fields) name(i int) string {
	if f.text(i) == "" {
		return ""
	}
	name, err := parseName(f.text(i))
	f.errs = append(f.errs, err)
	return name
}

// add adds the record of the fields if they have no errors.
func (r *reader) add(f *fields, kind, format string, args ...any) error {
	owner := ""
	if len(f.words) > 0 {
		var err error
		owner, err = parseName(f.words[0])
		f.errs = append([]error{err}, f.errs...)
	}
	err := errors.Join(f.errs...)
	if err == nil {
		r.records = append(r.records, record{f.prefix(), owner, -1, kind, fmt.Sprintf(format, args...)})
	}
	return err
}

const maxField = 1<<16 - 1 // of a field of 16 bits

func (r *reader) srv(s setting) error {
	f := split(s, 1, 5, "NAME,TARGET,PORT,PRIORITY,WEIGHT")
	target, port := f.name(1), f.number(2, 1, 0, maxField)
	priority, weight := f.number(3, 0, 0, maxField), f.number(4, 0, 0, maxField)
	return r.add(f, "SRV", "%d %d %d %s.", priority, weight, port, target)
}

func (r *reader) txt(s setting) error {
	f := split(s, 1, 1<<16, "NAME,TEXT")
	var data []string
	for i := 1; i < max(len(f.words), 2); i++ {
		text := f.text(i)
		for len(text) > 255 { // the maximum of a character-string (RFC 1035 §3.3)
			data, text = append(data, quoted(text[:255])), text[255:]
		}
		data = append(data, quoted(text))
	}
	return r.add(f, "TXT", "%s", strings.Join(data, " "))
}

// quoted returns text as in a zone file, without characters that have a meaning in a
// Corefile.
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

func (r *reader) ptr(s setting) error {
	f := split(s, 1, 2, "NAME,TARGET")
	return r.add(f, "PTR", "%s.", f.name(1))
}

func (r *reader) mx(s setting) error {
	const form = "NAME,TARGET,PREFERENCE"
	f := split(s, 1, 3, form)
	target, preference := f.name(1), f.number(2, 1, 0, maxField)
	switch {
	case target != "":
		return r.add(f, "MX", "%d %s.", preference, target)
	case preference != 1:
		return fmt.Errorf("want %s, got %q", form, unescape(s.value))
	}
	return r.add(f, "MX", "") // check sets the target
}

func (r *reader) naptr(s setting) error {
	f := split(s, 6, 7, "NAME,ORDER,PREFERENCE,FLAGS,SERVICE,REGEXP[,REPLACEMENT]")
	for i := 3; i < 6; i++ {
		if n := len(f.text(i)); n > 255 {
			f.errs = append(f.errs, fmt.Errorf("want at most 255 characters, got %d", n))
		}
	}
	order, preference := f.number(1, -1, 0, maxField), f.number(2, -1, 0, maxField)
	flags, service, expression := quoted(f.text(3)), quoted(f.text(4)), quoted(f.text(5))
	return r.add(f, "NAPTR", "%d %d %s %s %s %s.", order, preference, flags, service, expression, f.name(6))
}

func (r *reader) caa(s setting) error {
	f := split(s, 4, 4, "NAME,FLAGS,TAG,VALUE")
	flags, tag := f.number(1, -1, 0, 255), f.text(2)
	valid := tag != "" && strings.Trim(strings.ToLower(tag), "abcdefghijklmnopqrstuvwxyz0123456789") == ""
	if f.words != nil && !valid {
		f.errs = append(f.errs, fmt.Errorf("want a tag of letters and digits, got %q", tag))
	}
	return r.add(f, "CAA", "%d %s %s", flags, tag, quoted(f.text(3)))
}

// unknownType adds a record in the format of RFC 3597.
func (r *reader) unknownType(s setting) error {
	f := split(s, 2, 3, "NAME,NUMBER[,HEX]")
	number := f.number(1, -1, 1, maxField)
	digits := strings.NewReplacer(":", "", " ", "").Replace(f.text(2))
	if _, err := hex.DecodeString(digits); err != nil {
		f.errs = append(f.errs, fmt.Errorf("want bytes as hexadecimal digits, got %q", f.text(2)))
	}
	return r.add(f, fmt.Sprintf("TYPE%d", number), `\# %d %s`, len(digits)/2, digits)
}
