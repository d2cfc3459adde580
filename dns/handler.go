package dns

import (
	"context"

	"github.com/seamark/seamark/wire"
)

// A Verdict is the result of a handler's ServeDNS.
type Verdict uint8

const (
	Next Verdict = iota // call the handler below; the answer is unchanged
	Done                // the answer is complete; it may be empty (NODATA)
	Drop                // send no reply; observers see the query
	Wait                // the handler must block: park the query and call Resolve
)

// A Handler looks at a query on its way down the chain. ServeDNS must not block and
// must not keep q.
type Handler interface{ ServeDNS(q *Query) Verdict }

// A Resolver may block. Resolve is called on a goroutine of its own after the same
// handler's ServeDNS returned Wait; a Resolver without ServeDNS always waits. It may
// call the handlers below with q.Next. An error makes the answer SERVFAIL.
type Resolver interface {
	Resolve(ctx context.Context, q *Query) error
}

// An Awaiter is a Resolver that waits for an event, such as the reply to a message,
// without a goroutine. After its ServeDNS or InterceptDNS returned Wait, AwaitDNS is
// called, and Resolve once the event has happened, or the context of Resolve has
// ended before that.
//
// AwaitDNS starts the operation that the query waits for. It is called on a goroutine
// of its own and may allocate and send, but must not wait. It returns false if Resolve
// should be called at once. Otherwise it calls wake, or has it called by any
// goroutine, when the event has happened. Later calls of wake have no effect.
type Awaiter interface {
	Resolver
	AwaitDNS(q *Query, wake func()) bool
}

// A Reserver is an Awaiter whose queries may wait for so long, and be so many, that they must not occupy the
// places of others in the ParkingLot: the Reserver bounds their number, by client, and their memory. ReserveDNS
// is called before AwaitDNS, must not block, and returns the function that ends the query's part. An error is
// the reason of a SERVFAIL. Once the query has to block it has a place like any other; so has a query for which
// a handler above calls Next, without ReserveDNS: see [Query.Reserved].
type Reserver interface {
	Awaiter
	ReserveDNS(q *Query) (release func(), err error)
}

// A Finisher edits the answer on its way up, if its ServeDNS returned Next. It is
// called once for each such query, even if a handler below dropped the query or
// panicked. FinishDNS must not block.
type Finisher interface{ FinishDNS(q *Query) }

// A Completer is a Finisher that may have to block, for example to sign the answer.
// CompleteDNS is called in place of FinishDNS, and must not block either. It returns
// Done, or Wait if Resolve must be called with the answer. The chain then calls the
// finishers above. CompleteDNS is not called for a query that was dropped.
type Completer interface {
	Resolver
	CompleteDNS(q *Query) Verdict
}

// An Observer sees each query of a client once, after its reply was sealed or it was
// dropped. It must not change the query, and it is not a step of the chain.
// Sub-queries are not observed.
type Observer interface{ ObserveDNS(q *Query) }

// AnyClass is implemented by handlers that are called for queries of all classes; the chain skips
// other handlers unless the class is IN. AnyClass returns what the handler does with such queries.
// A chain in which no handler answers or changes them refuses them.
type AnyClass interface{ AnyClass() ClassUse }

// A ClassUse is what a handler does with queries of other classes than IN.
type ClassUse uint8

// A handler answers no such query, may turn it into one of class IN for the handlers below, or may
// answer it.
const (
	ClassPassed ClassUse = iota
	ClassChanged
	ClassAnswered
)

// An OpcodeHandler is called for NOTIFY (RFC 1996) and UPDATE messages (RFC 2136), too, which
// the chain's other handlers do not see. Query.Opcode identifies them. Opcodes returns those
// that the handler answers: if no handler of a chain answers an opcode, the reply is NOTIMP.
type OpcodeHandler interface {
	Handler
	Opcodes() []int
}

// An Authority answers for all names of its zones from data of this server. Records of
// these names are not accepted from other servers: see OwnZones.
type Authority interface{ AuthoritativeZones() []wire.Name }

// A ZoneFinder is a handler with zones like an Authority's, which may change while it serves.
// FindZone returns the length in bytes of the longest zone that contains name, or 0. name is
// in wire form and in lower case. FindZone is called for names in replies of other servers,
// not for each query. It must not block, and is safe for concurrent use. A ZoneFinder is
// comparable.
type ZoneFinder interface{ FindZone(name []byte) int }

// A ChainBinder is a handler or an observer that keeps state for each chain, for
// example counters that are labelled with the chain's server and zone. CopyFor
// calls BindChain once for each new chain, before one of them serves, and puts the
// result in place of the handler. The result must implement the same interfaces.
// Observers are bound when the chain has all its handlers.
type ChainBinder interface {
	BindChain(c *Chain) any
}
