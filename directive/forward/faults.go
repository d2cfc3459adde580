package forward

import (
	"fmt"
	"slices"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/wire"
)

// A fault is what is wrong with a packet of an upstream. Of the packets that are not used it is
// the label reason of seamark_forward_discarded_total.
type fault string

const (
	valid fault = ""

	// Packets that are not a reply to the query, so that the reply may still arrive.
	unknownID     fault = "id"       // no waiting query has the ID
	wrongQuestion fault = "question" // the query with the ID has another question
	late          fault = "late"     // valid, but the query was answered before

	// Replies that are not used.
	malformed fault = "malformed"
	wrongCase fault = "case"    // the upstream preserves letter case, and this is another one
	unrelated fault = "records" // no record belongs to the query

	// Replies of which a part is used.
	oversize    fault = "size"   // larger than the requested size
	extraRecord fault = "record" // a record of a valid reply was dropped

	// Replies that are counted by their response code.
	failsWithEDNS    fault = "edns"                   // an error that may be due to the OPT record of the query
	truncated        fault = "tc"                     // over UDP
	stillCut         fault = "tc stream"              // over a connection
	badCookie        fault = "cookie"                 // the upstream wants a cookie (RFC 7873), and queries have none
	noQuestion       fault = "header"                 // the header alone, perhaps with an OPT record
	referral         fault = "referral"               // to other servers, though recursion is requested
	resolverReferral fault = "referral of a resolver" // that offers recursion
	empty            fault = "empty"                  // and the server neither has the zone nor offers recursion
	unfinished       fault = "chain"                  // a CNAME chain that leads to another server
	failoverCode     fault = "failover"               // a response code of the option failover
)

// A step is what an exchange does after a reply.
type step uint8

const (
	accept       step = iota // the reply, of which the parser has kept what is good, is the result
	askTarget                // accept, and ask this server for the target of the last CNAME record
	withoutEDNS              // ask the upstream again without EDNS
	overTCP                  // ask the upstream again over TCP
	nextUpstream             // ask the next upstream, or wait for one that has been asked
	fail                     // now, with an extended error
)

// nextSteps has the steps for each fault of a reply. The first that is possible is taken. The
// page of the directive has the same table, and faultcases_test.go a case for each row.
var nextSteps = map[fault][]step{
	valid:            {accept},
	failsWithEDNS:    {withoutEDNS, nextUpstream, accept},
	truncated:        {overTCP, accept},
	stillCut:         {nextUpstream, accept},
	malformed:        {overTCP, nextUpstream, fail},
	unrelated:        {overTCP, nextUpstream, fail},
	wrongCase:        {overTCP, nextUpstream, fail},
	wrongQuestion:    {nextUpstream, fail}, // over a connection, where it cannot be forged
	badCookie:        {overTCP, nextUpstream, fail},
	noQuestion:       {nextUpstream, accept},
	referral:         {nextUpstream, fail},
	resolverReferral: {nextUpstream, accept},
	empty:            {nextUpstream, accept},
	unfinished:       {askTarget}, // another upstream for the zone would lack it, too
	failoverCode:     {nextUpstream, accept},
}

// faultOf returns the fault of an outcome that is no error.
func (x *exchange) faultOf(o *outcome) fault {
	r := o.reply
	switch {
	case r == nil:
		return o.fault
	case o.edns && (r.rejectsEDNS() || x.maySendWithoutEDNS() && r.mayFailWithEDNS()):
		return failsWithEDNS
	case r.truncated && o.useStream:
		return stillCut
	case r.truncated:
		return truncated
	case r.code == wire.BadCookie:
		return badCookie
	case r.fault != valid:
		return r.fault
	case slices.Contains(x.set.options.failover, r.code):
		return failoverCode
	}
	return valid
}

// keep keeps the reply of o for the case that no better one arrives.
func (x *exchange) keep(o *outcome, f fault) {
	if slices.Contains(nextSteps[f], fail) {
		x.faulty = &faultError{o.upstream, f}
	}

	switch f {
	case truncated:
		x.useStream = true // also for other upstreams
		x.fallback = o
	case failsWithEDNS:
		if !o.reply.rejectsEDNS() || !x.maySendWithoutEDNS() {
			x.fallback = o
		}
	case stillCut:
		x.fallback = o
	case referral:
		x.history(o.upstream).unusable = true
	case malformed, unrelated, wrongQuestion, badCookie:
		if o.useStream { // over UDP it may be forged
			x.history(o.upstream).unusable = true
		}
	case noQuestion, resolverReferral, empty, failoverCode:
		if x.fallback == nil || !x.fallback.reply.truncated {
			x.fallback = o
		}
	}
}

// take takes a step after o. It returns an attempt to send now, if any, or reports that the
// exchange is done. Without both, it waits for the attempts in flight. ok is false if the step is not possible.
func (x *exchange) take(s step, o *outcome) (next *attempt, done, ok bool) {
	switch s {
	case accept, askTarget: // Forward asks for the target
		x.setReply(o)
		return nil, true, true

	case withoutEDNS:
		if !x.maySendWithoutEDNS() {
			return nil, false, false
		}
		x.repairs++
		next = x.newAttempt(o.upstream)
		next.noEDNS, next.useStream = true, o.useStream
		return next, false, true

	case overTCP:
		if o.useStream || !x.mayRepair() {
			return nil, false, false
		}
		x.deadline = min(x.deadline, clock.Now()+max(x.set.options.readTimeout, minDialTimeout)) // TCP may be blocked
		x.repairs++
		next = x.newAttempt(o.upstream)
		next.useStream = true
		return next, false, true

	case nextUpstream:
		x.history(o.upstream).replied = true
		if x.nextIndex < len(x.candidates) && x.maySend() {
			return x.nextAttempt(), false, true
		}
		return nil, false, x.inFlight > 0
	}

	x.upstream, x.used = o.upstream, o.attempt
	x.setError(x.faulty, wire.EDENetworkError)
	if x.fallback != nil {
		x.setReply(x.fallback)
	}
	return nil, true, true
}

// maySendWithoutEDNS reports whether the request may be sent without EDNS: a client that
// requests DNSSEC records needs it (RFC 6891 §6.2.2).
func (x *exchange) maySendWithoutEDNS() bool { return !x.do && x.mayRepair() }

// mayRepair reports whether a fault of a reply may lead to another attempt at the same upstream.
func (x *exchange) mayRepair() bool { return x.sent < min(maxSends, x.set.options.maxSends+maxRepairs) }

// A faultError is the error of a query whose reply cannot be used.
type faultError struct {
	upstream *upstream
	fault    fault
}

func (e *faultError) Error() string {
	text := map[fault]string{
		malformed:     "malformed reply",
		unrelated:     "no record of the reply belongs to the query",
		wrongCase:     "name in another letter case than in the query",
		wrongQuestion: "no reply to the question",
		badCookie:     "the upstream wants a DNS cookie",
		referral:      "referral to other servers: the upstream does not resolve the name",
	}[e.fault]
	return fmt.Sprintf("%s: %s", e.upstream, text)
}
