package screen

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer].
func (s *Screen) ExplainDNS(q *dns.Query, _ dns.Verdict) (causes []dns.Cause) {
	text := ""
	switch s.reason(q) {
	case privateReverse:
		text = "reverse names of private addresses are not forwarded (private_reverse)"
	case local:
		text = "names in the zone are not forwarded (local)"
	case plainName:
		text = "names with one label are not forwarded (plain_names)"
	case fewLabels:
		text = fmt.Sprintf("names with fewer than %d labels are not forwarded (least_labels)", s.least)
	default:
		return nil
	}
	if q.RCode == wire.NoError {
		text += "; names below it have records here, so it exists"
	}
	return []dns.Cause{{Text: text}}
}

// ExplainFinish implements explain.FinishExplainer.
func (s *Screen) ExplainFinish(q *dns.Query) []dns.Cause {
	for code, data := range wire.Options(q.ReplyOptions()) {
		if code == wire.OptionEDE && q.Answer.Empty() &&
			len(data) > 2 && binary.BigEndian.Uint16(data) == wire.EDEBlocked {
			return []dns.Cause{{
				Text: "the answer of the upstream has a private address, which may be an attack on browsers (rebind)",
			}}
		}
	}
	var types []string
	for _, t := range s.drop {
		types = append(types, t.String())
	}
	return []dns.Cause{{Text: "records of the upstream are removed: drop " + strings.Join(types, " ")}}
}
