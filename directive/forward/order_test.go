package forward

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
)

// Each record comes behind the one that leads to its owner, whatever the order in the reply.
func TestAnswersInChainOrder(t *testing.T) {
	const cnameSig = "RRSIG CNAME 8 2 60 20300101000000 20200101000000 1 example. AAAA"
	cases := map[string]struct {
		do      bool
		records []string // in the right order
	}{
		"a CNAME record": {false, []string{"w.example. 60 IN CNAME a.example.", "a.example. 60 IN A 192.0.2.1"}},
		"a chain": {false, []string{
			"w.example. 60 IN CNAME c.example.", "c.example. 60 IN CNAME b.test.", "b.test. 60 IN CNAME a.example.",
			"a.example. 60 IN A 192.0.2.1",
		}},
		"another letter case": {false, []string{
			"W.EXAMPLE. 60 IN CNAME C.example.", "c.EXAMPLE. 60 IN CNAME A.example.", "a.example. 60 IN A 192.0.2.1",
		}},
		"a dangling chain": {false, []string{"w.example. 60 IN CNAME c.example.", "c.example. 60 IN CNAME b.example."}},
		"a DNAME record": {false, []string{
			"example. 60 IN DNAME test.", "w.example. 60 IN CNAME w.test.", "test. 60 IN DNAME invalid.",
			"w.test. 60 IN CNAME w.invalid.", "w.invalid. 60 IN A 192.0.2.1",
		}},
		"with signatures": {true, []string{
			"w.example. 60 IN CNAME c.example.", "w.example. 60 IN " + cnameSig, "c.example. 60 IN CNAME a.example.",
			"c.example. 60 IN " + cnameSig, "a.example. 60 IN A 192.0.2.1",
		}},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, r := range c.records {
				want = append(want, rr(r).String())
			}
			for range 50 {
				shuffled := slices.Clone(c.records)
				random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				packet, question := packReply(t, "w.example.", mdns.TypeA, append(shuffled, "--", "example. 60 IN NS a.example.")...)
				r, why := new(parser).parse(packet, question, c.do)
				if why != valid {
					t.Fatalf("%v: got %s, want a valid reply", shuffled, why)
				}
				var m mdns.Msg
				if err := m.Unpack(replyMessage(r, question)); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, r := range m.Answer {
					got = append(got, r.String())
				}
				if !slices.EqualFunc(got, want, strings.EqualFold) {
					t.Fatalf("reply with\n%s\ngot\n%s\nwant\n%s", strings.Join(shuffled, "\n"), strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}
