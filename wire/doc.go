// Package wire reads questions and writes answers as bytes (RFC 1035, 2181,
// 6891). It allocates nothing, knows no sockets and no policy, and imports
// nothing of ours.
//
// A message under construction has the answer's form: twelve bytes of room for
// the header, the question as the client sent it, and records of the three
// sections in order. A name in a record is either written out or is a pointer
// into the question; never into another record. So records can be copied,
// inserted and cut as bytes, and an answer made for one spelling of a question
// is right for every other. In the RDATA of types that are not RFC 1035's own a
// name is always written out, SRV's target among them: it goes to the client as
// it is, and must not be compressed (RFC 2782, RFC 3597 §4). Compression
// (Compress) comes last, in the message that goes out.
package wire
