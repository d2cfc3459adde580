package rewrite

import (
	"bytes"
	"testing"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// For every name, the reply is a complete message with the question of the client, and
// the handlers below get a valid name.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{
		"\x01a\x07example\x03org\x00", "\x03old\x03www\x00", "\x05a.b\\c\x07example\x03net\x00", "\x02\xc3\xa4\x04deep\x07example\x03net\x00",
		"\x03{1}\x04apps\x07example\x03org\x00", "\x00", "\x01.\x06consul\x00", "\x01\x00\x06consul\x00",
		"\x3fabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabc\x04apps\x07example\x03org\x00",
	} {
		f.Add([]byte(seed), uint16(wire.TypeA))
	}
	below := &answerAll{func(q *dns.Query) {
		seen := q.Name()
		labels := 0
		for i := 0; seen[i] != 0; i += int(seen[i]) + 1 {
			labels++
		}
		if len(seen) > wire.MaxName || labels != q.Labels() {
			f.Errorf("handler below: got the name %q of %d bytes with %d labels, want %d labels", seen, len(seen), q.Labels(), labels)
		}
		// Owner names: the query's name, uncompressed, and a suffix of the query's
		// name; and two targets.
		q.Answer.Append(wire.Answers, append(wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeCNAME, 5, len(seen)), seen...), 1)
		q.Answer.Append(wire.Answers, append(wire.AppendRecordHeader(nil, seen, wire.TypeA, 5, 4), 192, 0, 2, 1), 1)
		owner := wire.QuestionPointer(q.LabelOffset(q.Labels()))
		q.Answer.Append(wire.Authority, append(wire.AppendRecordHeader(nil, owner[:], wire.TypeNS, 5, len(seen)), seen...), 1)
	}}
	r := newTestBlock(f, `.:53 {
		rewrite continue name prefix old. new.
		rewrite continue name substring .consul. .{1}.
		rewrite continue name suffix .example.net .example.org answer auto
		rewrite continue name regex (.*)\.apps\.example\.org {1}.{1}.org answer name (.*)\.org {1}.{1} answer value (a+)(b*) {2}.{1}.net
		rewrite continue ttl regex .* 7-9
		rewrite type TXT A
	}`, below)
	f.Fuzz(func(t *testing.T, name []byte, qtype uint16) {
		packet := wire.AppendRequest(nil, 7, wire.FlagRD, name, wire.Type(qtype))
		reply := r.Serve(packet, dns.UDP)
		if len(reply) == 0 {
			return // not a query
		}
		if question := r.Last.Request.Question(packet); !bytes.Equal(reply[wire.HeaderLen:wire.HeaderLen+len(question)], question) {
			t.Fatalf("reply: got the question %q, want %q", reply[wire.HeaderLen:], question)
		}
		off, records := wire.HeaderLen+len(r.Last.Request.Question(packet)), int(reply[7])+int(reply[9])+int(reply[11])
		for range records {
			rec, ok := wire.ReadRecord(reply, off)
			if !ok {
				t.Fatalf("%q: cannot read a record of the reply %x", name, reply)
			}
			if _, _, ok := wire.ReadName(nil, reply, rec.Owner); !ok {
				t.Fatalf("%q: cannot read an owner name of the reply %x", name, reply)
			}
			off = rec.Next
		}
		if off != len(reply) {
			t.Fatalf("%q: got %d bytes after the last record of the reply %x, want 0", name, len(reply)-off, reply)
		}
	})
}
