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

// An NSID tells clients which of several servers they have reached: the nsid
// directive.
//
//	nsid [DATA]
//
// A query with the NSID option of EDNS (RFC 5001; dig +nsid) gets DATA in the
// reply's, the machine's host name unless given. Several words are one text.
//
//	.:1053 {
//	    nsid "zone a, rack 3"
//	    whoami
//	}
//
// Same as CoreDNS.
type NSID struct{ data []byte }

// SetupNSID is the Setup of nsid.
func SetupNSID(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	text := strings.Join(d.Words(), " ")
	if len(d.Args) == 0 {
		var err error
		if text, err = os.Hostname(); err != nil {
			return d.Errorf("no DATA is given, and there is no host name: %w", err)
		}
	}
	const most = 512 // a reply of the least size would never have it
	errs := []error{config.Once(uses), d.Options()}
	if len(text) >= most || text == "" {
		errs = append(errs, d.Errorf("want DATA of 1..%d bytes, got %d", most-1, len(text)))
	}
	b.Handle(&NSID{[]byte(text)})
	return errors.Join(errs...)
}

// AnyClass says that queries of all classes are told.
func (*NSID) AnyClass() bool { return false }

// ServeDNS adds the option to the reply if the query has it.
func (n *NSID) ServeDNS(q *dns.Query) dns.Verdict {
	for code := range wire.Options(q.Request.Options(q.Packet())) {
		if code == wire.OptionNSID {
			q.AddReplyOption(wire.OptionNSID, n.data)
			break
		}
	}
	return dns.Next
}
