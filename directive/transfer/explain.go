package transfer

import (
	"fmt"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// ExplainDNS implements [dns.Explainer].
func (t *Transfer) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	if !q.Type.IsTransfer() {
		return nil
	}
	_, hasVersion := clientSerial(q.Packet())
	text := "the zone is transferred"
	switch u := t.find(wire.Name(q.Name())); {
	case u == nil:
		text = "the name is in none of the zones of the directive"
	case !u.permits(q.Peer.Addr()):
		text = fmt.Sprintf("the option to does not permit %s", q.Peer.Addr())
	case !q.Streams() && q.Type == wire.TypeAXFR:
		text = "zone transfers need TCP"
	case t.version(wire.Name(q.Name())) == nil:
		text = "no directive has a zone with this name"
	case q.Type == wire.TypeIXFR && !hasVersion:
		text = "the query has no SOA record of the client's version"
	}
	return []dns.Cause{{Text: text}}
}
