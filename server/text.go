package server

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/seamark/seamark/config"
)

// Describe writes, for each address and zone, what its queries meet.
func (p *Plan) Describe(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range p.sites {
		for _, r := range s.routes {
			view := ""
			if r.block.Chain.Match != nil {
				view = " view " + r.block.Chain.View
			}
			fmt.Fprintf(out, "%s zone %s%s (%s:%d)\n", s.name(), r.key.Zone, view, r.key.From.File, r.key.From.Line)
			steps := r.block.Chain.Steps()
			if len(steps) == 0 {
				fmt.Fprintln(out, "  nothing answers here")
			}
			for _, step := range steps {
				notes := []string{"answers at once"}
				switch {
				case !step.Inline:
					notes[0] = "makes every query wait"
				case step.MayWait:
					notes[0] = "may make a query wait"
				}
				if step.Finishing {
					notes = append(notes, "edits answers from below")
				}
				fmt.Fprintf(out, "  %s\t%s\n", step.Name, strings.Join(notes, ", "))
			}
			if names := r.block.Observers(); len(names) > 0 {
				fmt.Fprintf(out, "  seen by %s\n", strings.Join(names, ", "))
			}
		}
	}
	return out.Flush()
}

// listening writes what a started plan answers for, as CoreDNS does.
func (p *Plan) listening(w io.Writer) {
	for i, s := range p.sites {
		at := p.listeners[i].Addr()
		for n, r := range s.routes {
			if slices.ContainsFunc(s.routes[:n], func(before route) bool { return before.key.Zone == r.key.Zone }) {
				continue // a block with a view has said so
			}
			fmt.Fprintf(w, "%s:%d", r.key.Zone, at.Port())
			if s.addr.Addr() != everywhere {
				fmt.Fprintf(w, " on %s", s.addr.Addr())
			}
			fmt.Fprintln(w)
		}
	}
}

// An exemplifier is a handler that knows questions worth trying, in dig's
// words: "db.shop.svc.cluster.local SRV". It may wait for its data until ctx
// ends.
type exemplifier interface {
	Examples(ctx context.Context) []string
}

// examples gives two command lines that ask a started plan something: what its
// handlers know, or else the given questions.
func (p *Plan) examples(ctx context.Context, questions []string) (lines []string) {
	var known []string
	for _, b := range p.blocks {
		for _, e := range config.Find[exemplifier](b) {
			known = append(known, e.Examples(ctx)...)
		}
	}
	at := p.listeners[0].Addr() // a Corefile has a block, and a block an address
	host := at.Addr()
	if host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for _, q := range append(known, questions...) {
		lines = append(lines, fmt.Sprintf("dig @%s -p %d %s", host, at.Port(), q))
	}
	return lines[:min(2, len(lines))]
}
