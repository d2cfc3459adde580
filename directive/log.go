package directive

import (
	"errors"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/linewriter"
	"github.com/seamark/seamark/wire"
)

// Log writes a line for each query: the log directive. Its reference page is
// docs/reference/directives/log.md.
type Log struct {
	rules []logRule
	json  bool
	out   *linewriter.Writer
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
	l := &Log{json: b.JSONLog}
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

	var classes class
	errs = append(errs, d.Each(err), d.Options(corefile.Option{Usage: "class CLASSES...", Set: classes.parse}))
	if classes == 0 {
		classes = anyClass
	}
	for _, zone := range zones {
		l.rules = append(l.rules, logRule{zone, f, classes})
	}
	return errors.Join(errs...)
}

// parse adds classes to c.
func (c *class) parse(o corefile.Directive) error {
	for _, word := range o.Words() {
		bits, ok := map[string]class{"success": success, "denial": denial, "error": failure, "all": anyClass}[word]
		if !ok {
			return o.Errorf("want success, denial, error or all, got %q", word)
		}
		*c |= bits
	}
	return nil
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
			if l.json && !r.format.json {
				_, _ = l.out.Write(appendRecord(buf[:0], q, r.format))
				return
			}
			_, _ = l.out.Write(r.format.append(buf[:0], q))
		}
		return
	}
}

func classify(q *dns.Query) class {
	c, _ := kind(q)
	return c
}

// kind returns the class of the answer to q, and CoreDNS's name of what it is.
func kind(q *dns.Query) (class, string) {
	switch {
	case q.RCode == wire.ServFail || q.RCode == wire.NotImp:
		return failure, "SERVERERROR"
	case q.Dropped() || q.RCode != wire.NoError && q.RCode != wire.NXDomain:
		return failure, "OTHERERROR"
	case q.RCode == wire.NXDomain:
		return denial, "NXDOMAIN"
	case q.Answer.Count[wire.Answers] == 0 && hasSOA(q):
		return denial, "NODATA"
	}
	return success, "NOERROR"
}

// Metadata describes the answer to q: log/class and log/type.
func (l *Log) Metadata(q *dns.Query, key string) (string, bool) {
	switch c, name := kind(q); {
	case key == "log/type":
		return name, true
	case key != "log/class":
		return "", false
	case c == success:
		return "success", true
	case c == denial:
		return "denial", true
	}
	return "error", true
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
