package dns

import (
	"time"

	"github.com/seamark/seamark/wire"
)

// optLen is the size of an OPT record without options.
const optLen = 11

// SizeLimit is the size that the whole reply may have. An answer that is larger
// before it is compressed may still fit; a handler need not write much more.
func (q *Query) SizeLimit() int {
	if q.Proto == TCP {
		return wire.MaxMessage
	}
	return min(int(q.UDPSize), wire.MaxUDPReply)
}

// seal makes the answer a message: compressed if it is large, cut to the
// client's size, with OPT and header. It happens once, for every reply.
func (q *Query) seal() {
	q.RestoreQuestion(nil) // a handler that panicked may have left it
	a := &q.Answer
	limit, opt := q.SizeLimit(), 0
	if q.EDNS {
		opt = 1
		limit -= optLen
	}
	if len(a.Buf) > min(wire.MinUDPSize, limit) {
		q.compress(limit)
	}
	options := q.replyOpt
	if len(a.Buf)+len(options) > limit {
		options = nil
	}
	flags := wire.FlagQR | q.Flags&(15<<11|wire.FlagRD|wire.FlagCD) | uint16(q.RCode&15)
	if q.cut(limit) || q.TC {
		flags |= wire.FlagTC
	}
	if q.AA {
		flags |= wire.FlagAA
	}
	if q.AD && (q.DO || q.Flags&wire.FlagAD != 0) { // RFC 6840 §5.8
		flags |= wire.FlagAD
	}
	if q.RA {
		flags |= wire.FlagRA
	}
	if opt == 1 {
		do := byte(0)
		if q.DO {
			do = 0x80
		}
		const size = wire.AdvertisedUDPSize
		a.Buf = append(a.Buf, 0, 0, byte(wire.TypeOPT), size>>8, size&0xFF, byte(q.RCode>>4), 0, do, 0, byte(len(options)>>8), byte(len(options)))
		a.Buf = append(a.Buf, options...)
	}
	questions := 0
	if len(q.Question()) > 0 {
		questions = 1
	}
	wire.PutHeader(a.Buf, q.ID, flags, questions, a.Count, opt)
	q.sealed = true
}

// cut takes from the end what is over limit. It says whether the client must
// hear of it, since something that it needs is gone (RFC 2181 §9): answers; the
// SOA record of a negative answer or the name servers of a referral, and with
// DO the proofs of any answer (RFC 4035 §3.1); the glue of a referral (RFC 9471
// §3). What else is lost from behind an answer is not missed.
func (q *Query) cut(limit int) (missed bool) {
	a := &q.Answer
	before := a.Count
	if a.Truncate(limit) {
		return true
	}
	if a.Count[wire.Authority] < before[wire.Authority] {
		return q.DO || before[wire.Answers] == 0
	}
	referral := !q.AA && !q.Cacheable && before[wire.Answers] == 0 && before[wire.Authority] > 0
	return referral && a.Count[wire.Additional] < before[wire.Additional]
}

// compress writes the message behind itself and moves it back, so that it still
// begins where its memory does. What is behind limit is going to be cut off.
func (q *Query) compress(limit int) {
	a := &q.Answer
	old := a.Buf
	a.Compress(old[len(old):], limit)
	a.MoveTo(old)
}

// Observe shows a finished query to the observers of its chain. now is when its
// reply was sealed; one reading of the clock may serve a batch. It ends the
// query: a slot that waits for its next packet must not hold an old plan, nor
// the memory of a large answer to a further question.
func (q *Query) Observe(now time.Time) {
	q.Elapsed = now.Sub(q.Start)
	if q.chain != nil {
		for _, o := range q.chain.observers {
			o.ObserveDNS(q)
		}
	}
	q.forget()
	for q = q.sub; q != nil; q = q.sub {
		q.forget()
		if max(cap(q.own), cap(q.Answer.Buf)) > maxKept {
			q.own, q.Answer.Buf = nil, nil
		}
	}
}

// forget lets go of what belongs to a plan.
func (q *Query) forget() {
	q.mux, q.chain, q.Err = nil, nil, nil
	clear(q.words)
	q.words = nil
}

// maxKept is how much memory of a further question's answer serves again: every
// slot and every idle connection may hold eight of them.
const maxKept = 4 << 10
