package directive

import (
	"errors"
	"os"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// NSID identifies the server to clients that request it: the nsid directive. Its reference
// page is docs/reference/directives/nsid.md.
type NSID struct{ data []byte }

// SetupNSID sets up the nsid directive.
func SetupNSID(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	text := strings.Join(d.Words(), " ")
	if len(d.Args) == 0 {
		var err error
		if text, err = os.Hostname(); err != nil {
			return d.Errorf("reading the host name: %w; give DATA", err)
		}
	}
	const maxData = wire.MinUDPSize - 1 // the smallest reply has no room for more
	errs := []error{config.Once(uses), d.Options()}
	if len(text) > maxData || text == "" {
		errs = append(errs, d.Errorf("want DATA of 1..%d bytes, got %d", maxData, len(text)))
	}
	b.Handle(&NSID{[]byte(text)})
	return errors.Join(errs...)
}

// AnyClass lets nsid see queries of every class. It answers none.
func (*NSID) AnyClass() dns.ClassUse { return dns.ClassPassed }

// ServeDNS adds the option to the reply if the query has it.
func (n *NSID) ServeDNS(q *dns.Query) dns.Verdict {
	if wire.HasOption(q.Request.Options(q.Packet()), wire.OptionNSID) {
		q.AddReplyOption(wire.OptionNSID, n.data)
	}
	return dns.Next
}
