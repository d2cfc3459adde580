// Package tsig signs messages and verifies signatures with shared keys (RFC 8945). The
// directive tsig verifies queries with it, and transfer and secondary sign theirs.
package tsig

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/seamark/seamark/wire"
)

// algorithm returns the hash of an algorithm, nil if it is not supported. HMAC-MD5 is not
// secure.
func algorithm(name wire.Name) func() hash.Hash {
	switch name {
	case "\x09hmac-sha1\x00":
		return sha1.New
	case "\x0bhmac-sha224\x00":
		return sha256.New224
	case SHA256:
		return sha256.New
	case "\x0bhmac-sha384\x00":
		return sha512.New384
	case "\x0bhmac-sha512\x00":
		return sha512.New
	}
	return nil
}

// SHA256 is the algorithm of keys that have no other.
const SHA256 wire.Name = "\x0bhmac-sha256\x00"

// Known reports whether an algorithm is supported.
func Known(name wire.Name) bool { return algorithm(name) != nil }

// A Key is a secret that two servers share.
type Key struct {
	Name      wire.Name
	Algorithm wire.Name // for messages that this server signs first
	Secret    []byte
}

// Keys are the keys of a server block. Lookup returns nil if there is no key of a name.
type Keys interface {
	Lookup(name wire.Name) *Key
}

// Errors of a TSIG record (RFC 8945 §3).
const (
	BadSig  uint16 = 16
	BadKey  uint16 = 17
	BadTime uint16 = 18
	// BadTrunc is the error for a valid MAC that is cut short. This server requires all of it.
	BadTrunc uint16 = 22
)

// fudge is how many seconds the clocks of two servers may differ.
const fudge = 300

// A Record is the TSIG record of a message.
type Record struct {
	Key, Algorithm wire.Name
	Time           uint64 // in seconds since 1970
	Fudge          uint16
	MAC            []byte
	ID             uint16 // of the original message
	Error          uint16
	Other          []byte
}

// ErrFormat is the error for a TSIG record that is malformed or not the last record.
var ErrFormat = errors.New("malformed TSIG record")

// Find returns the TSIG record of a message, nil if it has none, and the message as it
// was signed, without the record.
func Find(message []byte) (r *Record, signed []byte, err error) {
	if len(message) < wire.HeaderLen || binary.BigEndian.Uint16(message[10:]) == 0 {
		return nil, nil, nil
	}

	off := wire.HeaderLen
	for range binary.BigEndian.Uint16(message[4:]) {
		_, next, ok := wire.ReadName(nil, message, off)
		if !ok {
			return nil, nil, ErrFormat
		}
		off = next + 4
	}

	records := 0
	for i := 6; i < 12; i += 2 {
		records += int(binary.BigEndian.Uint16(message[i:]))
	}

	for i := range records {
		at, ok := wire.ReadRecord(message, off)
		if !ok {
			return nil, nil, ErrFormat
		}
		if at.Type != wire.TypeTSIG {
			off = at.Next
			continue
		}
		if i != records-1 || at.Next != len(message) {
			return nil, nil, ErrFormat
		}
		if r = parse(message, at); r == nil {
			return nil, nil, ErrFormat
		}

		signed = append([]byte(nil), message[:off]...)
		binary.BigEndian.PutUint16(signed, r.ID)
		binary.BigEndian.PutUint16(signed[10:], binary.BigEndian.Uint16(message[10:])-1)
		return r, signed, nil
	}
	return nil, nil, nil
}

// classANY is the class of TSIG records.
const classANY = 255

func parse(message []byte, at wire.Record) *Record {
	owner, _, ok := wire.ReadName(nil, message, at.Owner)
	name, off, ok2 := wire.ReadName(nil, message[:at.Next], at.RData)
	class := binary.BigEndian.Uint16(message[at.Head+2:])
	if !ok || !ok2 || class != classANY || len(message[off:at.Next]) < 16 {
		return nil
	}

	rest := message[off:at.Next]
	r := &Record{Key: wire.Lower(string(owner)), Algorithm: wire.Lower(string(name))}
	r.Time = uint64(binary.BigEndian.Uint16(rest))<<32 | uint64(binary.BigEndian.Uint32(rest[2:]))
	r.Fudge = binary.BigEndian.Uint16(rest[6:])
	n := int(binary.BigEndian.Uint16(rest[8:]))
	if rest = rest[10:]; len(rest) < n+6 {
		return nil
	}

	r.MAC, rest = append([]byte(nil), rest[:n]...), rest[n:]
	r.ID, r.Error = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
	if n = int(binary.BigEndian.Uint16(rest[4:])); len(rest) != n+6 {
		return nil
	}
	r.Other = append([]byte(nil), rest[6:]...)
	return r
}

