// Package tsig implements the tsig directive: queries and replies with signatures.
package tsig

import (
	"errors"
	"slices"
	"time"

	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A TSIG verifies the signatures of queries and signs the replies: the tsig directive. Its
// reference page is docs/reference/directives/tsig.md.
type TSIG struct {
	zones   []wire.Name
	own     map[wire.Name]*tsig.Key // of the Corefile
	files   []*keyFile
	types   []wire.Type // that must be signed
	opcodes []int
	all     struct{ types, opcodes bool }
}

// Lookup implements [tsig.Keys].
func (t *TSIG) Lookup(name wire.Name) *tsig.Key {
	if key := t.own[name]; key != nil {
		return key
	}
	for _, f := range t.files {
		if key := (*f.keys.Load())[name]; key != nil {
			return key
		}
	}
	return nil
}

// Opcodes implements [dns.OpcodeHandler]. A NOTIFY message is verified even if no handler takes it.
func (t *TSIG) Opcodes() []int { return []int{wire.OpcodeNotify} }

// AnyClass implements [dns.AnyClass].
func (t *TSIG) AnyClass() dns.ClassUse { return dns.ClassPassed }

var (
	errNotSigned = errors.New("the query must be signed")
	errSignature = errors.New("the signature is not valid")
)

// ServeDNS verifies the signature.
func (t *TSIG) ServeDNS(q *dns.Query) dns.Verdict {
	if isSigned(q.Parent()) {
		return dns.Next
	}
	packet := q.Packet()
	if len(packet) < wire.HeaderLen || packet[10]|packet[11] == 0 && !t.required(q) {
		return dns.Next
	}
	if !slices.ContainsFunc(t.zones, func(z wire.Name) bool { return wire.Within(q.Name(), z) }) {
		return dns.Next
	}

	r, signed, err := tsig.Find(packet)
	if err != nil {
		return fail(q, wire.FormErr, err)
	}
	if r == nil {
		if t.required(q) {
			return fail(q, wire.Refused, errNotSigned)
		}
		return dns.Next
	}

	s, err := tsig.Accept(t, r, signed, time.Now())
	if err != nil {
		return fail(q, wire.FormErr, err)
	}
	q.Signature = &dns.Signature{Key: s.Signer(), Append: s.Sign, Size: s.Size()}
	if s.Error != 0 {
		return fail(q, wire.NotAuth, errSignature)
	}
	return dns.Next
}

// isSigned reports whether the client's query has a valid signature for which q, which may be nil, is made.
// A query whose signature is not valid has one without a key, for the reply.
func isSigned(q *dns.Query) bool {
	for ; q != nil; q = q.Parent() {
		if q.Signature != nil && q.Signature.Key != "" {
			return true
		}
	}
	return false
}

func fail(q *dns.Query, code wire.RCode, err error) dns.Verdict {
	q.Fail(code)
	q.Err = err
	return dns.Done
}

// required reports whether the query must be signed.
func (t *TSIG) required(q *dns.Query) bool {
	return t.all.types || t.all.opcodes || slices.Contains(t.types, q.Type) || slices.Contains(t.opcodes, q.Opcode())
}
