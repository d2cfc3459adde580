package forward

import (
	"net/netip"

	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

// The exchanges for one name and type share maxSimilar places to send and maxWaitingSimilar to
// wait, so that a client that varies its queries, such as by a client subnet, keeps no other
// from an answer for that name:
//
//	send: a client may begin another exchange while it has fewer than there are free places
//	wait: when all places are taken, an exchange takes one of the client that has most
//
// The one that may send next is the first of the client that has fewest. An exchange that
// several clients wait for counts for the one that has fewest.

// count returns how many exchanges send and wait, in all and of a client.
func (first *exchange) count(client netip.Addr) (all, own struct{ sending, waiting int }) {
	for x := first; x != nil; x = x.nextSimilar {
		switch {
		case x.begun:
			all.sending++
		default:
			all.waiting++
		}
		if x.counted == client && x.begun {
			own.sending++
		} else if x.counted == client {
			own.waiting++
		}
	}
	return all, own
}

// mayBegin reports whether a client may begin another exchange.
func (first *exchange) mayBegin(client netip.Addr) bool {
	all, own := first.count(client)
	return own.sending < maxSimilar-all.sending
}

// shareWith counts x for another client that waits for it, if that one has fewer exchanges.
func (x *exchange) shareWith(first *exchange, addr netip.Addr) {
	client := slots.Client(addr)
	if client == x.counted {
		return
	}
	_, has := first.count(x.counted)
	if _, own := first.count(client); own.sending+own.waiting < has.sending+has.waiting {
		x.counted = client
	}
}

// admit returns how x begins beside the exchanges from first on, to which it does not belong
// yet, and the one whose place it takes, if it takes one.
func (x *exchange) admit(first *exchange) (begin func(), displaced *exchange) {
	if first.mayBegin(x.counted) {
		x.begun = true
		return x.start, nil
	}

	all, own := first.count(x.counted)
	if all.waiting < maxWaitingSimilar {
		return x.startTimer, nil
	}
	if displaced = first.lastOfLargest(own.waiting + 1); displaced == nil {
		return x.refuse, nil
	}
	displaced.begun = true // it ends, and does not wait any more
	return x.startTimer, displaced
}

// lastOfLargest returns the last waiting exchange of the client that has most, if it has more
// than a number.
func (first *exchange) lastOfLargest(most int) (last *exchange) {
	waiting := map[netip.Addr]int{}
	for x := first; x != nil; x = x.nextSimilar {
		if !x.begun {
			waiting[x.counted]++
		}
	}
	for x := first; x != nil; x = x.nextSimilar {
		if n := waiting[x.counted]; !x.begun && (n > most || n == most && last != nil && x.counted == last.counted) {
			last, most = x, n
		}
	}
	return last
}

// refuse ends an exchange without a place.
func (x *exchange) refuse() {
	x.setError(errSimilar, wire.EDENoReachable)
	x.finish()
}

// next returns an exchange that may begin now, nil if there is none.
func (first *exchange) next() (found *exchange) {
	fewest := maxSimilar
	for x := first; x != nil; x = x.nextSimilar {
		if x.begun {
			continue
		}
		if _, own := first.count(x.counted); own.sending < fewest && first.mayBegin(x.counted) {
			found, fewest = x, own.sending
		}
	}
	return found
}