// variables appends the fields of r that are signed with a message.
func (r *Record) variables(buf []byte, timersOnly bool) []byte {
	if !timersOnly {
		buf = append(buf, r.Key...)
		buf = append(buf, 0, classANY, 0, 0, 0, 0) // with the TTL
		buf = append(buf, r.Algorithm...)
	}
	buf = r.appendTime(buf)
	if !timersOnly {
		buf = binary.BigEndian.AppendUint16(buf, r.Error)
		buf = binary.BigEndian.AppendUint16(buf, uint16(len(r.Other)))
		buf = append(buf, r.Other...)
	}
	return buf
}

func (r *Record) appendTime(buf []byte) []byte {
	buf = binary.BigEndian.AppendUint16(buf, uint16(r.Time>>32))
	buf = binary.BigEndian.AppendUint32(buf, uint32(r.Time))
	return binary.BigEndian.AppendUint16(buf, r.Fudge)
}

// mac returns the MAC of a message. prior is the MAC before it, of the query or of the
// message before in the stream.
func (r *Record) mac(secret, prior, signed []byte, timersOnly bool) []byte {
	h := hmac.New(algorithm(r.Algorithm), secret)
	if prior != nil {
		h.Write(binary.BigEndian.AppendUint16(nil, uint16(len(prior))))
		h.Write(prior)
	}
	h.Write(signed)
	h.Write(r.variables(nil, timersOnly))
	return h.Sum(nil)
}

// Append appends r to a message and counts it.
func (r *Record) Append(message []byte) []byte {
	message = append(message, r.Key...)
	message = append(message, byte(wire.TypeTSIG>>8), byte(wire.TypeTSIG), 0, classANY, 0, 0, 0, 0)
	message = binary.BigEndian.AppendUint16(message, uint16(len(r.Algorithm)+16+len(r.MAC)+len(r.Other)))
	message = r.appendTime(append(message, r.Algorithm...))
	message = binary.BigEndian.AppendUint16(message, uint16(len(r.MAC)))
	message = binary.BigEndian.AppendUint16(append(message, r.MAC...), r.ID)
	message = binary.BigEndian.AppendUint16(message, r.Error)
	message = binary.BigEndian.AppendUint16(message, uint16(len(r.Other)))
	message = append(message, r.Other...)
	binary.BigEndian.PutUint16(message[10:], binary.BigEndian.Uint16(message[10:])+1)
	return message
}

// A Session verifies or signs the messages of the reply to one query. It is not safe for
// concurrent use.
type Session struct {
	key       *Key
	algorithm wire.Name
	prior     []byte // the last MAC; nil before the query is signed
	count     int    // signed messages of the reply so far
	unsigned  []byte // messages since the last signature
	skipped   int    // number of these
	Error     uint16 // of the query's signature, for Sign; 0 if it is valid
	time      uint64 // of the query's signature, for replies with an Error
}

// Start signs a query.
func Start(key *Key, query []byte, now time.Time) (*Session, []byte) {
	s := &Session{key: key, algorithm: key.Algorithm}
	r := s.record(query, now)
	r.MAC = r.mac(key.Secret, nil, query, false)
	s.prior = r.MAC
	return s, r.Append(query)
}

func (s *Session) record(message []byte, now time.Time) *Record {
	return &Record{
		Key: s.key.Name, Algorithm: s.algorithm, Time: uint64(now.Unix()), Fudge: fudge,
		ID: binary.BigEndian.Uint16(message),
	}
}

// minMAC is the least length of a MAC in bytes, unless half of the hash is longer (RFC 8945
// §5.2.2.1).
const minMAC = 10

