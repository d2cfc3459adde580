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

// Chaos answers queries about the server in class CH: the chaos directive.
//
//	chaos [VERSION [AUTHORS...]] {
//	    statistics
//	}
//
// It answers TXT queries of class CH for these names, with a TTL of 0:
//
//	version.bind, version.server   VERSION; the default is Seamark and its version
//	authors.bind                   one record for each of AUTHORS, starting with a
//	                               random one; the default is "The Seamark authors"
//	hostname.bind, id.server       the machine's host name
//
// Other queries go to the directives below. Texts are cut after 255 bytes.
//
//	.:1053 {
//	    chaos "DNS of the shop" "Ann Example" "Bob Example"
//	    whoami
//	}
//
// With statistics it also answers for the names of dnsmasq 2.90's statistics,
// in the same form, so that you can keep kube-dns's sidecar and exporters made
// for dnsmasq:
//
//	hits.bind        queries that this server answered itself: from the cache, from
//	                 its own data or with its own error, including these queries
//	misses.bind      queries that were forwarded, or that waited for an equal
//	                 forwarded query
//	insertions.bind  answers that were stored in the cache
//	evictions.bind   answers that were removed before they expired, to make room
//	cachesize.bind   capacity of the cache, in answers: success plus denial
//	auth.bind        0: this server has no authoritative mode like dnsmasq's
//	servers.bind     one text for each upstream: its address, the number of queries
//	                 sent to it, and the number of failed ones
//	copyright.bind   the copyright notice
//
// The numbers are per server block, except for upstreams, whose numbers are per
// process. They survive a reload; the cache's numbers do so as long as its entries
// do. A query without a reply is not counted. Hits and misses are also metrics:
// seamark_chaos_hits_total and seamark_chaos_misses_total{server,zone,view}.
//
//	.:1053 {
//	    chaos {
//	        statistics
//	    }
//	    cache
//	    forward . 192.0.2.53:53
//	}
//
// Same as CoreDNS, except for the default texts; statistics is ours. Same as
// dnsmasq: the definition of hits and misses, that queries for these names are
// hits, and the form of the texts. Differs: queries over TCP are counted;
// insertions count answers, not records; an upstream failure is a query without
// an answer, not only a query that could not be sent.
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
	err := errors.Join(config.Once(uses), d.Options(corefile.Option{Usage: "statistics", Set: corefile.Flag(&statistics)}))
	if statistics {
		setupStatistics(b, c)
	} else {
		b.Handle(c)
	}
	return err
}

// AnyClass reports that chaos answers queries of classes other than IN.
func (*Chaos) AnyClass() bool { return true }

// ServeDNS answers for the names listed in the type's comment.
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
