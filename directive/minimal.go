package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Minimal removes the records that an answer does not need from replies: the minimal
// directive. Its reference page is docs/reference/directives/minimal.md.
type Minimal struct{}

// SetupMinimal sets up the minimal directive.
func SetupMinimal(b *config.Block, uses []corefile.Directive) error {
	b.Handle(&Minimal{})
	return config.NoArguments(uses)
}

// ServeDNS passes every query on.
func (*Minimal) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// FinishDNS removes the authority and additional sections.
func (*Minimal) FinishDNS(q *dns.Query) {
	count := &q.Answer.Count
	isMinimal := count[wire.Authority] == 0 && count[wire.Additional] == 0
	if isMinimal || q.RCode != wire.NoError || count[wire.Answers] == 0 ||
		q.Type.IsTransfer() {
		return
	}
	q.Answer.DeleteFunc(func(s wire.Section, _ wire.Record) bool { return s != wire.Answers })
}
