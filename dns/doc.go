// Package dns answers queries. It is between package transport, which reads
// packets and sends replies, and the directives, which are its handlers.
//
// A reader of package transport puts a packet into a Query and calls Port.Serve,
// which parses it and looks up, in the Mux of the listening address, the Chain of
// the longest zone that contains the name. The chain calls its handlers from top to
// bottom until one of them returns a Verdict other than Next: Done if the answer is
// complete, Drop to send no reply, Wait if the handler must block. After that the
// finishers of the handlers that were passed edit the answer, from bottom to top; a
// Completer among them may have to wait.
//
// A query that must wait is parked: its reader goes on with the next packet, and a
// goroutine of the ParkingLot calls the handler's Resolve and the finishers, and passes
// the query to its Sender. For an Awaiter it does so when the event that the query waits
// for has happened. In the end every reply is sealed: compressed, truncated to the
// client's size, and completed by its OPT record and header.
//
// Read query.go, handler.go, chain.go, walk.go, mux.go, port.go, park.go, subquery.go and
// seal.go, in this order. The rest is for few directives: share.go for a cache, stream.go
// for zone transfers, repeat.go for the cache of a node, trace.go and explain.go for
// operators. The package opens no sockets and reads no configuration. Its only goroutines
// serve parked queries.
package dns
