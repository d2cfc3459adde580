package tcx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A records answers with records in the form of an Answer, and allows to repeat them. It may rotate them.
type records struct {
	sections [3][]string
	tick     time.Duration
	rotates  bool
}

func (r *records) ServeDNS(q *dns.Query) dns.Verdict {
	for s, all := range r.sections {
		for _, one := range all {
			q.Answer.Append(wire.Section(s), []byte(one), 1)
		}
	}
	q.AllowRepeat(dns.Repeat{For: time.Hour, Tick: r.tick})
	return dns.Done
}

func (r *records) Repetition() dns.Repetition { return dns.Repetition{Rotates: r.rotates} }

// install makes r answer.
func (r *records) install(b *repeatBench) {
	b.clear()
	chain := new(dns.Chain)
	chain.Add("records", r)
	mux := dns.NewMux(nil, nil)
	_ = mux.Route(wire.Root, chain)
	mux.Repeat(b.replies.Keep, b.replies.Forget)
	b.port.Swap(mux)
}

// record returns a record whose owner is the question's name, or a name of its own.
func record(owner string, t wire.Type, ttl uint32, data string) string {
	if owner == "" {
		owner = wire.OwnerIsQuestion
	}
	return string(append(wire.AppendRecordHeader(nil, owner, t, ttl, len(data)), data...))
}

// older makes the stored reply to a query older.
func (b *repeatBench) older(packet []byte, by time.Duration) {
	first := setOf(packet)
	for i := first; i < first+replyWays; i++ {
		if r := &b.replies.replies[i]; r.until.Load() > uint64(monotonic()) && r.aged != 0 {
			r.aged -= uint64(by)
		}
	}
}

// TTLs of the cache's answers decrease by one each second, from the tick on, and no further than to zero.
// Checksums are right. If there are more than eight, the reply is repeated for a second.
func TestRepeatTTLs(t *testing.T) {
	b := newRepeatBench(t)
	for size := range 4 { // even and odd offsets
		text := string(rune(size)) + "abc"[:size]
		r := records{tick: time.Second, sections: [3][]string{
			{record("", wire.TypeTXT, 70_000, text), record("", wire.TypeA, 300, "abcd"), record("", wire.TypeA, 65_536, "efgh")},
			{record("", wire.TypeTXT, 3, text), record("", wire.TypeTXT, 1<<31-1, "")},
		}}
		r.install(b)
		for _, c := range []conversation{over4, over6} {
			reply := b.serve(query, c.pod, c.alias)
			aged := 0
			for _, seconds := range []int{0, 1, 2, 3, 4, 300, 301, 65_535, 65_537, 90_000} {
				b.older(query, time.Duration(seconds-aged)*time.Second)
				aged = seconds
				want := olderReply(t, reply, uint32(seconds))
				for _, f := range []frame{{}, {withoutChecksum: c.pod.Is4()}} {
					f.payload = query
					in := c.query(f)
					b.same(fmt.Sprintf("%d bytes of text, %d s", size, seconds), in, b.send(in), c.reply(f, want))
				}
			}
		}
	}

	r := records{tick: time.Second}
	for range maxTTLs + 1 {
		r.sections[0] = append(r.sections[0], record("", wire.TypeTXT, 5, ""))
	}
	r.install(b)
	b.serve(query, pod4, alias4)
	first := setOf(query)
	for i := first; i < first+replyWays; i++ {
		if left := int64(b.replies.replies[i].until.Load()) - monotonic(); left > int64(time.Second) {
			t.Errorf("with nine TTLs the reply is repeated for %s, want at most a second", time.Duration(left))
		}
	}
	if b.send(over4.query(frame{payload: query})) == nil {
		t.Error("with nine TTLs: got no reply")
	}
}

// olderReply returns a reply whose TTLs are less.
func olderReply(t *testing.T, reply []byte, by uint32) []byte {
	t.Helper()
	older := bytes.Clone(reply)
	for off := len(query); off < len(older); {
		r, ok := wire.ReadRecord(older, off)
		if !ok {
			t.Fatalf("%x has no record at %d", older, off)
		}
		r.SetTTL(older, r.TTL(older)-min(by, r.TTL(older)))
		off = r.Next
	}
	return older
}

