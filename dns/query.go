package dns

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Proto is the transport protocol over which a query was received.
type Proto uint8

const (
	UDP Proto = iota
	TCP
)

func (p Proto) String() string { return [...]string{"udp", "tcp"}[p] }

// A Sender sends replies: it is a UDP socket or a TCP connection.
type Sender interface {
	// Send is called once for each parked query, from any goroutine, when the
	// query is finished. It sends Reply to q.Peer from q.Local, unless the reply is
	// empty, and must not keep q.
	Send(q *Query)
}

// A Result is the answer to a query, as far as the handlers have made it.
type Result struct {
	Answer wire.Answer // until the query is parked, its memory belongs to the transport
	Status
}

// A Status is what a Result has besides the records. It is zero at the top of a chain.
type Status struct {
	RCode  wire.RCode
	AA, RA bool
	AD     bool
	TC     bool // the answer came in truncated; sealing sets the flag where it truncates
	// Cacheable is set on an answer of another server, which a cache may keep
	// for as long as its TTLs allow. An answer from this server's own data is
	// looked up for each query, so that a change shows at once.
	Cacheable bool
	// AtCut is set on an answer of a zone about DS records at one of its delegations.
	AtCut bool
	Err   error // why the answer is SERVFAIL; may be nil
}

// A Session is what the reader knows of a client's connection and request besides the
// message. Over UDP it has no more than ProxyTLVs.
type Session struct {
	// Encrypted is set if the transport is: then the reply to a padded query is
	// padded.
	Encrypted bool
	// Header is the header of the HTTP request, or the metadata of gRPC, with keys in
	// canonical form; nil for other protocols. It must not be changed.
	Header map[string][]string
	// IdleTimeout is the idle timeout of the client's connection. The reply
	// contains it if the client requests it (RFC 7828). Zero means none.
	IdleTimeout time.Duration
	// ProxyTLVs is the TLVs of the PROXY header with which the query or its connection came, as
	// in the header; empty unless the listener keeps them. They are also there over UDP.
	ProxyTLVs string
}

// A Signature is the transaction signature of a query (RFC 8945), and makes those of the reply.
type Signature struct {
	Key wire.Name // the name of the key that has signed the query; "" if the signature is not valid
	// Append appends a signature to a message of the reply, after it is sealed, and counts it
	// in the header.
	Append func(message []byte) []byte
	Size   int // at least the number of bytes that Append appends
}

// A Query is one question and the answer to it. It has one owner at a time: its
// reader, or, once it is parked, the goroutine that resumes it. A Query is reused for
// the next packet.
type Query struct {
	wire.Request
	Result
	Session
	course

	Peer      netip.AddrPort // the client; an IPv4 address is never mapped into IPv6
	Local     netip.AddrPort // the address that the client sent the query to
	Interface int            // index of the interface that the packet came in by; zero if unknown
	Start     time.Time      // when the packet, or its batch, was read
	Elapsed   time.Duration  // from Start until the reply was sealed
	Sender    Sender         // sends the reply if the query is parked
	Proto     Proto

	// Options holds the EDNS options for handlers that send the question to another
	// server, as the RDATA of an OPT record: the request's options except the
	// hop-by-hop options. A handler may replace the slice. It does not share memory
	// with the packet.
	Options []byte
	// Timeout bounds the time that the query may take once it is parked; zero is
	// ten seconds. It is read when the query is parked.
	Timeout time.Duration
	// ReplyLimit is the largest size of a reply, over UDP whatever size the client
	// accepts: 1232 bytes there, and 65,535 over TCP, unless a handler sets another.
	// A larger reply over UDP to a forged client address would serve an amplification
	// attack.
	ReplyLimit int

	packet   []byte // until the query is parked, its memory belongs to the transport
	mux      *Mux
	shard    *metrics.Shard
	replyOpt []byte // options for the reply's OPT record

	// Memory that later packets reuse.
	sub        *Query // the last sub-query
	optionBuf  []byte // of Options
	stateArray [4]any // of state, unless there are more keys
}

