package directive

import (
	"encoding/binary"
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Header sets and clears flags of messages: the header directive.
//
//	header {
//	    [query|response] set|clear FLAGS...
//	}
//
// FLAGS are aa (authoritative answer), ra (recursion available) and rd
// (recursion desired). response, which counts if neither word is given, changes
// the reply to the client. query changes what the handlers below see: rd decides
// whether forward asks other servers for recursion; aa and ra mean nothing in a
// query, and no handler here looks at them. A client gets its own rd back unless
// a line for the response says otherwise.
//
// Lines count in their order, so that of two for one flag the last one holds.
//
// Clients that want nothing but authoritative answers from a server whose
// upstreams do recursion for it:
//
//	.:1053 {
//	    header {
//	        query set rd
//	        response set aa
//	        response clear ra
//	    }
//	    whoami
//	}
//
// Same as CoreDNS. Differs: query rd does not come back to the client.
type Header struct{ query, response flagChange }

// A flagChange is bits of the header's second word.
type flagChange struct{ set, clear uint16 }

// SetupHeader is the Setup of header.
func SetupHeader(b *config.Block, uses []corefile.Directive) error {
	h := &Header{}
	d := uses[0]
	errs := []error{config.Once(uses), d.Arity(0, 0)}
	line := func(change *flagChange) func(corefile.Directive) error {
		return func(o corefile.Directive) error { return change.parse(o, o.Text, o.Args) }
	}
	selected := func(change *flagChange) func(corefile.Directive) error {
		return func(o corefile.Directive) error { return change.parse(o, o.Args[0].Text, o.Args[1:]) }
	}
	errs = append(errs, d.Options(
		corefile.Option{Name: "query", Min: 2, Max: -1, Set: selected(&h.query)},
		corefile.Option{Name: "response", Min: 2, Max: -1, Set: selected(&h.response)},
		corefile.Option{Name: "set", Min: 1, Max: -1, Set: line(&h.response)},
		corefile.Option{Name: "clear", Min: 1, Max: -1, Set: line(&h.response)},
	))
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
		bit, ok := map[string]uint16{"aa": wire.FlagAA, "ra": wire.FlagRA, "rd": wire.FlagRD}[f.Text]
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

func (c flagChange) of(flags uint16) uint16 { return flags&^c.clear | c.set }

// AnyClass says that the flags of every class are changed.
func (*Header) AnyClass() bool { return false }

// ServeDNS changes the query. It may have come up already, with the reply's
// flags, if a cache above had it and lets it by after all.
func (h *Header) ServeDNS(q *dns.Query) dns.Verdict {
	q.Flags = h.query.of(asked(q))
	return dns.Next
}

// asked is the client's own flags.
func asked(q *dns.Query) uint16 { return binary.BigEndian.Uint16(q.Packet()[2:]) }

// FinishDNS changes the reply.
func (h *Header) FinishDNS(q *dns.Query) {
	q.Flags = h.response.of(asked(q))&wire.FlagRD | asked(q)&^wire.FlagRD
	bit := func(on bool, flag uint16) bool { return on && h.response.clear&flag == 0 || h.response.set&flag != 0 }
	q.AA, q.RA = bit(q.AA, wire.FlagAA), bit(q.RA, wire.FlagRA)
}
