package tsig

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/seamark/seamark/wire"
)

type keyMap map[wire.Name]*Key

func (m keyMap) Lookup(name wire.Name) *Key { return m[name] }

var (
	now     = time.Unix(1_800_000_000, 0)
	testKey = &Key{Name: "\x03key\x00", Algorithm: SHA256, Secret: []byte("a secret of two servers")}
	keys    = keyMap{testKey.Name: testKey}
)

func request() []byte { return wire.AppendRequest(nil, 7, 0, []byte("\x01a\x00"), wire.TypeSOA) }

// resigned returns a query whose TSIG record change has edited after signing.
func resigned(t *testing.T, change func(*Record)) (*Record, []byte) {
	t.Helper()
	_, query := Start(testKey, request(), now)
	r, signed, err := Find(query)
	if err != nil || r == nil || !bytes.Equal(signed, request()) {
		t.Fatalf("Find(%x) = %v, %x, %v, want the message before it was signed", query, r, signed, err)
	}
	change(r)
	return r, signed
}

// formErr stands for ErrFormat.
const formErr = 1

// accept returns the session of Accept, or one with the error formErr.
func accept(t testing.TB, r *Record, signed []byte, now time.Time) *Session {
	t.Helper()
	s, err := Accept(keys, r, signed, now)
	if err == ErrFormat {
		return &Session{Error: formErr}
	}
	if err != nil {
		t.Fatalf("got error %v, want %v or none", err, ErrFormat)
	}
	return s
}

func TestAccept(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Record)
		want   uint16
	}{
		"valid":               {func(*Record) {}, 0},
		"unknown key":         {func(r *Record) { r.Key = "\x05other\x00" }, BadKey},
		"unknown algorithm":   {func(r *Record) { r.Algorithm = "\x08hmac-md5\x07sig-alg\x03reg\x03int\x00" }, BadKey},
		"other algorithm":     {func(r *Record) { r.Algorithm = "\x0bhmac-sha512\x00" }, BadSig},
		"shorter hash":        {func(r *Record) { r.Algorithm = "\x09hmac-sha1\x00" }, formErr},
		"no MAC":              {func(r *Record) { r.MAC = nil }, formErr},
		"MAC of one byte":     {func(r *Record) { r.MAC = r.MAC[:1] }, formErr},
		"MAC below a half":    {func(r *Record) { r.MAC = r.MAC[:sha256.Size/2-1] }, formErr},
		"MAC cut to a half":   {func(r *Record) { r.MAC = r.MAC[:sha256.Size/2] }, BadTrunc},
		"MAC without a byte":  {func(r *Record) { r.MAC = r.MAC[:sha256.Size-1] }, BadTrunc},
		"wrong half of a MAC": {func(r *Record) { r.MAC = r.MAC[:sha256.Size/2]; r.MAC[0] ^= 1 }, BadSig},
		"MAC cut to SHA-1":    {func(r *Record) { r.MAC, r.Algorithm = r.MAC[:sha1.Size], "\x09hmac-sha1\x00" }, BadSig},
		"longer MAC":          {func(r *Record) { r.MAC = append(r.MAC, 0) }, formErr},
		"unknown key, no MAC": {func(r *Record) { r.Key, r.MAC = "\x05other\x00", nil }, BadKey},
		"wrong MAC":           {func(r *Record) { r.MAC[0] ^= 1 }, BadSig},
		"later time":          {func(r *Record) { r.Time += 1000 }, BadSig},
		"greater fudge":       {func(r *Record) { r.Fudge++ }, BadSig},
		"other error":         {func(r *Record) { r.Error++ }, BadSig},
		"data in Other":       {func(r *Record) { r.Other = []byte{1} }, BadSig},
		"time of 48 set bits": {func(r *Record) { r.Time = 1<<48 - 1 }, BadSig},
	} {
		r, signed := resigned(t, c.change)
		if got := accept(t, r, signed, now).Error; got != c.want {
			t.Errorf("%s: got error %d, want %d", name, got, c.want)
		}
	}
	r, signed := resigned(t, func(*Record) {})
	for i := range signed {
		changed := bytes.Clone(signed)
		changed[i] ^= 1
		if got := accept(t, r, changed, now).Error; got != BadSig {
			t.Errorf("byte %d changed: got error %d, want BADSIG", i, got)
		}
	}
}

// A recorded query is valid while its time differs by the fudge at most.
func TestAcceptReplay(t *testing.T) {
	r, signed := resigned(t, func(*Record) {})
	for after, want := range map[time.Duration]uint16{
		0: 0, fudge * time.Second: 0, -fudge * time.Second: 0,
		(fudge + 1) * time.Second: BadTime, -(fudge + 1) * time.Second: BadTime, 24 * time.Hour: BadTime,
	} {
		s := accept(t, r, signed, now.Add(after))
		if s.Error != want {
			t.Errorf("replayed after %s: got error %d, want %d", after, s.Error, want)
		}
		reply, _, err := Find(s.Sign(request()))
		if err != nil || reply.Error != want || want == BadTime && (reply.Time != r.Time || len(reply.Other) != 6 || len(reply.MAC) == 0) {
			t.Errorf("reply after %s: got %+v, %v, want error %d with both times", after, reply, err, want)
		}
	}
}

