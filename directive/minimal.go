package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Minimal removes the records that an answer does not need from replies: the
// minimal directive.
//
//	minimal
//
// Use it for smaller replies. A NOERROR reply with records in its answer
// section loses its authority and additional sections. Replies without an
// answer, referrals and errors keep them: clients need these records to cache
// the reply or to ask the next server. minimal takes no arguments and no
// options.
//
//	.:1053 {
//	    minimal
//	    whoami
//	}
//
// Same as CoreDNS.
type Minimal struct{}

// SetupMinimal sets up the minimal directive.
func SetupMinimal(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Minimal{})
	return noArguments(uses)
}

// ServeDNS passes every query on.
func (*Minimal) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// FinishDNS removes the authority and additional sections.
func (*Minimal) FinishDNS(q *dns.Query) {
	count := &q.Answer.Count
	if q.RCode != wire.NoError || count[wire.Answers] == 0 || count[wire.Authority] == 0 && count[wire.Additional] == 0 ||
		q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		return
	}
	q.Answer.DeleteFunc(func(s wire.Section, _ wire.Record) bool { return s != wire.Answers })
}
