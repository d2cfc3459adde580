package dns

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Proto is how a query came.
type Proto uint8

const (
	UDP Proto = iota
	TCP
)

func (p Proto) String() string { return [...]string{"udp", "tcp"}[p] }

// A Sender carries packets: one UDP socket, or one TCP connection.
type Sender interface {
	// Answered is called once for each query that was parked, from any goroutine,
	// when it is finished. It sends Reply to q.Peer from q.Local unless the
	// reply is empty, and must not keep q.
	Send(q *Query)
}

// A Result is the answer to a query, as far as the handlers have made it.
type Result struct {
	Answer wire.Answer // until the query is parked, its memory belongs to the transport
	RCode  wire.RCode
	AA, RA bool
	AD     bool
	TC     bool  // the answer came in truncated; sealing sets the flag where it truncates
	Err    error // why the answer is SERVFAIL; may be nil
	// Cacheable is set on an answer of another server, which a cache may keep
	// for as long as its TTLs allow. An answer from this server's own data is
	// looked up for each query, so that a change shows at once.
	Cacheable bool
}

// A Query is one question and its answer under way. It has one owner at a time:
// the reader, or, from the moment it is parked, the worker that resumes it.
type Query struct {
	wire.Request
	Result
	// Options is the EDNS options, as the RDATA of an OPT record, for those who
	// send the question on: the request's but for those between neighbours. It
	// may be exchanged for another slice.
	Options []byte
	// Timeout is how long the query may take once it is parked; zero is the
	// usual ten seconds. It is looked at when the query is parked.
	Timeout time.Duration

	Proto     Proto
	Peer      netip.AddrPort // IPv4 addresses are never mapped into IPv6
	Local     netip.AddrPort // the address that was asked
	Interface int            // index of the interface it came in by; zero if that was not asked for
	Start     time.Time      // when the packet, or its batch, was read
	Elapsed   time.Duration  // from then until the reply was sealed

	mux    *Mux
	mover  Sender
	shard  *metrics.Shard
	chain  *Chain
	at, by int // the step it stands at, and the one that answered
	// interceptor is the step whose InterceptDNS is running, -1 if none is. It
	// stands above at.
	interceptor int
	dropped     bool
	sealed      bool
	late        bool // it has left its reader: Start is not now any more

	parent, sub *Query
	depth       int
	floor       int // the step above which nothing is this query's: see Requery

	words    []any  // by StateKey
	instead  []byte // the question that took the place of the client's; nil if none did
	changed  int    // the step that did it
	replyOpt []byte // options for the reply's OPT

	packet   []byte
	room     [BufferSize]byte // of packet, unless it is larger
	own      []byte           // memory of the answer when none is lent
	wordRoom [4]any           // of words, unless there are more
}

// SetShard gives the query the shard that its reader holds while it serves and
// observes it.
func (q *Query) SetShard(s *metrics.Shard) { q.shard = s }

// Shard is where to count what is about q, by Counter.AddTo and Meter.Observe:
// the shard that its reader holds; nil if q has left it or never had one.
func (q *Query) Shard() *metrics.Shard {
	if q.late {
		return nil
	}
	return q.shard
}

// BufferSize is the size of a packet for which a query has room of its own: more
// than an Ethernet frame holds.
const BufferSize = 1536

// NewQuery makes a query for mover.
func NewQuery(mover Sender) *Query { return &Query{mover: mover} }

// Buffer gives n bytes to read a packet into.
func (q *Query) Buffer(n int) []byte {
	if n <= len(q.room) {
		return q.room[:n]
	}
	return make([]byte, n)
}

// Reset says that packet, which lies in Buffer, has come. It starts the
// query; Peer, Local and Interface are set by whoever read it.
func (q *Query) Reset(packet []byte, proto Proto, start time.Time) {
	q.packet, q.Proto, q.Start, q.Elapsed = packet, proto, start, 0
	q.Result = Result{Answer: q.Answer} // whose memory serves again
	q.Options, q.Timeout = nil, 0
	q.chain, q.at, q.by, q.interceptor, q.dropped, q.sealed = nil, 0, -1, -1, false, false
	q.instead, q.replyOpt, q.floor = nil, q.replyOpt[:0], 0
	q.parent, q.depth, q.late = nil, 0, false // sub stays: its memory serves again
}

// enter puts the query at the top of a chain.
func (q *Query) enter(c *Chain) {
	q.chain = c
	clear(q.words) // Observe has, but not for a further question's next one
	if q.words = q.wordRoom[:]; c.words > len(q.words) {
		q.words = make([]any, c.words)
	}
	q.words = q.words[:c.words]
}

// State is what the handler that asked its chain for w has left there on the
// query's way down; nil if nothing. It lives as long as the query walks this
// chain.
func (q *Query) State(w StateKey) any {
	if q.chain == nil {
		return nil // a view asks which chain it is going to be
	}
	return q.words[w]
}

// SetState leaves v, which is a pointer if it must not allocate, for the same
// handler's Resolve and FinishDNS.
func (q *Query) SetState(w StateKey, v any) { q.words[w] = v }

// AddReplyOption adds an option to the reply's OPT record, if the client takes
// one. Options that do not fit beside the records are left out.
func (q *Query) AddReplyOption(code uint16, data []byte) {
	q.replyOpt = wire.AppendOption(q.replyOpt, code, data)
}