// The reply to a query with an unknown key or a wrong signature is not signed.
func TestSignAfterBadSignature(t *testing.T) {
	for _, change := range []func(*Record){func(r *Record) { r.Key = "\x05other\x00" }, func(r *Record) { r.MAC[0] ^= 1 }} {
		r, signed := resigned(t, change)
		reply, _, err := Find(accept(t, r, signed, now).Sign(request()))
		if err != nil || len(reply.MAC) != 0 || reply.Key != r.Key || reply.Algorithm != r.Algorithm {
			t.Errorf("got %+v, %v, want a record of the same key without a MAC", reply, err)
		}
	}
}

// conversation returns a client's session and the signed messages of the reply.
func conversation(count int) (client *Session, messages [][]byte) {
	client, query := Start(testKey, request(), now)
	r, signed, _ := Find(query)
	s, _ := Accept(keys, r, signed, now)
	for i := range count {
		message := request()
		message[3] = byte(i)
		messages = append(messages, s.Sign(message))
	}
	return client, messages
}

func TestVerify(t *testing.T) {
	const count = 4
	unsigned := func(m []byte) []byte { _, signed, _ := Find(m); return signed }
	for name, c := range map[string]struct {
		change func(messages [][]byte) [][]byte
		want   error
	}{
		"valid":              {func(m [][]byte) [][]byte { return m }, nil},
		"first unsigned":     {func(m [][]byte) [][]byte { m[0] = unsigned(m[0]); return m }, ErrUnsigned},
		"second unsigned":    {func(m [][]byte) [][]byte { m[1] = unsigned(m[1]); return m }, ErrSig},
		"last unsigned":      {func(m [][]byte) [][]byte { m[count-1] = unsigned(m[count-1]); return m }, ErrUnsigned},
		"message inserted":   {func(m [][]byte) [][]byte { return slices.Insert(m, 1, request()) }, ErrSig},
		"message repeated":   {func(m [][]byte) [][]byte { return slices.Insert(m, 1, m[0]) }, ErrSig},
		"message missing":    {func(m [][]byte) [][]byte { return slices.Delete(m, 1, 2) }, ErrSig},
		"messages exchanged": {func(m [][]byte) [][]byte { m[1], m[2] = m[2], m[1]; return m }, ErrSig},
		"bytes at the end":   {func(m [][]byte) [][]byte { m[1] = append(m[1], 0); return m }, ErrFormat},
		"reply to another query": {func(m [][]byte) [][]byte {
			r, signed, _ := Find(m[0])
			r.MAC = r.mac(testKey.Secret, []byte("another"), signed, false)
			m[0] = r.Append(signed)
			return m
		}, ErrSig},
	} {
		client, messages := conversation(count)
		var err error
		messages = c.change(messages)
		for i, m := range messages {
			if err = client.Verify(m, i == len(messages)-1, time.Now()); err != nil {
				break
			}
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// A reply with another algorithm, another key, or an old time is not valid.
func TestVerifyOtherKey(t *testing.T) {
	for name, change := range map[string]func(*Session){
		"algorithm": func(s *Session) { s.algorithm = "\x0bhmac-sha512\x00" },
		"secret":    func(s *Session) { s.key = &Key{testKey.Name, SHA256, []byte("another")} },
		"name":      func(s *Session) { s.key = &Key{"\x05other\x00", SHA256, testKey.Secret} },
	} {
		client, query := Start(testKey, request(), now)
		r, signed, _ := Find(query)
		s := accept(t, r, signed, now)
		change(s)
		if err := client.Verify(s.Sign(request()), true, time.Now()); !errors.Is(err, ErrSig) {
			t.Errorf("other %s: got %v, want %v", name, err, ErrSig)
		}
	}
	client, messages := conversation(1)
	if err := client.Verify(messages[0], true, time.Now().Add(time.Hour)); !errors.Is(err, ErrTime) {
		t.Errorf("after an hour: got %v, want %v", err, ErrTime)
	}
}

// At most 99 messages in sequence may be unsigned, and a signature covers all of them.
func TestVerifyUnsignedMessages(t *testing.T) {
	for _, skipped := range []int{1, maxUnsigned, maxUnsigned + 1} {
		client, query := Start(testKey, request(), now)
		r, signed, _ := Find(query)
		s := accept(t, r, signed, now)
		err := client.Verify(s.Sign(request()), false, time.Now())
		var covered []byte
		for range skipped {
			covered = append(covered, request()...)
			err = errors.Join(err, client.Verify(request(), false, time.Now()))
		}
		last := s.record(request(), time.Now())
		last.MAC = last.mac(testKey.Secret, s.prior, append(covered, request()...), true)
		err = errors.Join(err, client.Verify(last.Append(request()), true, time.Now()))
		if skipped <= maxUnsigned && err != nil || skipped > maxUnsigned && !errors.Is(err, ErrUnsigned) {
			t.Errorf("%d unsigned messages: got %v", skipped, err)
		}
	}
}

// Find does not panic, and finds the records that Append writes.
func FuzzFind(f *testing.F) {
	_, query := Start(testKey, request(), now)
	f.Add(query)
	f.Add(request())
	f.Add((&Record{Key: wire.Root, Algorithm: wire.Root, Other: []byte("other")}).Append(request()))
	f.Fuzz(func(t *testing.T, message []byte) {
		r, signed, err := Find(message)
		if r == nil || err != nil {
			return
		}
		again, rest, err := Find(r.Append(bytes.Clone(signed)))
		if err != nil || again == nil || !bytes.Equal(rest, signed) || again.Key != r.Key || again.Algorithm != r.Algorithm ||
			again.Time != r.Time || again.Fudge != r.Fudge || !bytes.Equal(again.MAC, r.MAC) || again.ID != r.ID || again.Error != r.Error || !bytes.Equal(again.Other, r.Other) {
			t.Errorf("got %+v, %x, %v, want %+v, %x", again, rest, err, r, signed)
		}
		_, _ = Accept(keys, r, signed, now)
	})
}

// FuzzVerify: a stream of messages is accepted up to the first one that is changed, missing, repeated
// or not covered by the next signature, and no further signature is. Of each two bytes of script, the
// first says what happens to a message, the second which bit of it is changed.
func FuzzVerify(f *testing.F) {
	const signs, changes, loses, repeats = 1, 2, 4, 8
	f.Add([]byte{signs, 0, 0, 0, 0, 0, signs, 0})
	f.Add([]byte{signs, 0, signs | loses, 0, signs, 0})
	f.Add([]byte{signs, 0, repeats, 0, signs, 0})
	f.Add([]byte{signs, 0, changes, 31, signs | changes, 200, signs, 0})
	f.Add(slices.Concat([]byte{signs, 0}, make([]byte, 2*maxUnsigned), []byte{signs, 0}))
	f.Add(slices.Concat([]byte{signs, 0}, make([]byte, 2*maxUnsigned+2), []byte{signs, 0}))

	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 2*255)]
		client, query := Start(testKey, request(), now)
		found, signed, _ := Find(query)
		server := accept(t, found, signed, now)
		var covered []byte // messages since the last signature
		intact := true

		for ; len(script) >= 2; script = script[2:] {
			m := request()
			for i := 1; i < 4; i++ { // one changed bit does not make it another message
				m[i] = byte(len(script) / 2)
			}
			sent, does, last := bytes.Clone(m), script[0], len(script) < 4
			covered = append(covered, m...)
			if does&signs != 0 {
				r := server.record(m, now)
				r.MAC = r.mac(testKey.Secret, server.prior, covered, server.count > 0)
				server.prior, covered = r.MAC, nil
				server.count++
				sent = r.Append(sent)
			}
			if does&loses != 0 {
				intact = false
				continue
			}
			if does&changes != 0 {
				sent[int(script[1])/8%len(sent)] ^= 1 << (script[1] % 8)
			}

			for range 1 + does&repeats/repeats {
				r, got, _ := Find(sent)
				want := intact && does&changes == 0 &&
					(r != nil || client.count > 0 && client.skipped < maxUnsigned && !last)
				err := client.Verify(sent, last, now)
				if want && err != nil || err == nil && r != nil && (!intact || !bytes.Equal(got, m)) {
					t.Fatalf("message %x: got %v, intact %t, changed from %x", sent, err, intact, m)
				}
				if err != nil {
					return
				}
				// A repeated message is not the one that the next signature covers.
				intact = intact && does&repeats == 0 && (r != nil || does&(signs|changes) == 0)
			}
		}
	})
}

// A reply to a query whose MAC is cut short is signed, with the MAC as it was received.
func TestSignAfterTruncation(t *testing.T) {
	r, signed := resigned(t, func(r *Record) { r.MAC = r.MAC[:20] })
	s := accept(t, r, signed, now)
	reply, message, err := Find(s.Sign(request()))
	if err != nil || reply.Error != BadTrunc || !bytes.Equal(reply.MAC, reply.mac(testKey.Secret, r.MAC, message, false)) {
		t.Errorf("got %+v, %v, want a signed record with error BADTRUNC", reply, err)
	}
}
