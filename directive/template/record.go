package template

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

// defaultTTL is the TTL of an RR without one.
const defaultTTL = 3600

// A record is one RR of the Corefile. An RR that does not depend on the query,
// or only by its owner name, is parsed once.
type record struct {
	section  string // the option's name
	text     string
	template *template.Template // nil if the record is fixed
	fixed    zonefile.Record
	atQuery  bool // the owner is the query name
}

// An Error reports a record that could not be generated or parsed for a query.
type Error struct {
	Section string // answer, additional, authority or var
	Text    string // as in the Corefile
	Err     error
}

func (e *Error) Error() string { return fmt.Sprintf("template: %s %q: %v", e.Section, e.Text, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A malformed is an error for generated text that is not a record.
type malformed struct {
	text string
	err  error
}

func (m *malformed) Error() string { return fmt.Sprintf("generated %q: %v", m.text, m.err) }

// parseRecord parses an RR as far as possible without a query.
func (r *rule) parseRecord(section, text string) (*record, []error) {
	t, err := template.New("RR").Funcs(template.FuncMap{"parseInt": strconv.ParseUint}).Parse(text)
	if err != nil {
		return nil, []error{plain(err)}
	}

	rec := &record{section: section, text: text}
	nodes := t.Root.Nodes
	if rest, ok := behindName(nodes); ok {
		rec.atQuery = true
		rec.fixed, err = zonefile.ParseRecord("."+rest, wire.Root, defaultTTL)
	} else if plain, ok := plainText(nodes); ok {
		rec.fixed, err = zonefile.ParseRecord(plain, wire.Root, defaultTTL)
	} else {
		rec.template = t
		return rec, r.check(t.Root)
	}
	if err != nil {
		return nil, []error{err}
	}
	return rec, nil
}

// label returns the text of the template as the metrics of failures have it: that of its parsed form, as in CoreDNS.
func (r *record) label() string {
	if r.template == nil {
		return r.text
	}
	return r.template.Root.String()
}

// plain returns a template error without the prefix of the library.
func plain(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "template: ")) }

// plainText returns the text of nodes. It is not ok if they contain an action.
func plainText(nodes []parse.Node) (text string, ok bool) {
	for _, n := range nodes {
		part, ok := n.(*parse.TextNode)
		if !ok {
			return "", false
		}
		text += string(part.Text)
	}
	return text, true
}

// behindName returns the text after {{ .Name }}. It is not ok unless that is at
// the beginning and the only action.
func behindName(nodes []parse.Node) (text string, ok bool) {
	if len(nodes) == 0 {
		return "", false
	}
	first, ok := nodes[0].(*parse.ActionNode)
	if !ok || first.Pipe.String() != ".Name" {
		return "", false
	}
	text, ok = plainText(nodes[1:])
	return text, ok && strings.HasPrefix(text, " ")
}

// append adds the record to section s of q's answer.
func (r *record) append(q *dns.Query, d *data, s wire.Section) error {
	a := &q.Answer
	switch {
	case r.atQuery:
		r.fixed.AppendAs(a, wire.OwnerIsQuestion, s)
		return nil
	case r.template == nil:
		r.fixed.Append(a, s)
		return nil
	}

	var text strings.Builder
	if err := r.template.Execute(&text, d); err != nil {
		return plain(err)
	}
	if strings.TrimSpace(text.String()) == "" {
		return nil
	}

	record, err := zonefile.ParseRecord(text.String(), wire.Root, defaultTTL)
	if err != nil {
		return &malformed{text.String(), err}
	}
	record.Append(a, s)
	return nil
}
