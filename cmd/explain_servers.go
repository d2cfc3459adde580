package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/servers"
)

// A serverExplanation is what one of several servers explains.
type serverExplanation struct {
	Server  string           `json:"server"`
	Error   string           `json:"error,omitempty"`
	Results []explain.Result `json:"results,omitempty"`
}

// explainByAll shows what several servers answer: once what is equal.
func (p *program) explainByAll(
	ctx context.Context, e explainFlags, found []*servers.Server, q explain.Query, names []string,
) error {
	all := make([]serverExplanation, len(found))
	replies := askAll(found, func(s *servers.Server) ([]explain.Result, error) {
		return explainNames(ctx, s, q, names)
	})
	outcome := error(nil)
	for i, r := range replies {
		all[i] = serverExplanation{Server: r.server.Label(), Results: r.value}
		if r.err != nil {
			all[i].Error, outcome = r.err.Error(), different{}
		} else if unanswered(r.value) != nil {
			outcome = different{}
		}
	}

	if err := e.running.show(p.out, all, func() { p.showExplained(all) }); err != nil {
		return err
	}
	return outcome
}

// showExplained shows one of the explanations with the same answers.
func (p *program) showExplained(all []serverExplanation) {
	var order []string
	equal := map[string][]serverExplanation{}
	for _, s := range all {
		key := "error " + s.Error
		if s.Error == "" {
			key = answers(s.Results)
		}
		if equal[key] == nil {
			order = append(order, key)
		}
		equal[key] = append(equal[key], s)
	}

	for i, key := range order {
		var names []string
		for _, s := range equal[key] {
			names = append(names, s.Server)
		}
		if i > 0 {
			fmt.Fprintln(p.out)
		}
		fmt.Fprintf(p.out, "%s:\n", explain.Clean(strings.Join(names, ", ")))
		if first := equal[key][0]; first.Error != "" {
			fmt.Fprintf(p.out, "  %s\n", explain.Clean(first.Error))
		} else {
			p.showExplanations(first.Results)
		}
	}
	if len(order) > 1 {
		fmt.Fprintln(p.out, "\nThe servers answer differently.")
	}
}

// answers returns the records and response codes of results, without the order and the TTLs, which a
// cache and a rotation change.
func answers(results []explain.Result) string {
	var lines []string
	for _, r := range results {
		var records []string
		for _, record := range r.Answer {
			words := strings.Fields(record)
			if len(words) > 2 {
				words = slices.Delete(words, 1, 2)
			}
			records = append(records, strings.Join(words, " "))
		}
		slices.Sort(records)
		lines = append(append(lines, r.Name+" "+r.RCode), records...)
	}
	return strings.Join(lines, "\n")
}