// A course is the way of a query through its chain. It begins anew for each packet.
type course struct {
	chain      *Chain
	state      []any // by StateKey
	at         int   // the current step of the chain
	answeredBy int   // the step that answered, -1 if none
	floor      int   // the first step that the query walks; zero unless it is a refresh

	// Variant is set by a handler that returns Wait and whose answers are no longer valid when its
	// upstreams change: it is another number then. Zero means that there is one variant. An
	// Interceptor does not answer with what it has kept of another variant.
	Variant uint64

	// Signature is set by a handler that has checked the signature of the query; nil for none.
	Signature *Signature

	// Reason is set by a handler for its own ExplainDNS: a code for why it answers the query so,
	// or does not.
	Reason uint8

	completing bool // the step at is a Completer that waits
	dropped    bool
	sealed     bool
	detached   bool // the query has left its reader: Start is not the current time any more
	awaited    bool // other queries wait for the answer: see Shared
	subQueried bool // there has been a sub-query

	parent  *Query           // of a sub-query
	place   *place           // of a parked query, or of a refresh
	changed *changedQuestion // nil unless SetQuestion was called
	trace   Trace            // nil unless a Tracer follows the query
	repeat  Repeat           // zero unless AllowRepeat was called
}

// NewQuery returns a query. s sends its reply if it is parked.
func NewQuery(s Sender) *Query { return &Query{Sender: s} }

// Reset prepares q for a packet. The caller sets Peer, Local and Interface, and after
// Reset Session. It must not change the packet until q is answered or parked.
func (q *Query) Reset(packet []byte, proto Proto, start time.Time) {
	q.packet, q.Proto, q.Start, q.Elapsed = packet, proto, start, 0
	q.Options, q.Timeout = nil, 0
	q.replyOpt = q.replyOpt[:0]

	// A statement each: then the compiler writes zeros, and makes no temporary copy.
	q.Status = Status{}
	q.Session = Session{}
	q.course = course{}
	q.answeredBy = -1

	q.ReplyLimit = wire.DefaultUDPReply
	if proto == TCP {
		q.ReplyLimit = wire.MaxMessage
	}
}

// enter puts the query at the top of a chain.
func (q *Query) enter(c *Chain) {
	q.chain = c
	q.stateArray = [len(q.stateArray)]any{} // Observe has cleared it, except in a sub-query, which is reused
	if c.stateKeys <= len(q.stateArray) {
		q.state = q.stateArray[:c.stateKeys]
	} else {
		q.state = make([]any, c.stateKeys)
	}
}

// State returns the value that the handler with that key has stored in the query, or nil. It is
// kept while the query walks its chain.
func (q *Query) State(key StateKey) any {
	if q.chain == nil {
		return nil // a view's condition is evaluated before there is a chain
	}
	return q.state[key]
}

// SetState stores v for the handler's Resolve and FinishDNS. Storing a pointer does
// not allocate.
func (q *Query) SetState(key StateKey, v any) { q.state[key] = v }

// SetShard sets the shard that the query's reader locks while it serves and observes
// the query.
func (q *Query) SetShard(s *metrics.Shard) { q.shard = s }

// Shard returns the shard to pass to Counter.AddTo and Histogram.Observe: the
// locked shard of q's reader, or nil if q has left its reader or never had one.
func (q *Query) Shard() *metrics.Shard {
	if q.detached {
		return nil
	}
	return q.shard
}

// Now returns the time: Start while the query is with its reader, and the current
// time after that.
func (q *Query) Now() time.Time {
	if q.detached {
		return time.Now()
	}
	return q.Start
}

// Packet returns the request as it was received.
func (q *Query) Packet() []byte { return q.packet }

// Question returns the question section: name, in the client's letter case, type and
// class. It is the client's question, or the one set by SetQuestion.
func (q *Query) Question() []byte {
	if q.changed != nil {
		return q.changed.text
	}
	return q.Request.Question(q.packet)
}

// QuestionName returns the question's name in wire form, in the client's letter
// case. It is as long as Name.
func (q *Query) QuestionName() []byte {
	question := q.Question()
	return question[:max(0, len(question)-4)]
}

// A changedQuestion is the question that the handler at a step put in place of the client's.
type changedQuestion struct {
	step   int
	text   []byte
	memory [wire.MaxName + 4]byte // of text
}

