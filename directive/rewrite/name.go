package rewrite

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A subject is a name that patterns are held against.
type subject struct {
	wire []byte // in wire form, lower case
	text []byte // as people write it, once somebody has asked; memory that serves again
}

func (s *subject) reset(name []byte) { s.wire, s.text = name, s.text[:0] }

// written is the name as people write it, with the final dot.
func (s *subject) written() []byte {
	if len(s.text) == 0 {
		s.text = wire.AppendText(s.text, s.wire)
	}
	return s.text
}

// A match is a way to compare a name.
type match uint8

const (
	exact match = iota
	prefix
	suffix
	substring
	regex
)

// matches are the words for them, in order.
var matches = [...]string{exact: "exact", prefix: "prefix", suffix: "suffix", substring: "substring", regex: "regex"}

// A pattern is what a name is compared with.
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

// dotted is the end of a name with the final dot.
func dotted(text string) string { return strings.ToLower(strings.TrimSuffix(text, ".") + ".") }

func (p *pattern) fits(s *subject) bool {
	switch p.match {
	case exact:
		return string(s.wire) == string(p.name)
	case prefix:
		return bytes.HasPrefix(s.written(), p.text)
	case suffix:
		return bytes.HasSuffix(s.written(), p.text)
	case substring:
		return bytes.Contains(s.written(), p.text)
	}
	return p.expr.Match(s.written())
}

// A template is text with the groups of a regular expression in it.
type template []piece

// A piece is text, and the group behind it: -1 is none.
type piece struct {
	text  string
	group int
}

// parseTemplate reads "{1}.example.org".
func parseTemplate(text string, expr *regexp.Regexp) (t template, err error) {
	rest := text
	for {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			return append(t, piece{rest, -1}), nil
		}
		length := strings.IndexByte(rest[open:], '}')
		if length < 0 {
			return append(t, piece{rest, -1}), nil
		}
		inside := rest[open+1 : open+length]
		group, err := strconv.Atoi(inside)
		switch {
		case err != nil || group < 0:
			t = append(t, piece{rest[:open+length+1], -1})
		case group > expr.NumSubexp():
			return nil, fmt.Errorf("{%d}: the regular expression has %d groups", group, expr.NumSubexp())
		default:
			t = append(t, piece{rest[:open], group})
		}
		rest = rest[open+length+1:]
	}
}

// fill gives the text for what expr found in src.
func (t template) fill(src []byte, found []int) string {
	var out strings.Builder
	for _, p := range t {
		out.WriteString(p.text)
		if p.group >= 0 && found[2*p.group] >= 0 {
			out.Write(src[found[2*p.group]:found[2*p.group+1]])
		}
	}
	return out.String()
}

// A renaming is a pattern and what takes its place.
type renaming struct {
	pattern
	with   string   // but for regex
	filled template // regex
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
		r.filled, err = parseTemplate(with, r.expr)
	default:
		r.with = strings.ToLower(with)
	}
	return r, err
}

// to gives the new name of s; it is not ok if the pattern does not fit.
func (r *renaming) to(s *subject) (name wire.Name, ok bool, err error) {
	if !r.fits(s) {
		return "", false, nil
	}
	text, made := s.text, ""
	switch r.match {
	case exact:
		made = r.with
	case prefix:
		made = r.with + string(text[len(r.text):])
	case suffix:
		made = string(text[:len(text)-len(r.text)]) + r.with
	case substring:
		made = string(bytes.ReplaceAll(text, r.text, []byte(r.with)))
	case regex:
		made = r.filled.fill(text, r.expr.FindSubmatchIndex(text))
	}
	if name, err = wire.ParseName(made); err != nil {
		return "", true, fmt.Errorf("rewrite: %s becomes no name: %w", s.written(), err)
	}
	return name, true, nil
}

// An answer changes names in answers that a regular expression finds.
type answer struct {
	value bool // in the data of records; otherwise owners
	expr  *regexp.Regexp
	with  template
}

// A nameRule asks for another name.
type nameRule struct {
	renaming
	auto    bool
	answers []answer
}

func (r *nameRule) apply(_ *dns.Query, t *turn) (bool, error) {
	name, ok, err := r.to(&t.subject)
	if !ok || err != nil {
		return ok, err
	}
	t.renamed = append(t.renamed, renamed{r, t.wire, []byte(name)})
	t.another = true
	t.reset([]byte(name))
	return true, nil
}

// A renamed is what a name rule did. from is in the client's own spelling for
// the first of them, once there is an answer.
type renamed struct {
	rule     *nameRule
	from, to []byte
}

// rename turns a name of the answer back: it is a wire.Rename.
func (t *turn) rename(name []byte, _ wire.Type, rdata bool) []byte {
	for i := len(t.renamed) - 1; i >= 0; i-- {
		name = t.renamed[i].back(name, rdata)
	}
	return name
}

// back turns a name back as far as one rule says. It is empty, which is no
// name, if the rule's options make none of it.
func (r *renamed) back(name []byte, rdata bool) []byte {
	changed := false
	for i := range r.rule.answers {
		a := &r.rule.answers[i]
		if a.value != rdata {
			continue
		}
		text := bytes.ToLower(wire.AppendText(nil, name))
		if found := a.expr.FindSubmatchIndex(text); found != nil {
			made, err := wire.ParseName(a.with.fill(text, found))
			if err != nil {
				return nil
			}
			name, changed = []byte(made), true
		}
	}
	switch {
	case changed || rdata && !r.rule.auto:
		return name
	case string(wire.AppendLower(nil, name)) == string(r.to):
		return r.from
	case r.rule.auto && r.rule.match == suffix:
		text := bytes.ToLower(wire.AppendText(nil, name))
		if head, ok := bytes.CutSuffix(text, []byte(r.rule.with)); ok {
			if made, err := wire.ParseName(string(head) + string(r.rule.text)); err == nil {
				return []byte(made)
			}
		}
	}
	return name
}
