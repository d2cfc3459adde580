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

// A Chaos tells what the server is, in class CH: the chaos directive.
//
//	chaos [VERSION [AUTHORS...]] {
//	    statistics
//	}
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
// With statistics it answers for these names as well, in the form of dnsmasq 2.90,
// so that kube-dns's sidecar and exporters of dnsmasq's numbers can be used:
//
//	hits.bind        queries that this server answered by itself: from the cache, by
//	                 data of its own, or with an error of its own; these questions, too
//	misses.bind      queries that were sent on, or waited for one that was
//	insertions.bind  answers that were put into the cache
//	evictions.bind   those that had to make room for others before their end
//	cachesize.bind   how many answers the cache may have: success and denial together
//	auth.bind        0: no zone is served in dnsmasq's way
//	servers.bind     for each upstream of the forwards a text: its address, how many
//	                 questions it was sent, how many of these it did not answer
//	copyright.bind   who wrote this
//
// The numbers are of the server block, but those of upstreams, which are of the
// process. They go on from where they were after a reload, those of the cache as long
// as its entries stay. A query that nobody gets a reply to is not counted. Hits and
// misses are metrics, too: seamark_chaos_hits_total and
// seamark_chaos_misses_total{server,zone,view}.
//
//	.:1053 {
//	    chaos {
//	        statistics
//	    }
//	    cache
//	    forward . 192.0.2.53:53
//	}
//
// Same as CoreDNS, but for what is said unless it is given; statistics is ours.
// Same as dnsmasq: what a hit is and what a miss is, that questions for these names
// are hits, and the form of the texts. Differs: queries over TCP are counted, too;
// insertions are counted by answer, and not by record; upstreams fail if they do not
// answer, and not only if nothing could be sent to them.
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
	counts := false
	err := errors.Join(config.Once(uses), d.Options(corefile.Option{Name: "statistics", Set: corefile.Flag(&counts)}))
	if counts {
		newStatistics(b, c)
	} else {
		b.Handle(c)
	}
	return err
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

// say adds a TXT record of class CH with these texts, an empty one if there are
// none.
func say(q *dns.Query, texts ...string) {
	const longest = 255 // a character-string has no more (RFC 1035 §3.3)
	if len(texts) == 0 {
		texts = []string{""}
	}
	size := 0
	for _, text := range texts {
		size += 1 + min(len(text), longest)
	}
	var room [300]byte
	record := wire.AppendRecordHeader(room[:0], wire.OwnerIsQuestion, wire.TypeTXT, 0, size)
	const class = len(wire.OwnerIsQuestion) + 3 // its second byte, behind the type
	record[class] = byte(wire.ClassCH)
	for _, text := range texts {
		text = text[:min(len(text), longest)]
		record = append(append(record, byte(len(text))), text...)
	}
	q.Answer.Append(wire.Answers, record, 1)
}
