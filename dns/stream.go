package dns

import (
	"errors"
)

// A Streamer is a Sender that can send several messages in reply to one query, as a
// zone transfer needs: a TCP connection.
type Streamer interface {
	// Stream sends a message of the reply to a parked query, before the message
	// that Send sends. It blocks until the connection has accepted the message, and
	// does not keep it. An error means that the connection is closed.
	Stream(message []byte) error
}

var errNoStream = errors.New("the transport cannot send several messages in reply to a query")

// SendPart seals the answer, sends it as the next of several messages, and empties it.
// Only Resolve may call it. Finishers see the last message alone, which is the one
// that is left when Resolve returns.
func (q *Query) SendPart() error {
	s, ok := q.Sender.(Streamer)
	if !ok || q.parent != nil {
		return errNoStream
	}
	options := len(q.replyOpt)
	q.seal()
	q.replyOpt = q.replyOpt[:options]
	if err := s.Stream(q.Answer.Buf); err != nil {
		return err
	}
	q.sealed = false
	q.Answer.Reset(q.Answer.Buf, q.Question())
	return nil
}

// Opcode returns the opcode of the message: zero for a query.
func (q *Query) Opcode() int { return int(q.Flags >> 11 & 15) }

// Streams reports whether SendPart can send messages.
func (q *Query) Streams() bool {
	_, ok := q.Sender.(Streamer)
	return ok && q.parent == nil && q.Proto != UDP
}
