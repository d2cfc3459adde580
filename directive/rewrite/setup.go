package rewrite

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Setup sets up the rewrite directive.
func Setup(b *config.Block, uses []corefile.Directive) error {
	rw := &Rewrite{stateKey: b.NewStateKey()}
	rw.transactions.New = newTransaction

	waits := false
	var errs []error
	for _, d := range uses {
		r, err := parse(b, d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, chases := r.change.(*cnameRule)
		waits = waits || chases
		rw.rules = append(rw.rules, r)
	}

	if waits {
		b.Handle(&cnameRewrite{rw})
	} else {
		b.Handle(rw)
	}
	return errors.Join(errs...)
}

// fields returns the parsers of the FIELDs.
func fields(b *config.Block) map[string]func(corefile.Directive) (change, error) {
	return map[string]func(corefile.Directive) (change, error){
		"type": parseType, "class": parseClass, "ttl": parseTTL, "rcode": parseRCode,
		"cname": parseCNAME,
		"name":  func(d corefile.Directive) (change, error) { return parseName(b, d) },
		"edns0": func(d corefile.Directive) (change, error) { return parseEDNS(b, d) },
	}
}

// parse reads one rewrite directive.
func parse(b *config.Block, d corefile.Directive) (rule, error) {
	words := slices.Clone(d.Args)
	for _, line := range d.Body { // the lines are read as one
		if line.Block {
			return rule{}, line.Errorf("takes no braces")
		}
		words = append(append(words, line.Token), line.Args...)
	}

	r := rule{stop: true, text: "rewrite", at: fmt.Sprintf("%s:%d", d.File, d.Line)}
	for _, w := range words {
		r.text += " " + w.Text
	}
	if len(words) > 0 && (lower(words[0]) == "continue" || lower(words[0]) == "stop") {
		r.stop = lower(words[0]) == "stop"
		words = words[1:]
	}

	known := []string{"name", "type", "class", "edns0", "ttl", "cname", "rcode"}
	if len(words) == 0 {
		return r, d.Errorf("want one of %s and its arguments", strings.Join(known, ", "))
	}
	field := words[0]
	field.Text = lower(field)
	read := fields(b)[field.Text]
	if read == nil {
		return r, field.Errorf(d.Path, "want %s, got %q%s",
			strings.Join(known, ", "), field.Text, corefile.DidYouMean(field.Text, known))
	}

	var err error
	r.change, err = read(corefile.Directive{Token: field, Args: words[1:], Path: d.Path + ": " + field.Text})
	return r, err
}

func lower(t corefile.Token) string { return strings.ToLower(t.Text) }

// takeMatch removes the word for the match from d's arguments. n arguments must
// follow. The word option, if it is not empty, and its arguments may come after
// them.
func takeMatch(d *corefile.Directive, n int, option string) (match, error) {
	if len(d.Args) <= n {
		return exact, d.Arity(n, n+1)
	}
	if i := slices.Index(matchWords[:], lower(d.Args[0])); i >= 0 {
		d.Args = d.Args[1:]
		if option == "" {
			return match(i), d.Arity(n, n)
		}
		return match(i), nil
	}
	if option != "" && d.Args[n].Text == option {
		return exact, nil
	}
	return exact, d.Errorf("want exact, prefix, suffix, substring or regex before %d arguments, got %q%s",
		n, d.Args[0].Text, corefile.DidYouMean(d.Args[0].Text, matchWords[:]))
}

func parseName(b *config.Block, d corefile.Directive) (change, error) {
	m, err := takeMatch(&d, 2, "answer")
	if err != nil {
		return nil, err
	}

	r, options := &nameRule{}, d.Args[2:]
	if len(options) > 0 && options[0].Text == "metadata" {
		if m != regex {
			return nil, options[0].Errorf(d.Path, "metadata needs the match regex")
		}
		options = options[1:]
		if r.pattern, err = parsePattern(regex, d.Args[0].Text); err == nil {
			r.parts, err = parseParts(b, d.Args[1].Text, r.expr.NumSubexp())
		}
	} else {
		r.renaming, err = parseRenaming(m, d.Args[0].Text, d.Args[1].Text)
	}
	return r, errors.Join(d.Each(err), r.parseAnswers(d, options))
}

// parseAnswers reads the answer options of a name rule.
func (r *nameRule) parseAnswers(d corefile.Directive, left []corefile.Token) (err error) {
	var errs []error
	last := "" // the previous option of answer
	explicit := false
	for len(left) > 0 {
		at := left[0]
		switch {
		case at.Text == "answer":
			left = left[1:]
		case last == "": // CoreDNS requires the word answer only once
			errs = append(errs, at.Errorf(d.Path, "want answer, got %q", at.Text))
			return errors.Join(errs...)
		}

		if last = ""; len(left) > 0 {
			last = left[0].Text
		}
		if last == "auto" {
			r.auto = true
			left = left[1:]
			continue
		}

		if len(left) < 3 || last != "name" && last != "value" {
			errs = append(errs, at.Errorf(d.Path, "answer: want auto, name REGEX NAME or value REGEX NAME"))
			break
		}

		explicit = explicit || last == "name"
		a := answer{value: last == "value"}
		if a.expr, err = regexp.Compile(left[1].Text); err == nil {
			a.with, err = parseTemplate(left[2].Text, a.expr)
		}
		if err != nil {
			errs = append(errs, at.Errorf(d.Path, "answer: %s: %w", last, err))
		}
		r.answers = append(r.answers, a)
		left = left[3:]
	}

	if r.auto && explicit {
		errs = append(errs, d.Errorf("answer: auto cannot be combined with name REGEX NAME"))
	}
	return errors.Join(errs...)
}

func parseCNAME(d corefile.Directive) (change, error) {
	m, err := takeMatch(&d, 2, "")
	if err != nil {
		return nil, err
	}
	r := &cnameRule{}
	r.renaming, err = parseRenaming(m, d.Args[0].Text, d.Args[1].Text)
	return r, d.Each(err)
}

func parseType(d corefile.Directive) (change, error) {
	from, to, err := parsePair(d, wire.ParseType, "types like A or TYPE65")
	return &typeRule{from, to}, err
}

func parseClass(d corefile.Directive) (change, error) {
	from, to, err := parsePair(d, wire.ParseClass, "classes like IN or CH")
	return &classRule{from, to}, err
}

// parsePair parses two arguments. kind describes them for the error.
func parsePair[T any](d corefile.Directive, parse func(string) (T, bool), kind string) (from, to T, err error) {
	if err := d.Arity(2, 2); err != nil {
		return from, to, err
	}
	from, ok1 := parse(d.Args[0].Text)
	to, ok2 := parse(d.Args[1].Text)
	if !ok1 || !ok2 {
		err = d.Errorf("want two %s, got %q", kind, d.Words())
	}
	return from, to, err
}

func parseTTL(d corefile.Directive) (change, error) {
	m, err := takeMatch(&d, 2, "")
	if err != nil {
		return nil, err
	}
	r := &ttlRule{}
	if r.pattern, err = parsePattern(m, d.Args[0].Text); err != nil {
		return r, d.Errorf("%w", err)
	}

	text := d.Args[1].Text
	low, high, span := strings.Cut(text, "-")
	r.most = math.MaxInt32 // RFC 2181 §8
	ok := text != "-"
	number := func(to *uint32, s string) {
		n, err := strconv.ParseUint(s, 10, 31)
		*to, ok = uint32(n), ok && err == nil
	}
	if low != "" || !span {
		number(&r.least, low)
	}
	switch {
	case !span:
		r.most = r.least
	case high != "":
		number(&r.most, high)
	}
	if !ok || r.least > r.most {
		return r, d.Errorf("want a TTL of 0..%d, or MIN-MAX, MIN- or -MAX, got %q", math.MaxInt32, text)
	}
	return r, nil
}

func parseRCode(d corefile.Directive) (change, error) {
	m, err := takeMatch(&d, 3, "")
	if err != nil {
		return nil, err
	}

	r := &rcodeRule{}
	r.pattern, err = parsePattern(m, d.Args[0].Text)
	errs := []error{d.Each(err)}
	for i, to := range []*wire.RCode{&r.from, &r.to} {
		text := d.Args[1+i].Text
		var ok bool
		if *to, ok = wire.ParseRCode(text); !ok {
			errs = append(errs, d.Errorf("want a response code like NXDOMAIN or a number of 0..23, got %q", text))
		}
	}
	return r, errors.Join(errs...)
}

func parseEDNS(b *config.Block, d corefile.Directive) (change, error) {
	if n := len(d.Args); n > 0 && d.Args[n-1].Text == "revert" {
		d.Args = d.Args[:n-1]
		r, err := parseOption(b, d)
		if err == nil {
			r.revert = true
		}
		return r, err
	}
	return parseOption(b, d)
}

func parseOption(b *config.Block, d corefile.Directive) (*ednsRule, error) {
	if len(d.Args) < 2 {
		return nil, d.Errorf("want local, nsid or subnet, and set, append, replace or unset")
	}
	kind, word := lower(d.Args[0]), lower(d.Args[1])
	i := slices.Index(actions[:], word)
	if i < 0 {
		return nil, d.Errorf("%s: want set, append, replace or unset, got %q%s",
			kind, word, corefile.DidYouMean(word, actions[:]))
	}

	o := &ednsRule{action: action(i)}
	d.Path += ": " + kind
	d.Args = d.Args[2:]
	switch kind {
	case "nsid":
		o.code, o.data = wire.OptionNSID, fixed(nil)
		return o, d.Arity(0, 0)
	case "subnet":
		return o, o.parseSubnet(d)
	case "local":
		return o, o.parseLocal(b, d)
	}
	known := []string{"local", "nsid", "subnet"}
	return nil, d.Errorf("want local, nsid or subnet, got %q%s", kind, corefile.DidYouMean(kind, known))
}

func (o *ednsRule) parseSubnet(d corefile.Directive) error {
	o.code = wire.OptionSubnet
	if o.action == actionUnset {
		return d.Arity(0, 0)
	}
	if err := d.Arity(2, 2); err != nil {
		return err
	}

	bits4, err4 := strconv.Atoi(d.Args[0].Text)
	bits6, err6 := strconv.Atoi(d.Args[1].Text)
	if err4 != nil || err6 != nil || bits4 < 0 || bits4 > 32 || bits6 < 0 || bits6 > 128 {
		return d.Errorf("want 0..32 bits of IPv4 and 0..128 of IPv6, got %q", d.Words())
	}
	o.data = subnet(bits4, bits6)
	return nil
}

func (o *ednsRule) parseLocal(b *config.Block, d corefile.Directive) error {
	want := 2
	if o.action == actionUnset {
		want = 1
	}
	if err := d.Arity(want, want); err != nil {
		return err
	}

	code, err := strconv.ParseUint(d.Args[0].Text, 0, 16)
	if err != nil {
		return d.Errorf("want the number of an option, like 0xffee, got %q", d.Args[0].Text)
	}
	o.code = uint16(code)
	if o.action == actionUnset {
		return nil
	}
	o.data, err = data(b, d.Args[1].Text)
	return d.Each(err)
}

// data reads the DATA of a local option.
func data(b *config.Block, text string) (func(*dns.Query, *transaction) ([]byte, bool), error) {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		bytes, err := hex.DecodeString(digits)
		if err != nil {
			return nil, fmt.Errorf("%q: want pairs of hexadecimal digits after 0x", text)
		}
		return fixed(bytes), nil
	}
	if !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "}") {
		return fixed([]byte(text)), nil
	}

	name := text[1 : len(text)-1]
	if read := variable(name); read != nil {
		return read, nil
	}
	key := strings.TrimPrefix(name, "/")
	if !strings.Contains(key, "/") {
		return nil, fmt.Errorf("unknown variable %s; want {qname}, {qtype}, {protocol}, {client_ip}, {client_port}, "+
			"{server_ip}, {server_port} or metadata such as {kubernetes/namespace}", text)
	}

	value := metadataValue(b, key)
	return func(q *dns.Query, _ *transaction) ([]byte, bool) {
		v := value(q)
		return []byte(v), v != ""
	}, nil
}
