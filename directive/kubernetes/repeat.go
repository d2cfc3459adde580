package kubernetes

import (
	"time"

	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/wire"
)

// Repetition allows to repeat answers to names outside its zones, which do not depend on the
// cluster, and its own answers. Answers of other handlers to names in its zones are not repeated,
// since the names may exist in the cluster from the next change on.
func (h *Handler) Repetition() dns.Repetition {
	return dns.Repetition{Allows: func(q *dns.Query) bool {
		return h.zone(q) == nil || q.AnsweredStep() >= 0 && q.Chain().Handler(q.AnsweredStep()) == any(h)
	}}
}

// repeatFor returns how long the answer is repeated unless it changes. The time bounds the age of what the
// Stamp leaves out, the serial of an SOA record.
func repeatFor(q *dns.Query) time.Duration {
	if q.Answer.Count[wire.Authority] > 0 {
		return 2 * time.Minute
	}
	return 10 * time.Minute
}

// stamp returns the Stamp of the data that the answer will depend on: those of the Service that
// the name is of or would be of, and of its namespace, or of the pod and its namespace. Only the
// serial in an SOA record depends on more. If the answer is not to be repeated, refused is the reason.
func (l *lookup) stamp() (s generation.Stamp, refused string) {
	switch {
	case l.generations == nil || !l.q.MayRepeat():
		return s, "no changes of the cluster are counted"
	case l.depth == 0:
		return s, "the zone's own records depend on all objects"
	case l.zone.reverse:
		return s, "a reverse name depends on all objects with the address"
	case l.zone.live != nil:
		return s, "other servers copy the zone, and its serial number has to be the present one"
	case l.near != nil:
		return s, "with zonal prefer the answer depends on the client"
	case l.wildcards:
		return s, "with wildcards the answer depends on more than one Service"
	}

	var key, ns []byte
	var room [wire.MaxName]byte
	name := l.q.Name()
	if l.depth > 1 {
		ns = name[l.q.LabelOffset(l.depth-2):l.q.LabelOffset(l.depth-1)]
	}
	switch string(l.label(l.depth - 1)) {
	case "dns":
		return s, "the name server's addresses are those of a Service or of the server"
	case "svc":
		if l.depth > 2 {
			key = name[l.q.LabelOffset(l.depth-3):l.q.LabelOffset(l.depth-1)]
			if !l.isOwnName() {
				key = index.EndpointsKey(room[:0], key)
			}
		}
	case "pod":
		if l.depth == 3 {
			if ip, ok := index.ParsePodLabel(l.label(0)); ok {
				key = index.PodKey(room[:0], ns, ip)
			}
		}
	default: // no such name
		ns = nil
	}
	s, ok := l.generations.Read(key, ns)
	if !ok {
		refused = "an object that the answer depends on is changing"
	}
	return s, refused
}

// isOwnName reports whether a name is a Service's, _PROTO or _PORT._PROTO of one. All others below
// depend on its endpoints.
func (l *lookup) isOwnName() bool {
	switch l.depth - 3 {
	case 0:
		return true
	case 1:
		return l.label(0)[0] == '_'
	case 2:
		return l.label(0)[0] == '_' && l.label(1)[0] == '_'
	}
	return false
}