// passedOn is the options of a request that are not between neighbours.
func passedOn(options []byte) []byte {
	keep := 0
	for code, data := range wire.Options(options) {
		if !wire.HopByHopOption(code) {
			keep += 4 + len(data)
		}
	}
	if keep == len(options) || keep == 0 {
		return options[:keep]
	}
	out := make([]byte, 0, keep)
	for code, data := range wire.Options(options) {
		if !wire.HopByHopOption(code) {
			out = wire.AppendOption(out, code, data)
		}
	}
	return out
}

// AddExtendedError adds an extended error (RFC 8914) to the reply: one of wire's EDE
// codes and a text for people, which may be empty.
func (q *Query) AddExtendedError(code uint16, text string) {
	var room [256]byte
	q.AddReplyOption(wire.OptionEDE, append(binary.BigEndian.AppendUint16(room[:0], code), text...))
}

// ReplyOptions is the options that AddReplyOption has added, one behind the other.
func (q *Query) ReplyOptions() []byte { return q.replyOpt }

// RemoveReplyOption takes the options of this code out of the reply again.
func (q *Query) RemoveReplyOption(code uint16) {
	rest := q.replyOpt
	q.replyOpt = q.replyOpt[:0]
	for len(rest) > 0 {
		n := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		if binary.BigEndian.Uint16(rest) != code {
			q.replyOpt = append(q.replyOpt, rest[:n]...)
		}
		rest = rest[n:]
	}
}

// Now is the time: when the packet was read, as long as the query is on its
// reader, and the clock's from then on.
func (q *Query) Now() time.Time {
	if q.late {
		return time.Now()
	}
	return q.Start
}

// Packet is the request as it came.
func (q *Query) Packet() []byte { return q.packet }

// Question is the question as it was spelled: name, type and class. It is the
// client's, or what SetQuestion put in its place.
func (q *Query) Question() []byte {
	if q.instead != nil {
		return q.instead
	}
	return q.Request.Question(q.packet)
}

// SetQuestion puts another question in the place of the client's for the
// handlers below the one that calls it. There must be no answer yet. name is in
// wire form, in any spelling; it says false, and changes nothing, if that is no
// name. Whoever calls it calls RestoreQuestion in FinishDNS.
func (q *Query) SetQuestion(name []byte, t wire.Type, c wire.Class) bool {
	if !q.Request.SetQuestion(name, t, c) {
		return false
	}
	q.changed = q.at
	question := append(make([]byte, 0, wire.MaxName+4), name...)
	question = binary.BigEndian.AppendUint16(question, uint16(t))
	q.instead = binary.BigEndian.AppendUint16(question, uint16(c))
	q.Answer.Reset(q.Answer.Buf, q.instead)
	return true
}

// RestoreQuestion takes the client's own question back, and writes what there
// is of an answer anew under it, with the names that rename gives; nil keeps
// them all. A record that cannot be written makes the answer SERVFAIL.
func (q *Query) RestoreQuestion(rename wire.Rename) {
	if q.instead == nil {
		return
	}
	q.instead = nil
	q.Request.RestoreQuestion(q.packet)
	old := q.Answer
	q.Answer.Reset(old.Buf[len(old.Buf):], q.Question())
	var err error
	old.Walk(func(s wire.Section, r wire.Record) bool {
		_, err = q.Answer.AppendRenamed(s, old.Buf, r.Owner, rename)
		return err == nil
	})
	q.Answer.MoveTo(old.Buf)
	if err != nil {
		q.Fail(wire.ServFail)
		q.Err = err
	}
}

// QuestionName is the question's name in wire form as it was spelled; the same
// length as Name.
func (q *Query) QuestionName() []byte {
	question := q.Question()
	return question[:max(0, len(question)-4)]
}

// Chain is the chain that the query walks; nil if it was answered before it
// came to one.
func (q *Query) Chain() *Chain { return q.chain }

// AnsweredBy names the directive that answered, "" if none did.
func (q *Query) AnsweredBy() string {
	if q.by < 0 || q.chain == nil {
		return ""
	}
	return q.chain.steps[q.by].name
}

// AnsweredStep is the place in Chain.Steps of the handler that answered, -1 if none did.
func (q *Query) AnsweredStep() int { return q.by }

// Fail takes back what there is of an answer and makes it this code alone.
func (q *Query) Fail(code wire.RCode) {
	q.Answer.Clear()
	q.RCode, q.AA, q.AD, q.TC, q.Cacheable = code, false, false, false, false
}

// Dropped says that the client gets no reply.
func (q *Query) Dropped() bool { return q.dropped }

// Reply is the sealed message; empty if there is none to send.
func (q *Query) Reply() []byte {
	if !q.sealed || q.dropped {
		return nil
	}
	return q.Answer.Buf
}

// keep moves the answer out of lent memory. Mostly there is nothing yet but the
// question, and what comes has room for an ordinary answer.
func (q *Query) keep() {
	body := q.Answer.Buf
	if cap(q.own) < len(body)+wire.MinUDPSize {
		q.own = make([]byte, 0, len(body)+wire.MinUDPSize)
	}
	q.Answer.Buf = append(q.own[:0], body...)
}