// Accept verifies a query. It returns a session that signs the reply: its Error is set
// if the signature is not valid. The error is ErrFormat if the MAC has a length that the
// algorithm does not permit.
func Accept(keys Keys, r *Record, signed []byte, now time.Time) (*Session, error) {
	s := &Session{key: keys.Lookup(r.Key), algorithm: r.Algorithm, prior: r.MAC, time: r.Time}
	if s.key == nil || algorithm(r.Algorithm) == nil {
		s.key = &Key{Name: r.Key}
		s.Error = BadKey
		return s, nil
	}

	if size := algorithm(r.Algorithm)().Size(); len(r.MAC) > size || len(r.MAC) < max(minMAC, size/2) {
		return nil, ErrFormat
	}
	s.Error = r.check(s.key, nil, signed, false, now)
	return s, nil
}

// check returns the error of a record with a supported algorithm (RFC 8945 §5.2), or 0.
func (r *Record) check(key *Key, prior, signed []byte, timersOnly bool, now time.Time) uint16 {
	want := r.mac(key.Secret, prior, signed, timersOnly)
	if len(r.MAC) > len(want) || !hmac.Equal(r.MAC, want[:len(r.MAC)]) {
		return BadSig
	}
	if d := now.Unix() - int64(r.Time); d > int64(r.Fudge) || -d > int64(r.Fudge) {
		return BadTime
	}
	if len(r.MAC) < len(want) {
		return BadTrunc
	}
	return 0
}

// Signer returns the name of the key that has signed the query, "" if the signature is not valid.
func (s *Session) Signer() wire.Name {
	if s.Error != 0 {
		return ""
	}
	return s.key.Name
}

// Size returns the largest size of the record that Sign appends, with the MAC of HMAC-SHA512.
func (s *Session) Size() int {
	const numbers, serverTime = 26, 6
	return len(s.key.Name) + len(s.algorithm) + numbers + sha512.Size + serverTime
}

// Sign signs the next message of the reply. If the query's MAC was not verified, it appends
// a record without a MAC (RFC 8945 §5.2).
func (s *Session) Sign(message []byte) []byte {
	r := s.record(message, time.Now())
	r.Error = s.Error
	switch s.Error {
	case BadKey, BadSig:
		r.Time = s.time
		return r.Append(message)
	case BadTime:
		now := r.Time
		r.Time = s.time
		r.Other = binary.BigEndian.AppendUint64(nil, now)[2:]
	}

	// Messages after the first have the timers only (RFC 8945 §5.3.1).
	r.MAC = r.mac(s.key.Secret, s.prior, message, s.count > 0)
	s.prior = r.MAC
	s.count++
	return r.Append(message)
}

// maxUnsigned is the number of messages between two with a signature (RFC 8945 §5.3.1).
const maxUnsigned = 99

// Errors of Verify.
var (
	ErrUnsigned = errors.New("the reply is not signed")
	ErrSig      = errors.New("the signature of the reply is not valid")
	ErrTime     = errors.New("the signature of the reply is too old, or from the future")
)

// Verify verifies the next message of the reply to a query. Up to 99 messages after the
// first one may lack a signature; last requires one.
func (s *Session) Verify(message []byte, last bool, now time.Time) error {
	r, signed, err := Find(message)
	if err != nil {
		return err
	}
	if r == nil {
		if s.count == 0 || last || s.skipped == maxUnsigned {
			return ErrUnsigned
		}
		s.unsigned = append(s.unsigned, message...)
		s.skipped++
		return nil
	}

	if r.Error != 0 {
		name := map[uint16]string{BadSig: "BADSIG", BadKey: "BADKEY", BadTime: "BADTIME", BadTrunc: "BADTRUNC"}[r.Error]
		return fmt.Errorf("the server rejects the signature: %s", cmp.Or(name, fmt.Sprintf("error %d", r.Error)))
	}
	if r.Key != s.key.Name || r.Algorithm != s.algorithm {
		return ErrSig
	}

	switch r.check(s.key, s.prior, append(s.unsigned, signed...), s.count > 0, now) {
	case 0:
	case BadTime:
		return fmt.Errorf("%w: it is from %s: check the clocks of both servers",
			ErrTime, time.Unix(int64(r.Time), 0).UTC().Format(time.RFC3339))
	default:
		return ErrSig
	}

	s.prior, s.unsigned, s.skipped = r.MAC, nil, 0
	s.count++
	return nil
}
