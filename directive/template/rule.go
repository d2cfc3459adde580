package template

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/expression"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A rule is one template directive.
type rule struct {
	text, at   string // the directive's name and arguments, and its file and line
	class      wire.Class
	qtype      wire.Type
	zones      wire.ZoneMap[*zone]
	regexes    []*regexp.Regexp         // empty matches every name
	conditions []*expression.Expression // evaluated before the regular expressions
	scoped     []*expression.Expression // conditions with groups or vars, evaluated after vars
	vars       []variable
	records    [3][]*record // by wire.Section
	rcode      wire.RCode
	extended   *extended
	through    config.Fallthrough
	dynamic    bool // a record is generated for each query
}

type zone struct{ text string }

// A variable is a var. Its failures are counted for the record.
type variable struct {
	name  string
	value *expression.Expression
	*record
}

// An extended is an ederror option.
type extended struct {
	code   uint16
	reason string
}

// sections are the option names, by wire.Section.
var sections = [...]string{wire.Answers: "answer", wire.Authority: "authority", wire.Additional: "additional"}

// identifier matches names that templates can use after a dot.
var identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// parse reads one template directive.
func (t *Template) parse(b *config.Block, d corefile.Directive) (*rule, error) {
	r := &rule{
		text: strings.Join(append([]string{d.Text}, d.Words()...), " "), at: fmt.Sprintf("%s:%d", d.File, d.Line),
	}
	errs := []error{d.Arity(2, -1)}
	if len(d.Args) >= 2 {
		errs = append(errs, r.parseArgs(b, d))
	}

	options := []corefile.Option{
		r.through.Option(),
		{Usage: "match REGEX...", Set: corefile.Append(&r.regexes, regexp.Compile)},
		{Usage: "expr EXPRESSION...", Set: func(o corefile.Directive) error { return t.addCondition(b, r, o) }},
		{Usage: "var NAME EXPRESSION...", Set: func(o corefile.Directive) error { return t.addVar(b, r, o) }},
		{Usage: "rcode CODE", Set: func(o corefile.Directive) error {
			var ok bool
			if r.rcode, ok = wire.ParseRCode(o.Args[0].Text); !ok {
				return o.Errorf("want a response code, like NXDOMAIN or REFUSED, got %q", o.Args[0].Text)
			}
			return nil
		}},
		{Usage: "ederror CODE [REASON]", Set: r.parseExtended},
		// CoreDNS had this option. CNAME records are always followed.
		{Usage: "upstream [ADDRESS...]", Set: func(corefile.Directive) error { return nil }},
	}

	var lines []line
	for s, name := range sections {
		options = append(options, corefile.Option{Usage: name + " RR...", Set: func(o corefile.Directive) error {
			lines = append(lines, line{wire.Section(s), o})
			return nil
		}})
	}
	errs = append(errs, d.Options(options...))
	for _, l := range lines { // after all groups and vars are known
		errs = append(errs, r.parseRecords(l))
	}
	return r, errors.Join(errs...)
}

// addCondition adds the expression of the option expr to r.
func (t *Template) addCondition(b *config.Block, r *rule, o corefile.Directive) error {
	e, err := expression.Condition(strings.Join(o.Words(), " "), t.names(r))
	switch {
	case err != nil:
		return o.Errorf("%w", err)
	case e.Scoped():
		r.scoped = append(r.scoped, e)
	default:
		r.conditions = append(r.conditions, e)
	}
	warn(b, o, e)
	return nil
}

// warn records the warning about the expression of an option.
func warn(b *config.Block, o corefile.Directive, e *expression.Expression) {
	if e.Warning() != nil {
		b.Warn(o.Errorf("%w", e.Warning()))
	}
}

// addVar adds the variable of the option var to r.
func (t *Template) addVar(b *config.Block, r *rule, o corefile.Directive) error {
	name := o.Args[0].Text
	if !identifier.MatchString(name) {
		return o.Errorf("want a name of letters, digits and _, got %q", name)
	}
	if expression.Reserved(name) {
		return o.Errorf("the name %s has a meaning in expressions: choose another", name)
	}
	if slices.Contains(t.names(r).Vars, name) {
		return o.Errorf("already given: %s", name)
	}

	o.Args = o.Args[1:]
	text := strings.Join(o.Words(), " ")
	e, err := expression.Value(text, t.names(r))
	r.vars = append(r.vars, variable{name, e, &record{section: "var", text: text}})
	if err != nil {
		return o.Errorf("%w", err)
	}
	warn(b, o, e)
	return nil
}