// The tick is when the TTLs decrease the first time.
func TestRepeatTick(t *testing.T) {
	b := newRepeatBench(t)
	r := records{tick: 300 * time.Millisecond, sections: [3][]string{{record("", wire.TypeA, 60, "abcd")}}}
	r.install(b)
	before := uint64(monotonic())
	b.serve(query, pod4, alias4)
	after := uint64(monotonic())
	for i := range b.replies.replies {
		if aged := b.replies.replies[i].aged; aged != 0 {
			early := uint64(700 * time.Millisecond)
			// What the answer has taken may be in the tick, too.
			if aged+early < before || aged+early > after {
				t.Errorf("time of the TTLs: got %d, want 700 ms before %d to %d", aged, before, after)
			}
			return
		}
	}
	t.Error("got no reply with TTLs that decrease")
}

// Addresses take turns: after as many replies as there are addresses, each one was the first once, and
// the order is a rotation. Checksums and what follows the addresses are right.
func TestRepeatTurns(t *testing.T) {
	b := newRepeatBench(t)
	for _, family := range []struct {
		t    wire.Type
		size int
	}{{wire.TypeA, 4}, {wire.TypeAAAA, 16}} {
		for n := 1; n <= maxTurns; n++ {
			r := records{rotates: true, tick: time.Second}
			alias := record("", wire.TypeCNAME, 60, "\x03www\x04from\x07example\x00")
			r.sections[0] = []string{alias}
			var addresses []string
			for i := range n {
				addresses = append(addresses, record("\xc0\x2a", family.t, 30, string(bytes.Repeat([]byte{byte('a' + i)}, family.size))))
			}
			r.sections[0] = append(r.sections[0], addresses...)
			if n < maxTurns { // one TTL is the alias's
				r.sections[1] = []string{record("", wire.TypeNS, 60, "\x00")}
			}
			r.install(b)
			reply := b.serve(query, pod6, alias6)
			from := bytes.Index(reply, []byte(addresses[0]))
			for turn := range 2 * n {
				want := bytes.Clone(reply[:from])
				for i := range n {
					want = append(want, addresses[(turn+i)%n]...)
				}
				want = append(want, reply[len(want):]...)
				in := over6.query(frame{payload: query})
				b.same(fmt.Sprintf("%d addresses, turn %d", n, turn), in, b.send(in), over6.reply(frame{}, want))
			}
		}
	}
}

// If the addresses cannot be rotated by the programs, the reply is not repeated.
func TestRepeatNoTurns(t *testing.T) {
	b := newRepeatBench(t)
	a := func(owner, data string) string { return record(owner, wire.TypeA, 30, data) }
	mx := record("", wire.TypeMX, 30, string(binary.BigEndian.AppendUint16(nil, 1))+"\x00")
	many := []string{}
	for range maxTurns + 1 {
		many = append(many, a("", "abcd"))
	}
	for name, c := range map[string]struct {
		sections [3][]string
		want     bool
	}{
		"one address":      {[3][]string{{a("", "abcd")}}, true},
		"texts":            {[3][]string{{record("", wire.TypeTXT, 30, ""), record("", wire.TypeTXT, 30, "\x00")}}, true},
		"names of servers": {[3][]string{{a("", "abcd")}, nil, {a("\x01a\x00", "abcd"), a("\x01b\x00", "abcd")}}, true},
		"two sets":         {[3][]string{{a("", "abcd"), a("", "efgh"), a("\x01b\x00", "abcd"), a("\x01b\x00", "efgh")}}, false},
		"MX":               {[3][]string{{mx, mx}}, false},
		"nine addresses":   {[3][]string{many}, false},
		"other section":    {[3][]string{nil, nil, {a("", "abcd"), a("", "efgh")}}, false},
		"odd size":         {[3][]string{{a("\x01a\x00", "abcd"), a("\x01a\x00", "efgh")}}, false},
		"large":            {[3][]string{{a("\x1512345678901234567890a\x00", "abcd"), a("\x1512345678901234567890a\x00", "efgh")}}, false},
		"TTLs":             {[3][]string{{a("", "abcd"), record("", wire.TypeA, 31, "efgh")}}, false},
	} {
		r := records{rotates: true, sections: c.sections}
		r.install(b)
		b.serve(query, pod4, alias4)
		if got := b.send(over4.query(frame{payload: query})); (got != nil) != c.want {
			t.Errorf("%s: got the reply %x, want one: %t", name, got, c.want)
		}
	}
}
