package rewrite

import (
	"encoding/binary"
	"fmt"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer]. It applies the rules once more to the client's
// question, and names the rules that match.
func (rw *Rewrite) ExplainDNS(q *dns.Query, _ dns.Verdict) (causes []dns.Cause) {
	question := q.Request.Question(q.Packet())
	name := clientName(q)
	kind := question[len(name):]
	t := newTransaction().(*transaction)
	t.reset(wire.AppendLower(nil, name))
	t.typ, t.class = wire.Type(binary.BigEndian.Uint16(kind)), wire.Class(binary.BigEndian.Uint16(kind[2:]))

	options := q.Options // rules change them
	defer func() { q.Options = options }()
	if applied, _ := q.State(rw.stateKey).(*transaction); applied != nil && applied.optionsChanged {
		q.Options = applied.options
	}

	for i := range rw.rules {
		r := &rw.rules[i]
		typ, class := t.typ, t.class
		renamed := len(t.renamed)
		matched, err := r.apply(q, t)

		text := fmt.Sprintf("%s matches (%s)", r.text, r.at)
		switch {
		case err != nil:
			return append(causes, dns.Cause{Text: fmt.Sprintf("%s fails (%s): %v", r.text, r.at, err)})
		case !matched:
			continue
		case len(t.renamed) > renamed:
			text += ": the name is now " + wire.Name(t.wire).String()
		case t.typ != typ:
			text += ": the type is now " + t.typ.String()
		case t.class != class:
			text += ": the class is now " + t.class.String()
		}
		if causes = append(causes, dns.Cause{Text: text}); r.stop {
			break
		}
	}

	if causes == nil {
		causes = []dns.Cause{{Text: "no rule matches"}}
	}
	return causes
}
