package rewrite

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A domain is a name that patterns are compared with.
type domain struct {
	wire []byte // in wire form, lower case
	text []byte // in text form once String was called; the buffer is reused
}

func (d *domain) reset(name []byte) { d.wire, d.text = name, d.text[:0] }

// String returns the text form with the final dot.
func (d *domain) String() []byte {
	if len(d.text) == 0 {
		d.text = wire.AppendText(d.text, d.wire)
	}
	return d.text
}

// A match is a way to compare a name with a pattern.
type match uint8

const (
	exact match = iota
	prefix
	suffix
	substring
	regex
)

// matchWords are the Corefile's words, by match.
var matchWords = [...]string{exact: "exact", prefix: "prefix", suffix: "suffix", substring: "substring", regex: "regex"}

// A pattern matches names.
type pattern struct {
	match match
	name  wire.Name      // exact
	text  []byte         // prefix, suffix, substring
	expr  *regexp.Regexp // regex
}

func parsePattern(m match, text string) (p pattern, err error) {
	p.match = m
	switch m {
	case exact:
		p.name, err = wire.ParseName(text)
	case prefix:
		p.text = []byte(strings.ToLower(text))
	case suffix:
		p.text = []byte(dotted(text))
	case substring:
		if text == "" {
			return p, fmt.Errorf("substring: want some text, got \"\"")
		}
		p.text = []byte(strings.ToLower(text))
	case regex:
		p.expr, err = regexp.Compile(text)
	}
	return p, err
}

// dotted returns text in lower case with a final dot.
func dotted(text string) string { return strings.ToLower(strings.TrimSuffix(text, ".") + ".") }

func (p *pattern) matches(s *domain) bool {
	switch p.match {
	case exact:
		return string(s.wire) == string(p.name)
	case prefix:
		return bytes.HasPrefix(s.String(), p.text)
	case suffix:
		return bytes.HasSuffix(s.String(), p.text)
	case substring:
		return bytes.Contains(s.String(), p.text)
	}
	return p.expr.Match(s.String())
}

// groupReference matches a reference to a group of a regular expression.
var groupReference = regexp.MustCompile(`\{\d+\}`)

// parseTemplate returns text such as "{1}.example.org" as a template of package
// regexp.
func parseTemplate(text string, expr *regexp.Regexp) (template []byte, err error) {
	text = groupReference.ReplaceAllStringFunc(strings.ReplaceAll(text, "$", "$$"), func(ref string) string {
		group, tooLarge := strconv.Atoi(ref[1 : len(ref)-1])
		if tooLarge != nil || group > expr.NumSubexp() {
			err = fmt.Errorf("%s: the regular expression has %d groups", ref, expr.NumSubexp())
		}
		return fmt.Sprintf("${%d}", group)
	})
	return []byte(text), err
}

// A renaming is a pattern and the replacement for its matches.
type renaming struct {
	pattern
	with     string // for all but regex
	template []byte // for regex, in the syntax of package regexp
}

func parseRenaming(m match, from, with string) (r renaming, err error) {
	if r.pattern, err = parsePattern(m, from); err != nil {
		return r, err
	}
	switch m {
	case exact:
		_, err = wire.ParseName(with)
		r.with = with
	case suffix:
		r.with = dotted(with)
	case regex:
		r.template, err = parseTemplate(with, r.expr)
	default:
		r.with = strings.ToLower(with)
	}
	return r, err
}

// rename returns the new name of s. It is not ok if the pattern does not match.
func (r *renaming) rename(s *domain) (name wire.Name, ok bool, err error) {
	if !r.matches(s) {
		return "", false, nil
	}

	text, renamed := s.text, ""
	switch r.match {
	case exact:
		renamed = r.with
	case prefix:
		renamed = r.with + string(text[len(r.text):])
	case suffix:
		renamed = string(text[:len(text)-len(r.text)]) + r.with
	case substring:
		renamed = string(bytes.ReplaceAll(text, r.text, []byte(r.with)))
	case regex:
		renamed = string(r.expr.Expand(nil, r.template, text, r.expr.FindSubmatchIndex(text)))
	}

	return parseRenamed(renamed, s)
}

// An answer is an option "answer name" or "answer value": it renames names in
// answers that match a regular expression.
type answer struct {
	value bool // names in record data; otherwise owner names
	expr  *regexp.Regexp
	with  []byte // a template of package regexp
}

// A nameRule replaces the query's name.
type nameRule struct {
	renaming
	parts   []part // in place of the template, with the option metadata
	auto    bool
	answers []answer
}

func (r *nameRule) apply(q *dns.Query, t *transaction) (bool, error) {
	rename := r.rename
	if r.parts != nil {
		rename = func(s *domain) (wire.Name, bool, error) { return r.assemble(q, s) }
	}

	name, ok, err := rename(&t.domain)
	if !ok || err != nil {
		return ok, err
	}
	t.renamed = append(t.renamed, renamed{r, t.wire, []byte(name)})
	t.changed = true
	t.reset([]byte(name))
	return true, nil
}

// A renamed records the effect of a name rule. When the answer is restored, from of
// the first one is the client's own spelling.
type renamed struct {
	rule     *nameRule
	from, to []byte
}

// restoreName undoes the renamings in a name of the answer. It is a
// wire.Rename.
func (t *transaction) restoreName(name []byte, _ wire.Type, rdata bool) []byte {
	for i := len(t.renamed) - 1; i >= 0; i-- {
		name = t.renamed[i].restore(name, rdata)
	}
	return name
}

// restore undoes one rule's renaming. It returns an empty name, which is not
// valid, if an answer option yields an invalid name.
func (r *renamed) restore(name []byte, rdata bool) []byte {
	changed := false
	for _, a := range slices.Backward(r.rule.answers) {
		if a.value != rdata {
			continue
		}
		text := bytes.ToLower(wire.AppendText(nil, name))
		if found := a.expr.FindSubmatchIndex(text); found != nil {
			replacement, err := wire.ParseName(string(a.expr.Expand(nil, a.with, text, found)))
			if err != nil {
				return nil
			}
			name, changed = []byte(replacement), true
		}
	}

	// CoreDNS changes names of exact rules back as with the option auto.
	auto := r.rule.auto || r.rule.match == exact
	if changed || rdata && !auto {
		return name
	}
	lower := wire.AppendLower(nil, name)
	switch head := len(lower) - len(r.to); {
	case string(lower) == string(r.to):
		return r.from
	case auto && r.rule.match != suffix:
		if isLabel(lower, head) && string(lower[head:]) == string(r.to) && head+len(r.from) <= wire.MaxName {
			return append(bytes.Clone(name[:head]), r.from...)
		}
	case auto:
		text := bytes.ToLower(wire.AppendText(nil, name))
		if head, ok := bytes.CutSuffix(text, []byte(r.rule.with)); ok {
			if restored, err := wire.ParseName(string(head) + string(r.rule.text)); err == nil {
				return []byte(restored)
			}
		}
	}
	return name
}

// isLabel reports whether a label of a name begins at an offset.
func isLabel(name []byte, offset int) bool {
	i := 0
	for i < offset {
		i += 1 + int(name[i])
	}
	return i == offset
}
