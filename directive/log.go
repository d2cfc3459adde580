package directive

import (
	"errors"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Log writes a line for each query: the log directive.
//
//	log [NAMES...] [FORMAT] {
//	    class CLASSES...
//	}
//
// It logs the queries for NAMES and everything below them; without NAMES, all.
// It may be given several times: the first one whose NAMES hold the query's
// name has it. Lines go to standard output.
//
// class picks queries by their answer; the default is all.
//
//	success   the name has what was asked for, or more servers to ask
//	denial    NXDOMAIN, or no records of that type
//	error     anything else: SERVFAIL, REFUSED, NOTIMP …, and dropped queries
//	all       the three of them
//
// FORMAT is text with placeholders; it has at least one brace, or it would be a
// name. {common} is the default, {combined} is that and "{>opcode}" in quotes.
//
//	{type} {class} {name}  of the question; the name in lower case
//	{proto}                udp or tcp
//	{remote} {port}        the client's address, an IPv6 one in brackets, and port
//	{local}                the address that was asked
//	{size} {rsize}         of the query and of the reply, in bytes
//	{rcode}                response code; - if the query was dropped
//	{duration}             from packet to reply, in seconds: 0.000102s
//	{>id} {>opcode} {>do}  of the query
//	{>bufsize}             what reply the client can take, in bytes
//	{>rflags}              flags of the reply: qr,aa,rd
//	{/PLUGIN/NAME}         what the metadata directive knows; - if nothing
//
// A line in the default format:
//
//	[INFO] 10.0.0.1:53012 - 4 "A IN example.org. udp 40 false 1232" NOERROR qr,aa,rd 106 0.000102s
//
// The format {json} writes an object on a line of its own instead. It may be
// followed by placeholders of metadata, which then are in it, and by nothing
// else: "{json} {/kubernetes/namespace}". Its keys, in this order:
//
//	time      when the query came: RFC 3339, UTC, with microseconds
//	server    the server block's address: "dns://:53"
//	zone      the server block's zone: "cluster.local."
//	view      the server block's view, "" if it has none
//	remote    the client's address, without brackets
//	port      the client's port, a number
//	local     the address that was asked
//	proto     "udp" or "tcp"
//	id        of the query, a number
//	opcode    a number, 0 for a query
//	class     "IN"
//	type      "A"
//	name      in lower case, with its final dot; special characters as \. or \046
//	do        whether the client asks for DNSSEC records
//	bufsize   the largest reply that the client takes, in bytes
//	size      of the query, in bytes
//	rcode     "NOERROR", null if the query was dropped
//	rflags    flags of the reply, a list: ["qr","aa"]
//	rsize     of the reply, in bytes; 0 if the query was dropped
//	answers   records in the answer section
//	duration  from packet to reply, in seconds: 0.000102
//	by        the directive that answered, "" if none did
//	error     what the errors directive would say; only if there is something
//	metadata  an object, only if the format names some: null for what is not known
//
// Lines wait in memory for whoever reads standard output, 1 MB at most; what
// does not fit is dropped and counted in seamark_log_dropped_lines_total.
//
// Everything that goes wrong in one zone, and one short line for whatever else
// is asked:
//
//	.:1053 {
//	    log cluster.local in-addr.arpa {
//	        class denial error
//	    }
//	    log . "{remote} asked {type} {name}: {rcode}"
//	    whoami
//	}
//
// Lines for a machine to read:
//
//	.:1053 {
//	    metadata
//	    log . "{json} {/kubernetes/namespace}"
//	    whoami
//	}
//
// Same as CoreDNS: syntax, placeholders, classes and the line. Differs: an
// unknown placeholder is an error; NXDOMAIN without a SOA record is a denial,
// too; a slow reader loses lines and delays no query; a query that failed has the
// code, flags and size of the reply that went out, and not "- - 0". A query that
// no server block is for is logged by none. Ours: {json}.
type Log struct {
	rules []rule
	out   *lines
}

// A rule is one use of the directive for one name.
type rule struct {
	zone    wire.Name
	format  *format
	classes class
}

// A class is a set of kinds of answers.
type class uint8

const (
	success class = 1 << iota
	denial
	failure
)

// SetupLog is the Setup of log.
func SetupLog(b *config.Block, uses []corefile.Directive) error {
	l := &Log{}
	var errs []error
	for _, d := range uses {
		errs = append(errs, l.use(d))
	}
	b.Offer(l)
	b.OnPlanned(func() error {
		for _, r := range l.rules {
			r.format.find(b)
		}
		return nil
	})
	b.OnStart(func(s *config.Start) (err error) {
		l.out, err = startLines(s, b)
		return err
	})
	return errors.Join(errs...)
}

func (l *Log) use(d corefile.Directive) error {
	names, text := d.Args, commonFormat
	if n := len(names); n > 0 && strings.Contains(names[n-1].Text, "{") {
		names, text = names[:n-1], names[n-1].Text
	}
	zones := []wire.Name{wire.Root}
	var errs []error
	if len(names) > 0 {
		var err error
		zones, err = config.ParseZones(d.Path, names)
		errs = append(errs, err)
	}
	f, err := parseFormat(text)
	if err != nil {
		errs = append(errs, d.Errorf("%v", err))
	}
	var classes class
	errs = append(errs, d.Options(corefile.Option{Name: "class", Min: 1, Max: -1, Set: func(o corefile.Directive) error {
		for _, word := range o.Words() {
			bits, ok := map[string]class{"success": success, "denial": denial, "error": failure, "all": success | denial | failure}[word]
			if !ok {
				return o.Errorf("want success, denial, error or all, got %q", word)
			}
			classes |= bits
		}
		return nil
	}}))
	if classes == 0 {
		classes = success | denial | failure
	}
	for _, zone := range zones {
		l.rules = append(l.rules, rule{zone, f, classes})
	}
	return errors.Join(errs...)
}

// ObserveDNS writes q's line.
func (l *Log) ObserveDNS(q *dns.Query) {
	for i := range l.rules {
		r := &l.rules[i]
		if !wire.Within(q.Name(), r.zone) {
			continue
		}
		if r.classes&classify(q) != 0 {
			var room [1024]byte
			l.out.write(r.format.append(room[:0], q))
		}
		return
	}
}

func classify(q *dns.Query) class {
	switch {
	case q.Dropped() || q.RCode != wire.NoError && q.RCode != wire.NXDomain:
		return failure
	case q.RCode == wire.NXDomain:
		return denial
	case q.Answer.Count[wire.Answers] == 0 && hasSOA(q):
		return denial
	}
	return success
}

// hasSOA says whether the authority section of a reply without answers has a
// SOA record: there are no records of that type (RFC 2308 §2.2).
func hasSOA(q *dns.Query) bool {
	off := q.Answer.RecordsOffset()
	for range q.Answer.Count[wire.Authority] {
		r, ok := wire.ReadRecord(q.Answer.Buf, off)
		if !ok || r.Type == wire.TypeSOA {
			return ok
		}
		off = r.Next
	}
	return false
}
