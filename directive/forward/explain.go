package forward

import (
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer]. The exchanges with upstreams explain the others.
func (f *Forward) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	text, r := "", newRequest(q, false)
	switch inside, excepted := f.zonesOf(q); {
	case !inside:
		text = "only names in " + wire.JoinNames(f.from, " ") + " are forwarded"
	case excepted != "":
		text = "names in " + excepted.String() + " are not forwarded (except)"
	case v == dns.Done && (q.Type.IsTransfer()):
		text = "zone transfers are not forwarded"
	case v == dns.Wait && f.set.unanswered.silent(f.set.hashOf(q.Name(), q.Type), &r):
		text = errUnanswered.Error() + ", so it is not asked for now (unanswered)"
	default:
		return nil
	}
	return []dns.Cause{{Text: text}}
}
