package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Minimal takes out of replies what their answer does not need: the minimal
// directive.
//
//	minimal
//
// It has no options. A reply that has an answer, and NOERROR as its code, loses
// its authority and additional sections. Names without an answer, referrals and
// errors keep theirs: there they say how long the answer holds, and where to go
// on.
//
//	.:1053 {
//	    minimal
//	    whoami
//	}
//
// Same as CoreDNS.
type Minimal struct{}

// SetupMinimal is the Setup of minimal.
func SetupMinimal(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Minimal{})
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options())
}

// ServeDNS lets every query by.
func (*Minimal) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// FinishDNS cuts the answer behind its first section.
func (*Minimal) FinishDNS(q *dns.Query) {
	count := &q.Answer.Count
	if q.RCode != wire.NoError || count[wire.Answers] == 0 || count[wire.Authority] == 0 && count[wire.Additional] == 0 ||
		q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		return
	}
	end := q.Answer.RecordsOffset()
	q.Answer.Walk(func(s wire.Section, r wire.Record) bool {
		if s == wire.Answers {
			end = r.Next
		}
		return s == wire.Answers
	})
	q.Answer.Buf = q.Answer.Buf[:end]
	count[wire.Authority], count[wire.Additional] = 0, 0
}
