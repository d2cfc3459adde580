package server

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/seamark/seamark/dns"
)

// A Route describes the chain of handlers of a zone at an address.
type Route struct {
	Address string `json:"address"` // such as dns://127.0.0.1:53
	Zone    string `json:"zone"`
	View    string `json:"view,omitempty"`
	File    string `json:"file"` // of the server block
	Line    int    `json:"line"`
	Steps   []Step `json:"handlers"` // in the order in which a query reaches them
	// SeenBy are the handlers that only observe queries.
	SeenBy []string `json:"seen_by,omitempty"`
}

// A Step describes a handler of a Route.
type Step struct {
	Name string `json:"name"`
	Text string `json:"text"` // what it does with a query, or why none reaches it
	// Waits is always or maybe if it makes queries wait.
	Waits string `json:"waits,omitempty"`
	Edits bool   `json:"edits"` // answers of the handlers below
	// Hidden reports that no query of the zone, or with "reverse" none for a reverse name, reaches it.
	Hidden string `json:"hidden,omitempty"`
}

// Routes returns the routes of a plan: all zones of an address, then those of the next.
func (p *Plan) Routes() []Route {
	routes := []Route{}
	for _, s := range p.sites {
		for _, r := range s.routes {
			chain := r.block.Chain
			route := Route{
				Address: s.name(), Zone: r.key.Zone.String(), File: r.key.From.File, Line: r.key.From.Line,
				Steps: []Step{}, SeenBy: r.block.Observers(),
			}
			if chain.Match != nil {
				route.View = chain.View
			}

			steps := chain.Steps()
			hidden := newBarriers(r.block).steps(steps, r.key.Zone)
			for i, step := range steps {
				route.Steps = append(route.Steps, describe(step, hidden[i]))
			}
			routes = append(routes, route)
		}
	}
	return routes
}

// describe describes a handler. hidden is the barrier before it, or nil.
func describe(step dns.Step, hidden *barrier) Step {
	d := Step{Name: step.Name, Text: "answers at once", Edits: step.Finishing}
	switch {
	case !step.Inline:
		d.Text, d.Waits = "makes every query wait", "always"
	case step.MayWait:
		d.Text, d.Waits = "may make a query wait", "maybe"
	}
	if step.Finishing {
		d.Text += ", edits answers from below"
	}

	switch {
	case hidden != nil && hidden.reverse:
		d.Text, d.Hidden = d.Text+", "+hidden.String(), "reverse"
	case hidden != nil:
		d.Text, d.Hidden = hidden.String(), "all"
	}
	return d
}

// Describe writes the routes as text.
func (p *Plan) Describe(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range p.Routes() {
		view := ""
		if r.View != "" {
			view = " view " + r.View
		}
		fmt.Fprintf(out, "%s zone %s%s (%s:%d)\n", r.Address, r.Zone, view, r.File, r.Line)

		if len(r.Steps) == 0 {
			fmt.Fprintln(out, "  nothing answers here")
		}
		for _, step := range r.Steps {
			fmt.Fprintf(out, "  %s\t%s\n", step.Name, step.Text)
		}
		if len(r.SeenBy) > 0 {
			fmt.Fprintf(out, "  seen by %s\n", strings.Join(r.SeenBy, ", "))
		}
	}
	return out.Flush()
}
