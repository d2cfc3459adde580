package directive

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Header sets and clears header flags of queries and replies: the header directive. Its
// reference page is docs/reference/directives/header.md.
type Header struct{ query, response flagChange }

// A flagChange holds bits of the second header word to set and to clear.
type flagChange struct{ set, clear uint16 }

// SetupHeader sets up the header directive.
func SetupHeader(b *config.Block, uses []corefile.Directive) error {
	h := &Header{}
	withoutSelector := func(o corefile.Directive) error { return h.response.parse(o, o.Text, o.Args) }
	withSelector := func(change *flagChange) func(corefile.Directive) error {
		return func(o corefile.Directive) error {
			return change.parse(o, strings.ToLower(o.Args[0].Text), o.Args[1:])
		}
	}

	d := uses[0]
	errs := []error{config.Once(uses), d.Arity(0, 0), config.LowerOptions(d).Options(
		corefile.Option{Usage: "query set|clear FLAGS...", Set: withSelector(&h.query)},
		corefile.Option{Usage: "response set|clear FLAGS...", Set: withSelector(&h.response)},
		corefile.Option{Usage: "set FLAGS...", Set: withoutSelector},
		corefile.Option{Usage: "clear FLAGS...", Set: withoutSelector},
	)}
	if len(d.Body) == 0 {
		errs = append(errs, d.Errorf("want lines of query or response, set or clear, and flags in braces"))
	}
	b.Handle(h)
	return errors.Join(errs...)
}

func (c *flagChange) parse(o corefile.Directive, action string, flags []corefile.Token) error {
	if action != "set" && action != "clear" {
		return o.Errorf("want set or clear, got %q", action)
	}
	var errs []error
	for _, f := range flags {
		bit, ok := map[string]uint16{"aa": wire.FlagAA, "ra": wire.FlagRA, "rd": wire.FlagRD}[strings.ToLower(f.Text)]
		if !ok {
			errs = append(errs, f.Errorf(o.Path, "want aa, ra or rd, got %q", f.Text))
		}
		c.set, c.clear = c.set&^bit, c.clear&^bit
		if action == "set" {
			c.set |= bit
		} else {
			c.clear |= bit
		}
	}
	return errors.Join(errs...)
}

func (c flagChange) apply(flags uint16) uint16 { return flags&^c.clear | c.set }

// AnyClass lets header change messages of every class. It answers none.
func (*Header) AnyClass() dns.ClassUse { return dns.ClassPassed }

// ServeDNS changes the query's flags. It begins with the client's own flags: if a
// cache above resumes the query after a stale answer, q.Flags are the flags of a
// reply.
func (h *Header) ServeDNS(q *dns.Query) dns.Verdict {
	q.Flags = h.query.apply(clientFlags(q))
	return dns.Next
}

// clientFlags returns the flags of the packet that the client sent.
func clientFlags(q *dns.Query) uint16 { return binary.BigEndian.Uint16(q.Packet()[2:]) }

// FinishDNS changes the reply's flags.
func (h *Header) FinishDNS(q *dns.Query) {
	flags := clientFlags(q)
	q.Flags = h.response.apply(flags)&wire.FlagRD | flags&^wire.FlagRD
	bit := func(on bool, flag uint16) bool { return on && h.response.clear&flag == 0 || h.response.set&flag != 0 }
	q.AA, q.RA = bit(q.AA, wire.FlagAA), bit(q.RA, wire.FlagRA)
}
