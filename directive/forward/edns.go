package forward

import (
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

// withoutEDNSFor is how long queries are sent without EDNS to an upstream where EDNS has never
// worked.
const withoutEDNSFor = 10 * time.Minute

// An ednsMemory knows whether an upstream answers queries with EDNS. Once it has answered one,
// the failure of others concerns their names alone: the upstream may stand before several servers.
type ednsMemory struct {
	works        atomic.Bool
	withoutUntil atomic.Int64 // of package clock
}

// avoids reports whether queries are sent without EDNS.
func (m *ednsMemory) avoids() bool { return m.withoutUntil.Load() >= int64(clock.Now()) }

// learn processes the reply to a.
func (m *ednsMemory) learn(a *attempt, r *reply) {
	usable := r.code == wire.NoError || r.code == wire.NXDomain
	switch {
	case a.edns && (usable || r.edns && !r.rejectsEDNS()):
		if !m.works.Load() {
			m.works.Store(true)
		}
		if m.withoutUntil.Load() != 0 { // a slow reply is no sign of a lost query
			m.withoutUntil.Store(0)
		}
	case a.noEDNS && usable && len(a.request.options) == 0 && !m.works.Load(): // an option may be the reason
		m.withoutUntil.Store(int64(clock.Now() + withoutEDNSFor))
	}
}

// mayFailWithEDNS reports whether r may be due to the OPT record of the query.
func (u *upstream) mayFailWithEDNS(r *reply) bool {
	fails := r.code == wire.ServFail || r.code == wire.Refused
	return r.rejectsEDNS() || fails && !u.edns.works.Load()
}

// rejectsEDNS reports whether the upstream may have rejected the request because it does not
// support EDNS: also with BADVERS, since version 0 is the only one (RFC 6891 §6.1.3).
func (r *reply) rejectsEDNS() bool {
	switch r.code {
	case wire.FormErr, wire.NotImp:
		return !r.edns
	}
	return r.code == wire.BadVers
}

// avoidsEDNS reports whether the next attempt at u is sent without EDNS, since those before had
// no reply: a firewall may drop EDNS. Where EDNS works, a lost packet is more likely.
func (x *exchange) avoidsEDNS(u *upstream) bool {
	round := x.nextIndex / len(x.candidates)
	return u.scheme == schemeDNS && x.maySendWithoutEDNS() && (round >= 1 && !u.edns.works.Load() || round == 2)
}