// SetQuestion replaces the question for the handlers below the caller. The caller
// must call RestoreQuestion in FinishDNS. name is in wire form and may have any
// letter case. There must be no answer yet. SetQuestion returns false and changes
// nothing if name is not valid.
func (q *Query) SetQuestion(name []byte, t wire.Type, c wire.Class) bool {
	if !q.Request.SetQuestion(name, t, c) {
		return false
	}

	changed := &changedQuestion{step: q.at}
	changed.text = append(changed.memory[:0], name...)
	changed.text = binary.BigEndian.AppendUint16(changed.text, uint16(t))
	changed.text = binary.BigEndian.AppendUint16(changed.text, uint16(c))

	q.changed = changed
	q.Answer.Reset(q.Answer.Buf, changed.text)
	return true
}

// RestoreQuestion restores the client's question and writes the answer again, with
// each name replaced by the result of rename; nil keeps all names. If a record cannot
// be written, the answer is SERVFAIL.
func (q *Query) RestoreQuestion(rename wire.Rename) {
	if q.changed == nil {
		return
	}
	q.changed = nil
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

// maxForwardable is the size of a client's options up to which handlers see them, so that a query to
// an upstream fits into a datagram that is not fragmented. With all that a client can send, a name that
// rewrite makes longer would make a message of more than 65,535 bytes, whose end a server takes for
// other queries of the connection (RFC 1035 §4.2.2).
const maxForwardable = 512

// appendForwardable appends the options that are not hop-by-hop to buf; none if they are too large,
// since a server may ignore options (RFC 6891 §6.1.2).
func appendForwardable(buf, options []byte) []byte {
	empty := buf
	for code, data := range wire.Options(options) {
		if wire.HopByHopOption(code) {
			continue
		}
		if len(buf)+4+len(data) > len(empty)+maxForwardable {
			return empty
		}
		buf = wire.AppendOption(buf, code, data)
	}
	return buf
}

// AddReplyOption adds an option to the reply's OPT record, if the client supports
// EDNS. Options that do not fit into the reply beside the records are left out.
func (q *Query) AddReplyOption(code uint16, data []byte) {
	q.replyOpt = wire.AppendOption(q.replyOpt, code, data)
}

// AddExtendedError adds an extended error (RFC 8914) to the reply: one of wire's EDE
// codes, and a text, which may be empty.
func (q *Query) AddExtendedError(code uint16, text string) {
	var buf [256]byte
	q.AddReplyOption(wire.OptionEDE, append(binary.BigEndian.AppendUint16(buf[:0], code), text...))
}

// ReplyOptions returns the options that were added to the reply, in wire form.
func (q *Query) ReplyOptions() []byte { return q.replyOpt }

// RemoveReplyOption removes the options with this code from the reply.
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

// AddExtendedErrors adds the extended errors of sub, whose answer becomes a part of q's.
func (q *Query) AddExtendedErrors(sub *Query) {
	for code, data := range wire.Options(sub.replyOpt) {
		if code == wire.OptionEDE {
			q.AddReplyOption(code, data)
		}
	}
}

// Fail discards the answer and its extended errors, and sets the response code.
func (q *Query) Fail(code wire.RCode) {
	q.RemoveReplyOption(wire.OptionEDE)
	q.fail(code)
}

// fail is Fail, and keeps extended errors that explain the failure.
func (q *Query) fail(code wire.RCode) {
	q.Answer.Clear()
	q.Status = Status{RCode: code, RA: q.RA, Err: q.Err}
}

// Network returns the protocol of the packets that the query was received in: UDP for DNS over QUIC and
// HTTP/3, too, whose messages have no limit of a datagram, so that Proto is TCP.
func (q *Query) Network() Proto { return q.chain.Network(q.Proto) }

// Chain returns the chain that the query walks; nil if there is none for it.
func (q *Query) Chain() *Chain { return q.chain }

// AnsweredBy returns the name of the directive that answered, "" if none did.
func (q *Query) AnsweredBy() string {
	if q.answeredBy < 0 || q.chain == nil {
		return ""
	}
	return q.chain.steps[q.answeredBy].name
}

// AnsweredStep returns the index in Chain.Steps of the handler that answered, -1 if
// none did.
func (q *Query) AnsweredStep() int {
	if q.answeredBy < 0 {
		return -1
	}
	return q.chain.steps[q.answeredBy].index // messages have a chain of some of the handlers
}

// Dropped reports whether the client gets no reply.
func (q *Query) Dropped() bool { return q.dropped }

// Reply returns the sealed message; it is empty if there is none to send.
func (q *Query) Reply() []byte {
	if !q.sealed || q.dropped {
		return nil
	}
	return q.Answer.Buf
}
