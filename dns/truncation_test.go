package dns

import (
	"bytes"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// TC is set only if records that the client needs were removed.
func TestTruncation(t *testing.T) {
	for _, c := range []struct {
		removed string
		records [3]int // of 100 bytes each
		aa, do  bool
		foreign bool // from another server
		want    [3]int
		wantTC  bool
	}{
		{"answer records", [3]int{6, 0, 0}, true, false, false, [3]int{4, 0, 0}, true},
		{"name servers of a referral", [3]int{0, 6, 0}, false, false, false, [3]int{0, 4, 0}, true},
		{"glue", [3]int{0, 2, 6}, false, false, false, [3]int{0, 2, 2}, true},
		{"proofs of a negative answer", [3]int{0, 6, 0}, true, true, false, [3]int{0, 4, 0}, true},
		{"proofs of an answer", [3]int{1, 6, 0}, true, true, false, [3]int{1, 3, 0}, true},
		{"authority of an answer without DO", [3]int{1, 6, 0}, true, false, false, [3]int{1, 3, 0}, false},
		{"additional records of an answer", [3]int{1, 1, 6}, true, true, false, [3]int{1, 1, 2}, false},
		{"additional records of a negative answer", [3]int{0, 1, 6}, true, false, false, [3]int{0, 1, 3}, false},
		{"additional records of another server's answer", [3]int{0, 1, 6}, false, false, true, [3]int{0, 1, 3}, false},
		{"none", [3]int{1, 1, 1}, false, true, false, [3]int{1, 1, 1}, false},
	} {
		r := newRig(t, 1, map[string]*Chain{".": chain(serve(func(q *Query) Verdict {
			for s, n := range c.records {
				for i := range n {
					q.Answer.Append(wire.Section(s), wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.Type(65280+i), 5, 88), 0)
					q.Answer.Append(wire.Section(s), bytes.Repeat([]byte{byte(i)}, 88), 1)
				}
			}
			q.AA, q.Cacheable = c.aa, c.foreign
			return Done
		}))})
		m := newQuery("a.zone", mdns.TypeA)
		if c.do {
			m.SetEdns0(512, true)
		}
		_, reply := r.ask(m)
		extra := len(reply.Extra)
		if reply.IsEdns0() != nil {
			extra--
		}
		if got := [3]int{len(reply.Answer), len(reply.Ns), extra}; got != c.want || reply.Truncated != c.wantTC {
			t.Errorf("%s removed: got records %v, TC %v; want %v, %v", c.removed, got, reply.Truncated, c.want, c.wantTC)
		}
	}
}
