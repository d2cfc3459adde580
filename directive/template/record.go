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

// defaultTTL is that of an RR which gives none.
const defaultTTL = 3600

// A record is one RR of the Corefile. Most are always the same, or are so but
// for the question's name at their front: those are read once.
type record struct {
	section string // as the Corefile calls it
	text    string
	making  *template.Template // nil if the record is fixed
	fixed   zonefile.Record
	named   bool // the owner is the question's name
}

// An Error is why a query could not be answered: a record that could not be
// made, or not be read.
type Error struct {
	Section string // answer, additional, authority or var
	Text    string // as it stands in the Corefile
	Err     error
}

func (e *Error) Error() string { return fmt.Sprintf("template: %s %q: %v", e.Section, e.Text, e.Err) }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// A malformed is an Err of text that was made and is no record.
type malformed struct {
	text string
	err  error
}

func (m *malformed) Error() string { return fmt.Sprintf("made %q: %v", m.text, m.err) }

// parseRecord reads an RR, and all of it that can be read now.
func (r *rule) parseRecord(section, text string) (*record, []error) {
	t, err := template.New("RR").Funcs(template.FuncMap{"parseInt": strconv.ParseUint}).Parse(text)
	if err != nil {
		return nil, []error{plain(err)}
	}
	rec := &record{section: section, text: text}
	nodes := t.Root.Nodes
	if rest, ok := behindName(nodes); ok {
		rec.named = true
		rec.fixed, err = zonefile.ParseRecord("."+rest, wire.Root, defaultTTL)
	} else if plain, ok := plainText(nodes); ok {
		rec.fixed, err = zonefile.ParseRecord(plain, wire.Root, defaultTTL)
	} else {
		rec.making = t
		return rec, r.check(t.Root)
	}
	if err != nil {
		return nil, []error{err}
	}
	return rec, nil
}

// plain is an error of the library without its name.
func plain(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "template: ")) }

// plainText is what nodes come out as if there is no action in them.
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

// behindName is the text behind {{ .Name }}, if that alone is at the front and
// nothing else is an action.
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
	case r.named:
		f := &r.fixed
		a.Buf = wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, f.Type, f.TTL, len(f.RData))
		class := len(a.Buf) - 8
		a.Buf[class], a.Buf[class+1] = byte(f.Class>>8), byte(f.Class)
		a.AppendString(s, f.RData, 1)
		return nil
	case r.making == nil:
		r.fixed.Append(a, s)
		return nil
	}
	var made strings.Builder
	if err := r.making.Execute(&made, d); err != nil {
		return plain(err)
	}
	if strings.TrimSpace(made.String()) == "" {
		return nil
	}
	record, err := zonefile.ParseRecord(made.String(), wire.Root, defaultTTL)
	if err != nil {
		return &malformed{made.String(), err}
	}
	record.Append(a, s)
	return nil
}
