package directive

import (
	"errors"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Log writes a line for each query: the log directive.
//
//	log [NAMES...] [FORMAT] {
//	    class CLASSES...
//	}
//
// It logs queries for NAMES and all names below them, and all queries by
// default. You can give log several times; the first one whose NAMES contain
// the query's name logs it. Lines go to standard output.
//
// class selects queries by their answer. The default is all.
//
//	success   the answer has records or is a referral
//	denial    NXDOMAIN, or no records of the type
//	error     anything else: SERVFAIL, REFUSED, NOTIMP and others, and dropped queries
//	all       all of these
//
// FORMAT is text with placeholders. It contains a brace; without one it would
// be a name. {common} is the default. {combined} is {common} followed by
// "{>opcode}" in quotes.
//
//	{type} {class} {name}  of the question; the name in lower case
//	{proto}                udp or tcp
//	{remote} {port}        the client's address, IPv6 in brackets, and port
//	{local}                the address that received the query
//	{size} {rsize}         size of the query and of the reply, in bytes
//	{rcode}                response code; - if the query was dropped
//	{duration}             from receiving the query to the reply, in seconds: 0.000102s
//	{>id} {>opcode} {>do}  of the query
//	{>bufsize}             size of the largest reply that the client accepts, in bytes
//	{>rflags}              flags of the reply: qr,aa,rd
//	{/PLUGIN/NAME}         a metadata value; - if there is none
//
// A line in the default format:
//
//	[INFO] 10.0.0.1:53012 - 4 "A IN example.org. udp 40 false 1232" NOERROR qr,aa,rd 106 0.000102s
//
// The format {json} writes each query as one JSON object on a line. You may add
// metadata placeholders to it, but nothing else: "{json}
// {/kubernetes/namespace}". The keys, in this order:
//
//	time      when the query was received: RFC 3339, UTC, with microseconds
//	server    the server block's address: "dns://:53"
//	zone      the server block's zone: "cluster.local."
//	view      the server block's view, "" if it has none
//	remote    the client's address, without brackets
//	port      the client's port, a number
//	local     the address that received the query
//	proto     "udp" or "tcp"
//	id        of the query, a number
//	opcode    a number, 0 for a query
//	class     "IN"
//	type      "A"
//	name      in lower case, with its final dot; special characters as \. or \046
//	do        true if the client requests DNSSEC records
//	bufsize   the largest reply that the client accepts, in bytes
//	size      of the query, in bytes
//	rcode     "NOERROR", null if the query was dropped
//	rflags    flags of the reply, a list: ["qr","aa"]
//	rsize     of the reply, in bytes; 0 if the query was dropped
//	answers   number of records in the answer section
//	duration  from receiving the query to the reply, in seconds: 0.000102
//	by        the directive that answered, "" if none did
//	error     the text that the errors directive logs; only if there is one
//	metadata  an object, only if the format names metadata; null for missing values
//
// Lines wait in memory until standard output accepts them, up to 1 MB. Lines
// that exceed this are dropped and counted in seamark_log_dropped_lines_total.
//
// This server logs everything that goes wrong in one zone, and one short line
// for every other query:
//
//	.:1053 {
//	    log cluster.local in-addr.arpa {
//	        class denial error
//	    }
//	    log . "{remote} asked {type} {name}: {rcode}"
//	    whoami
//	}
//
// This server writes lines for a log collector:
//
//	.:1053 {
//	    metadata
//	    log . "{json} {/kubernetes/namespace}"
//	    whoami
//	}
//
// Same as CoreDNS: syntax, placeholders, classes and the line. Differs: an
// unknown placeholder is an error; NXDOMAIN without an SOA record is a denial
// too; blocked standard output drops lines and delays no query; a query that
// failed is logged with the code, flags and size of the reply that was sent,
// not with "- - 0"; queries that no server block serves are not logged. Ours:
// {json}.
type Log struct {
	rules []logRule
	out   *lineWriter
}

// A logRule is one log directive for one of its names.
type logRule struct {
	zone    wire.Name
	format  *format
	classes class
}

// A class is a set of answer classes.
type class uint8

const (
	success class = 1 << iota
	denial
	failure

	anyClass = success | denial | failure
)

// SetupLog sets up the log directive.
func SetupLog(b *config.Block, uses []corefile.Directive) error {
	l := &Log{}
	var errs []error
	for _, d := range uses {
		errs = append(errs, l.addRules(d))
	}
	b.Offer(l)
	b.OnPlanned(func() error {
		for _, r := range l.rules {
			r.format.bindMetadata(b)
		}
		return nil
	})
	b.OnStart(func(s *config.Start) (err error) {
		l.out, err = standardOutput(s, b)
		return err
	})
	return errors.Join(errs...)
}

func (l *Log) addRules(d corefile.Directive) error {
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
		errs = append(errs, d.Errorf("%w", err))
	}
	var classes class
	errs = append(errs, d.Options(corefile.Option{Usage: "class CLASSES...", Set: func(o corefile.Directive) error {
		for _, word := range o.Words() {
			bits, ok := map[string]class{"success": success, "denial": denial, "error": failure, "all": anyClass}[word]
			if !ok {
				return o.Errorf("want success, denial, error or all, got %q", word)
			}
			classes |= bits
		}
		return nil
	}}))
	if classes == 0 {
		classes = anyClass
	}
	for _, zone := range zones {
		l.rules = append(l.rules, logRule{zone, f, classes})
	}
	return errors.Join(errs...)
}

// ObserveDNS logs q.
func (l *Log) ObserveDNS(q *dns.Query) {
	for i := range l.rules {
		r := &l.rules[i]
		if !wire.Within(q.Name(), r.zone) {
			continue
		}
		if r.classes&classify(q) != 0 {
			var buf [1024]byte
			l.out.write(r.format.append(buf[:0], q))
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

// hasSOA reports whether the first record of the authority section is an SOA,
// or another record precedes it: without answers, that means that the name has
// no records of the type (RFC 2308 §2.2).
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
