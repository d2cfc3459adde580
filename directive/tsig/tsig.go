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

// A TSIG verifies the signatures of queries and signs the replies: the tsig directive.
//
//	tsig [ZONES...] {
//	    secret NAME KEY
//	    secrets FILE
//	    require QTYPE...
//	    require_opcode OPCODE...
//	}
//
// A query for a name in ZONES that has a TSIG record (RFC 8945) is verified, and its reply
// is signed with the same key; the default is the server block's zones. The client
// chooses the algorithm: hmac-sha1, hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512.
// If the signature is not valid, the answer is NOTAUTH with the error BADKEY (no such key
// or algorithm), BADSIG (wrong signature), BADTIME (the clocks differ by more than the
// query permits, usually five minutes) or BADTRUNC (the signature is cut short). NOTIFY
// messages are verified, too.
//
// secret defines the key NAME with the secret KEY in base64. You can repeat it. secrets
// reads keys from FILE, in the format of named.conf; use it to keep secrets out of the
// Corefile:
//
//	key "transfer.example.org." {
//	    algorithm hmac-sha256;
//	    secret "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk=";
//	};
//
// FILE is watched: a change takes effect at once, and if the changed file has an error,
// the error is logged and the previous keys stay. A relative FILE is relative to the
// directory of the directive root. The algorithm is the one with which this server signs
// its own messages; the default is hmac-sha256. The directives transfer and secondary of
// the server block sign theirs with the option key.
//
// require lists the types of queries that must be signed; others with these types are
// REFUSED. all means every type, and none, the default, no type. require_opcode is the
// same for opcodes: QUERY and NOTIFY. IQUERY, STATUS and UPDATE are accepted too, and are
// always NOTIMP.
//
// Zone transfers only for servers that have the key:
//
//	example.org:1053 {
//	    tsig {
//	        secret transfer.example.org. NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk=
//	        require AXFR IXFR
//	    }
//	    file zones/db.example.org
//	    transfer {
//	        to *
//	    }
//	}
//
// Same as CoreDNS: syntax and replies. Differs: hmac-md5 is not supported; FILE is
// watched; transfer and secondary can sign.
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

// HandlesNotify implements [dns.NotifyHandler].
func (t *TSIG) HandlesNotify() {}

// AnyClass implements [dns.AnyClass].
func (t *TSIG) AnyClass() bool { return false }

var (
	errNotSigned = errors.New("the query must be signed")
	errSignature = errors.New("the signature is not valid")
)

// ServeDNS verifies the signature.
func (t *TSIG) ServeDNS(q *dns.Query) dns.Verdict {
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
	q.SetSigner(s)
	if s.Error != 0 {
		return fail(q, wire.NotAuth, errSignature)
	}
	return dns.Next
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
