package handler

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime/debug"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Chaos tells what the server is, in class CH: the chaos directive.
//
//	chaos [VERSION [AUTHORS...]]
//
// It answers TXT questions of class CH, with a TTL of 0, for
//
//	version.bind, version.server   VERSION, unless given Seamark and its version
//	authors.bind                   AUTHORS, a record for each, the first at random;
//	                               without them "The Seamark authors"
//	hostname.bind, id.server       the machine's host name
//
// Other questions go on to the handlers below. Texts end after 255 bytes.
//
//	.:1053 {
//	    chaos "DNS of the shop" "Ann Example" "Bob Example"
//	    whoami
//	}
//
// Same as CoreDNS, but for what is said unless it is given.
type Chaos struct {
	version, host string
	authors       []string
}

// SetupChaos is the Setup of chaos.
func SetupChaos(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	c := &Chaos{version: "Seamark", authors: []string{"The Seamark authors"}}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		c.version += " " + info.Main.Version
	}
	c.host, _ = os.Hostname()
	if words := d.Words(); len(words) > 0 {
		c.version = words[0]
		if len(words) > 1 {
			c.authors = words[1:]
		}
	}
	b.Handle(c)
	return errors.Join(config.Once(uses), d.Options())
}

// AnyClass says that there are answers of another class than IN.
func (*Chaos) AnyClass() bool { return true }

// ServeDNS answers the names above.
func (c *Chaos) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Class != wire.ClassCH || q.Type != wire.TypeTXT {
		return dns.Next
	}
	switch string(q.Name()) {
	case "\x07version\x04bind\x00", "\x07version\x06server\x00":
		say(q, c.version)
	case "\x08hostname\x04bind\x00", "\x02id\x06server\x00":
		say(q, c.host)
	case "\x07authors\x04bind\x00":
		first := rand.IntN(len(c.authors))
		for i := range c.authors {
			say(q, c.authors[(first+i)%len(c.authors)])
		}
	default:
		return dns.Next
	}
	return dns.Done
}

// say adds a TXT record of class CH.
func say(q *dns.Query, text string) {
	text = text[:min(len(text), 255)] // a character-string has no more (RFC 1035 §3.3)
	var room [300]byte
	record := wire.AppendHead(room[:0], wire.OwnerIsQuestion, wire.TypeTXT, 0, 1+len(text))
	const class = len(wire.OwnerIsQuestion) + 3 // its second byte, behind the type
	record[class] = byte(wire.ClassCH)
	q.Answer.Append(wire.Answers, append(append(record, byte(len(text))), text...), 1)
}
