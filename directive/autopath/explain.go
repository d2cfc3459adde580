package autopath

import (
	"fmt"
	"strings"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer]. It shows the search path of the client, if the query
// may be the first of a search.
func (a *AutoPath) ExplainDNS(q *dns.Query, _ dns.Verdict) (causes []dns.Cause) {
	labels, ok := a.base(q)
	if !ok {
		text := "the query is not the first of a search: the name does not end with the first domain of a search path"
		switch {
		case q.Depth() > 0:
			return nil
		case q.Type != wire.TypeA && q.Type != wire.TypeAAAA:
			text = "only queries for addresses are part of a search"
		}
		return []dns.Cause{{Text: text}}
	}

	w := &walk{AutoPath: a, q: q, labels: labels}
	path := []string{wire.Name(q.Name()[q.LabelOffset(labels):]).String()}
	for suffix := range w.suffixes() {
		path = append(path, suffix.String())
	}

	base := wire.Name(string(q.Name()[:q.LabelOffset(labels)]) + "\x00")
	r, ok := wire.ReadRecord(q.Answer.Buf, q.Answer.RecordsOffset())
	if ok && q.AnsweredStep() >= 0 && r.Type == wire.TypeCNAME && q.RCode == wire.NoError {
		if target, _, ok := wire.ReadName(nil, q.Answer.Buf, r.RData); ok {
			causes = append(causes, dns.Cause{Text: "the search has found " + wire.Name(target).String()})
		}
	}
	text := fmt.Sprintf("the client searches for %s in %s (%s), and then for the name itself",
		base, strings.Join(path, " "), a.source)
	return append(causes, dns.Cause{Text: text})
}
