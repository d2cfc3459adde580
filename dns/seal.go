package dns

import (
	"math"
	"time"

	"github.com/seamark/seamark/wire"
)

const (
	// optLen is the size of an OPT record without options.
	optLen = 11
	// maxShrink is more than compression can make a record smaller: two names of
	// 255 bytes, the owner and the one in the RDATA, become pointers, and ten bytes
	// stay.
	maxShrink = 40
	// minRecord is the size of the smallest record: the root as the owner name, and
	// no RDATA.
	minRecord = 11
	// maxKept bounds the memory of a sub-query's answer that is reused: every reader
	// and every idle connection may hold eight of them.
	maxKept = 4 << 10
	// paddingBlock is the size to whose multiples replies are padded (RFC 8467 §4.1).
	paddingBlock = 468
)

// SizeLimit returns the largest size of the reply. A larger answer may still fit when
// it is compressed.
func (q *Query) SizeLimit() int {
	if q.Proto == UDP {
		return min(int(q.UDPSize), q.ReplyLimit)
	}
	return q.ReplyLimit
}

// ExceedsLimit reports whether the answer is too large for the reply even if it is
// compressed. Records that are added to it are cut off, and the client sees TC.
func (q *Query) ExceedsLimit() bool {
	a, limit := &q.Answer, q.SizeLimit()
	if len(a.Buf) <= limit {
		return false
	}

	records := 0
	for _, n := range a.Count {
		records += int(n)
	}
	return records*minRecord > limit || len(a.Buf) > maxShrink*limit
}

// seal makes the answer a message: it compresses a large answer, truncates it to the
// client's size, and adds the OPT record and the header. Every reply is sealed once.
func (q *Query) seal() {
	q.RestoreQuestion(nil) // in case its handler panicked
	if !q.EDNS && q.RCode > 15 {
		q.RCode = wire.ServFail // the upper bits would be in the OPT record (RFC 6891 §6.1.3)
	}

	a, limit, signature := &q.Answer, q.SizeLimit(), 0
	if q.EDNS {
		limit -= optLen
	}
	if q.Signature != nil {
		signature = q.Signature.Size
		limit -= signature
	}

	if len(a.Buf) > min(wire.MinUDPSize, limit) {
		q.compress(limit)
	}
	pad := q.EDNS && q.Proto == TCP && q.addConnectionOptions()
	options := q.replyOpt
	if len(a.Buf)+len(options) > limit {
		options = nil
	}
	tc := q.TC
	if len(a.Buf) > limit {
		tc = q.truncate(limit) || tc
	}

	questions, opt := 0, 0
	if len(q.Question()) > 0 {
		questions = 1
	}
	if q.EDNS {
		opt = 1
		q.appendOPT(options, pad, signature)
	}
	wire.PutHeader(a.Buf, q.ID, q.replyFlags(tc), questions, a.Count, opt)
	if q.Signature != nil {
		a.Buf = q.Signature.Append(a.Buf)
	}
	q.sealed = true
}

// replyFlags returns the second word of the reply's header.
func (q *Query) replyFlags(tc bool) uint16 {
	flags := wire.FlagQR | q.Flags&(15<<11|wire.FlagRD|wire.FlagCD) | uint16(q.RCode&15)
	if tc {
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
	return flags
}

// appendOPT appends the OPT record, with a padding option if pad is set. A signature of that size
// follows.
func (q *Query) appendOPT(options []byte, pad bool, signature int) {
	a, padding := &q.Answer, 0
	if pad {
		padding = paddingOf(len(a.Buf) + optLen + len(options) + signature)
	}

	a.Buf = wire.AppendOPT(a.Buf, q.RCode, q.DO, len(options)+padding)
	a.Buf = append(a.Buf, options...)
	if padding > 0 {
		var zeros [paddingBlock]byte // no padding is longer, without its header of 4 bytes
		a.Buf = wire.AppendOption(a.Buf, wire.OptionPadding, zeros[:padding-4])
	}
}

// addConnectionOptions adds the idle timeout to the reply if the client requests it,
// and reports whether the reply must be padded, because the query is encrypted and
// padded.
func (q *Query) addConnectionOptions() (pad bool) {
	idle := q.IdleTimeout > 0
	for code := range wire.Options(q.Request.Options(q.packet)) {
		switch {
		case code == wire.OptionKeepalive && idle:
			idle = false // a query may have thousands of these options
			const unit = 100 * time.Millisecond
			timeout := min(q.IdleTimeout/unit, math.MaxUint16)
			q.AddReplyOption(wire.OptionKeepalive, []byte{byte(timeout >> 8), byte(timeout)})
		case code == wire.OptionPadding:
			pad = q.Encrypted
		}
	}
	return pad
}

// paddingOf returns the size of a padding option that makes a message of this size a
// multiple of paddingBlock, or zero if there is no room for it.
func paddingOf(size int) int {
	const header = 4
	padding := header + (paddingBlock-(size+header)%paddingBlock)%paddingBlock
	if size+padding > wire.MaxMessage {
		return 0
	}
	return padding
}

// compress compresses the answer into the spare capacity of its buffer and moves the
// result to the start of the buffer. Records beyond limit are not compressed, since
// truncate removes them.
func (q *Query) compress(limit int) {
	a := &q.Answer
	old := a.Buf
	a.Compress(old[len(old):], limit)
	a.MoveTo(old)
}

// truncate removes records from the end until the answer fits into limit. It reports
// whether the reply needs the TC flag because the client needs a removed record (RFC
// 2181 §9): any record of the answer section; the SOA record of a negative answer or
// the NS records of a referral, and with DO the proofs of any answer (RFC 4035 §3.1);
// the glue of a referral (RFC 9471 §3).
func (q *Query) truncate(limit int) (tc bool) {
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

// Observe calls the observers of the query's chain. now is the time at which the
// reply was sealed; a batch may share one. Observe releases everything that belongs
// to a plan, and the memory of large sub-queries, since the query may be kept for a
// long time before the next packet.
func (q *Query) Observe(now time.Time) {
	q.Elapsed = now.Sub(q.Start)
	if q.chain != nil {
		for _, o := range q.chain.observers {
			o.ObserveDNS(q)
		}
	}
	if q.repeat.For > 0 {
		q.keepRepeated()
	}
	q.release()
	for q = q.sub; q != nil; q = q.sub {
		q.release()
		if cap(q.Answer.Buf) > maxKept {
			q.Answer.Buf = nil
		}
	}
}

// release drops the references to a plan.
func (q *Query) release() {
	q.mux, q.chain, q.trace, q.Err = nil, nil, nil, nil
	q.state, q.stateArray = nil, [len(q.stateArray)]any{}
}
