package forward

import (
	"bytes"
	"sync/atomic"

	"github.com/seamark/seamark/wire"
)

// maxOnlyWithout is the number of queries in a row that an upstream answers only without EDNS, after
// which EDNS is considered to work no more: another server may have its address.
const maxOnlyWithout = 16

// An ednsMemory knows whether an upstream answers queries with EDNS. Once it has answered one,
// the failure of others concerns their names alone: the upstream may stand before several servers.
type ednsMemory struct {
	works       atomic.Bool
	onlyWithout atomic.Int32 // queries in a row
	fails       avoidance
}

// learn processes the reply to a. It reports whether EDNS is avoided from now on.
func (m *ednsMemory) learn(a *attempt, r *reply) bool {
	usable := r.code == wire.NoError || r.code == wire.NXDomain
	switch {
	case a.udpSilent != 0: // a firewall may drop EDNS over UDP alone
	case a.edns && (usable || r.edns && !r.rejectsEDNS()):
		// A server before others may answer the health check itself, and fail to pass on EDNS.
		if !a.probe && !m.works.Load() {
			m.works.Store(true)
		}
		if m.onlyWithout.Load() != 0 {
			m.onlyWithout.Store(0)
		}
		m.fails.end() // a slow reply is no sign of a lost query

	case a.noEDNS && usable && len(a.request.options) == 0: // an option may be the reason
		if m.works.Load() && m.onlyWithout.Add(1) < maxOnlyWithout {
			return false
		}
		m.works.Store(false)
		return m.fails.extend()
	}
	return false
}

// mayFailWithEDNS reports whether r may be due to the OPT record of the query. A server that knows EDNS
// puts such a record into its errors, too (RFC 6891 §7).
func (r *reply) mayFailWithEDNS() bool { return r.rejectsEDNS() || r.fails() && !r.edns }

func (r *reply) fails() bool { return r.code == wire.ServFail || r.code == wire.Refused }

// rejectsEDNS reports whether the upstream may have rejected the request because it does not
// support EDNS: also with BADVERS, since version 0 is the only one (RFC 6891 §6.1.3).
func (r *reply) rejectsEDNS() bool {
	switch r.code {
	case wire.FormErr, wire.NotImp:
		return !r.edns
	}
	return r.code == wire.BadVers
}

// mayBeSentBack reports whether the OPT record of an error matters that may be that of the query:
// some servers and firewalls send the whole query back, with a response code. A server that knows
// EDNS may send an equal record.
func (m *ednsMemory) mayBeSentBack(r *reply) bool {
	return r.code == wire.FormErr || r.code == wire.NotImp || r.fails() && !m.works.Load()
}

// isSentBack reports whether a reply with the question has behind it what the query has.
func (a *attempt) isSentBack(packet []byte) bool {
	behind := wire.HeaderLen + len(a.request.question)
	return hasQuestion(packet) && bytes.Equal(packet[behind:], a.packet()[behind:])
}

// avoidsEDNS reports whether the next attempt at u is sent without EDNS, since those before had
// no reply: a firewall may drop EDNS. Where EDNS works, a lost packet is more likely, so the third
// round is sent without it, or the second if there is no third one.
func (x *exchange) avoidsEDNS(u *upstream) bool {
	round := x.nextIndex / len(x.candidates)
	due := 2
	if !u.edns.works.Load() || x.set.options.maxSends < 3*len(x.candidates) {
		due = 1
	}
	return u.scheme == schemeDNS && x.maySendWithoutEDNS() && (round == due || round > due && !u.edns.works.Load())
}