// names returns the names for the next expression of a rule.
func (t *Template) names(r *rule) expression.Names {
	n := expression.Names{Metadata: t.known, Groups: true}
	for _, v := range r.vars {
		n.Vars = append(n.Vars, v.name)
	}
	return n
}

// A line is an answer, additional or authority option.
type line struct {
	section wire.Section
	corefile.Directive
}

func (r *rule) parseArgs(b *config.Block, d corefile.Directive) error {
	var errs []error
	var ok bool
	if r.class, ok = wire.ParseClass(d.Args[0].Text); !ok {
		errs = append(errs, d.Errorf("want a class, like IN or ANY, got %q", d.Args[0].Text))
	}
	if r.qtype, ok = wire.ParseType(d.Args[1].Text); !ok {
		errs = append(errs, d.Errorf("want a type, like A, TYPE65280 or ANY, got %q", d.Args[1].Text))
	}

	d.Args = d.Args[2:]
	zones, err := b.ZonesOr(d)
	for _, z := range zones {
		r.zones.Set(z, &zone{z.String()})
	}
	return errors.Join(append(errs, err)...)
}

func (r *rule) parseExtended(o corefile.Directive) error {
	words := o.Words()
	code, err := strconv.ParseUint(words[0], 10, 16)
	if err != nil {
		return o.Errorf("want 0..65535, got %q", words[0])
	}
	r.extended = &extended{code: uint16(code)}
	if len(words) == 2 {
		r.extended.reason = words[1]
	}
	return nil
}

func (r *rule) parseRecords(l line) error {
	var errs []error
	for _, word := range l.Words() {
		record, wrong := r.parseRecord(sections[l.section], word)
		for _, err := range wrong {
			errs = append(errs, l.Errorf("%q: %w", word, err))
		}
		if len(wrong) > 0 {
			continue
		}
		r.dynamic = r.dynamic || record.template != nil
		r.records[l.section] = append(r.records[l.section], record)
	}
	return errors.Join(errs...)
}

// extent returns where r answers. A rule for one type passes the others on.
func (r *rule) extent(use corefile.Directive) config.Extent {
	every := r.qtype == wire.TypeANY && (r.class == wire.ClassIN || r.class == wire.ClassANY)
	return config.Extent{
		Use: use, Zones: r.zones.Zones(), Through: &r.through, Option: "fallthrough", Open: !every,
	}
}

// zone returns the longest zone of the rule that contains the query name, or nil.
func (r *rule) zone(q *dns.Query) *zone {
	z, _ := r.zones.Longest(&q.Request, 0)
	return z
}

// appliesTo reports whether the rule has q's class and type.
func (r *rule) appliesTo(q *dns.Query) bool {
	return (r.class == q.Class || r.class == wire.ClassANY || q.Class == wire.ClassANY) &&
		(r.qtype == q.Type || r.qtype == wire.TypeANY || q.Type == wire.TypeANY)
}

// A match is a query that a rule answers.
type match struct {
	rule  *rule
	zone  *zone
	regex *regexp.Regexp // nil if the rule has none
	data  *data          // nil if the rule has no dynamic record and no scoped condition
}

// matches reports whether q fulfils the rule's regular expressions and the
// conditions that are not scoped.
func (m *match) matches(q *dns.Query) bool {
	for _, e := range m.rule.conditions {
		if holds, _ := e.True(q); !holds { // an error counts as false
			return false
		}
	}
	if len(m.rule.regexes) == 0 {
		return true
	}

	var buf [wire.MaxName + 1]byte
	name := wire.AppendText(buf[:0], q.Name())
	for _, regex := range m.rule.regexes {
		if regex.Match(name) {
			m.regex = regex
			return true
		}
	}
	return false
}
