package template

import (
	"strconv"

	"github.com/seamark/seamark/directive/internal/expression"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// data is the value that templates are executed with. The reference page
// documents its names.
type data struct {
	Zone     string
	Name     string
	Regex    string
	Match    []string
	Group    map[string]string
	Class    string
	Type     string
	Message  *message
	Question *question
	Remote   string
	Var      map[string]any

	q        *dns.Query
	metadata expression.Metadata
}

// A message is the header and the question of the query.
type message struct {
	Id                 uint16
	Response           bool
	Opcode             int
	Authoritative      bool
	Truncated          bool
	RecursionDesired   bool
	RecursionAvailable bool
	Zero               bool
	AuthenticatedData  bool
	CheckingDisabled   bool
	Rcode              int
	Question           []question
}

// A question is the query's question, with the name as the client spelled it.
type question struct {
	Name   string
	Qtype  uint16
	Qclass uint16
}

// Meta returns the metadata value for a key, or "".
func (d *data) Meta(key string) string { return d.metadata(d.q, key) }

// scope returns the values for expressions.
func (d *data) scope() expression.Scope { return expression.Scope{Groups: d.Group, Vars: d.Var} }

// holds reports whether the rule's scoped conditions are true.
func (m *match) holds(q *dns.Query) bool {
	for _, e := range m.rule.scoped {
		v, _ := e.ValueIn(q, m.data.scope())
		if holds, _ := v.(bool); !holds { // an error counts as false
			return false
		}
	}
	return true
}

// fill creates the data for the templates of a rule. If a var cannot be
// evaluated it answers SERVFAIL and returns false.
func (t *Template) fill(q *dns.Query, m *match) bool {
	r, err := t.prepare(q, m)
	if err != nil {
		t.fail(q, m, r, err)
	}
	return err == nil
}

// prepare creates the data for the templates of a rule. With an error it returns the var
// that cannot be evaluated.
func (t *Template) prepare(q *dns.Query, m *match) (*record, error) {
	name := string(wire.AppendText(nil, q.Name()))
	asked := question{string(wire.AppendText(nil, q.QuestionName())), uint16(q.Type), uint16(q.Class)}
	flag := func(bit uint16) bool { return q.Flags&bit != 0 }
	const zero = 1 << 6

	m.data = &data{
		Zone: m.zone.text, Name: name, Regex: ".*", Match: []string{name}, Group: map[string]string{},
		Class: q.Class.String(), Type: q.Type.String(), Remote: q.Peer.Addr().Unmap().WithZone("").String(),
		Message: &message{
			Id: q.ID, Opcode: int(q.Flags >> 11 & 15), Authoritative: flag(wire.FlagAA), Truncated: flag(wire.FlagTC),
			RecursionDesired: flag(wire.FlagRD), RecursionAvailable: flag(wire.FlagRA), Zero: flag(zero),
			AuthenticatedData: flag(wire.FlagAD), CheckingDisabled: flag(wire.FlagCD), Rcode: int(q.Flags & 15),
			Question: []question{asked},
		},
		Question: &asked,

		q: q, metadata: t.metadata,
	}

	if m.regex != nil {
		m.data.Regex, m.data.Match = m.regex.String(), m.regex.FindStringSubmatch(name)
	}
	for i, part := range m.data.Match {
		m.data.Group[strconv.Itoa(i)] = part
		if m.regex == nil {
			continue
		}
		if group := m.regex.SubexpNames()[i]; group != "" {
			m.data.Group[group] = part
		}
	}

	if len(m.rule.vars) > 0 {
		m.data.Var = map[string]any{}
	}
	for _, v := range m.rule.vars {
		value, err := v.value.ValueIn(q, m.data.scope())
		if err != nil {
			return v.record, err
		}
		m.data.Var[v.name] = value
	}
	return nil, nil
}
