package directive

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

// Chaos answers queries about the server in class CH: the chaos directive. Its reference page
// is docs/reference/directives/chaos.md.
type Chaos struct {
	version, host string
	authors       []string
}

// SetupChaos sets up the chaos directive.
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

	statistics := false
	err := errors.Join(config.Once(uses), d.Options(
		corefile.Option{Usage: "statistics", Set: corefile.Flag(&statistics)},
	))
	if statistics {
		setupStatistics(b, c)
	} else {
		b.Handle(c)
	}
	return err
}

// AnyClass reports that chaos answers queries of classes other than IN.
func (*Chaos) AnyClass() dns.ClassUse { return dns.ClassAnswered }

// ServeDNS answers for the names on the reference page.
func (c *Chaos) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Class != wire.ClassCH || q.Type != wire.TypeTXT {
		return dns.Next
	}
	switch string(q.Name()) {
	case "\x07version\x04bind\x00", "\x07version\x06server\x00":
		appendTXT(q, c.version)
	case "\x08hostname\x04bind\x00", "\x02id\x06server\x00":
		appendTXT(q, c.host)
	case "\x07authors\x04bind\x00":
		first := rand.IntN(len(c.authors))
		for i := range c.authors {
			appendTXT(q, c.authors[(first+i)%len(c.authors)])
		}
	default:
		return dns.Next
	}
	return dns.Done
}

// appendTXT adds a TXT record of class CH with texts to q's answer. Without
// texts it adds one empty text.
func appendTXT(q *dns.Query, texts ...string) {
	const maxText = 255 // length of a character-string (RFC 1035 §3.3)
	if len(texts) == 0 {
		texts = []string{""}
	}
	size := 0
	for _, text := range texts {
		size += 1 + min(len(text), maxText)
	}

	var buf [300]byte
	record := wire.AppendRecordHeader(buf[:0], wire.OwnerIsQuestion, wire.TypeTXT, 0, size)
	const class = len(wire.OwnerIsQuestion) + 3 // the second byte of CLASS, after TYPE
	record[class] = byte(wire.ClassCH)
	for _, text := range texts {
		text = text[:min(len(text), maxText)]
		record = append(append(record, byte(len(text))), text...)
	}
	q.Answer.Append(wire.Answers, record, 1)
}
