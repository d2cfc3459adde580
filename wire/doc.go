// Package wire parses requests and writes answers as bytes (RFC 1035, 2181, 6891).
// It allocates nothing, knows no sockets and no policy, and imports no other package
// of this module.
//
// An Answer under construction consists of twelve bytes for the header, the question
// as the client sent it, and the records of the three sections in order. A name in a
// record is written out or is a pointer into the question, never a pointer into
// another record. So records can be copied, inserted and removed as bytes, and an
// answer that was made for one spelling of a question is correct for all others. In
// the RDATA of types that RFC 1035 does not define, a name is always written out,
// even the target of SRV: it must not be compressed (RFC 2782, RFC 3597 §4).
// Compress compresses the complete message.
package wire
