package cmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/operate/servers"
	"github.com/spf13/cobra"
)

// A topList describes a list of top.
type topList struct {
	name, brief        string
	count, key, detail string // headings; detail is the heading of the example
	clients            int    // 1 if the key is a client, 2 if the example is
}

var topLists = []topList{
	{"names", "names that are queried most", "COUNT", "NAME", "", 0},
	{"clients", "clients that send most queries", "COUNT", "CLIENT", "LAST NAME", 1},
	{"namespaces", "namespaces of these clients, if the server knows them", "COUNT", "NAMESPACE", "LAST NAME", 0},
	{"nxdomain", "names that do not exist", "COUNT", "NAME", "LAST CLIENT", 2},
	{"servfail", "names whose answer is SERVFAIL", "COUNT", "NAME", "LAST CLIENT", 2},
	{"slow", "names whose answers took 100 ms or more, by their total time", "SECONDS", "NAME", "LAST SOURCE", 0},
	{"waste", "clients whose searches for names cannot succeed", "COUNT", "CLIENT", "LAST NAME", 1},
	{"denied", "names that the directive policy denies, or would without audit", "COUNT", "NAME", "LAST CLIENT", 2},
}

func (p *program) topCommand() *cobra.Command {
	var a adminFlags
	var limit int
	var pods podFlags
	var s screen
	var names, lines []string
	for _, l := range topLists {
		names = append(names, l.name+"\t"+l.brief)
		lines = append(lines, fmt.Sprintf("  %-11s %s", l.name, l.brief))
	}
	c := &cobra.Command{
		Use:   "top [names|clients|namespaces|nxdomain|servfail|slow|waste|denied]",
		Short: "Show the most frequent names, clients and failures of running servers",
		Long: `Top shows a list of what the servers have recorded in the last five to ten minutes:

` + strings.Join(lines, "\n") + `

Without a list it shows the first five of each that is not empty. The counts of several servers
are added.

` + findServers + `

A server records up to 1,000 queries a second; when there are more, it records a random share of
them and estimates the counts. Names that are queried a few times each, such as the random
names of a storm, are counted by their parent. Searches that cannot succeed are queries such as
www.example.org.shop.svc.cluster.local: a pod's resolver appends search domains to names with
fewer dots than its option ndots, which is 5 in a cluster. With --pods the list has the pods of
the clients, and the workloads that own them.`,
		Example: `  seamark top
  seamark top waste --pods
  seamark top nxdomain --watch
  seamark top names --admin localhost:9053 --output json`,
		Args:      arguments(0, 1),
		ValidArgs: names,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && !slices.ContainsFunc(topLists, func(l topList) bool { return l.name == args[0] }) {
				return fmt.Errorf("want one of %s, got %q", strings.Join(traffic.ListNames[:], ", "), args[0])
			}
			if limit < 1 || limit > maxTop {
				return fmt.Errorf("--limit: want a number of 1..%d, got %d", maxTop, limit)
			}

			lists := args
			if len(args) == 0 {
				for _, l := range topLists {
					lists = append(lists, l.name)
				}
				if !c.Flags().Changed("limit") {
					limit = 5
				}
			}
			if err := s.check(); err != nil {
				return err
			}
			table := &podTable{flags: pods, timeout: a.timeout}
			return p.watchServers(c.Context(), &a, s, func(found []*servers.Server) (all bool, err error) {
				return p.top(c.Context(), &a, table, found, lists, limit, s.colors(p))
			})
		},
	}

	c.Flags().IntVar(&limit, "limit", 20, "show at most this many; 5 without a list")
	a.flags(c)
	outputFlag(c, &a.output)
	pods.flags(c, &a.cluster)
	s.flags(c)
	return c
}

// maxTop is the most entries of a list.
const maxTop = 500

// top shows lists of servers. It returns whether all of them have answered.
func (p *program) top(
	ctx context.Context, a *adminFlags, pods *podTable, found []*servers.Server, lists []string, limit int, c colors,
) (all bool, err error) {
	each := limit
	if len(found) > 1 {
		each = maxTop // a key that many servers have below their first ones may be among the first of all
	}
	replies, err := answered(p.err, askAll(found, func(s *servers.Server) (tops []traffic.Top, err error) {
		for _, list := range lists {
			top, err := s.Top(ctx, list, each)
			if err != nil {
				return nil, err
			}
			tops = append(tops, top)
		}
		return tops, nil
	}))
	if err != nil {
		return false, err
	}
	all = len(replies) == len(found)
	known, err := pods.all(ctx)
	if err != nil {
		return all, failure{err}
	}

	var results []topResult
	for i, list := range lists {
		var tops []traffic.Top
		r := topResult{Pods: maps.Clone(known)}
		for _, reply := range replies {
			tops = append(tops, reply.value[i])
			r.Servers = append(r.Servers, reply.server.Address())
		}
		r.Top = traffic.Sum(tops, limit)
		r.Seconds = r.Window.Seconds()
		if list == "waste" {
			r.Remedy = traffic.WasteRemedy
		}
		r.Pods.keep(r.Entries)
		results = append(results, r)
	}

	show := func() { p.showTops(results, c) }
	if len(lists) == 1 {
		err = a.show(p.out, results[0], show)
	} else {
		err = a.show(p.out, results, show)
	}
	if err == nil {
		err = partial(len(found), len(replies))
	}
	return all, err
}

// A topResult is a list of top, with the pods of its clients.
type topResult struct {
	traffic.Top
	Servers []string `json:"servers"`

	// In JSON, in place of the API's nanoseconds.
	Nanoseconds *struct{} `json:"window,omitempty"`
	Seconds     float64   `json:"window_seconds"`

	Pods   podsByAddress `json:"pods,omitempty"`
	Remedy string        `json:"remedy,omitempty"`
}

// showTops shows one list, or those of several that are not empty.
func (p *program) showTops(results []topResult, c colors) {
	first := results[0]
	from := first.Servers[0]
	if n := len(first.Servers); n > 1 {
		from = fmt.Sprintf("%d servers together", n)
	}
	fmt.Fprintf(p.out, "%s, in the last %v; %s of the queries are recorded\n",
		from, first.Window.Round(time.Second), percent(first.Sampled))

	shown := 0
	for i, r := range results {
		empty := len(r.Entries) == 0 && len(r.Groups) == 0
		if empty && len(results) > 1 {
			continue
		}
		shown++
		if empty {
			fmt.Fprintln(p.out, "There are none.")
			continue
		}
		if len(results) > 1 {
			fmt.Fprintf(p.out, "\n%s: %s\n", c.bold(topLists[i].name), topLists[i].brief)
		}
		p.showTop(r, len(results) > 1)
	}
	if shown == 0 {
		fmt.Fprintln(p.out, "There are no queries.")
	}
}

// showTop shows a list. Among others the remedy, which is long, is a command.
func (p *program) showTop(top topResult, among bool) {
	i := slices.IndexFunc(topLists, func(l topList) bool { return l.name == top.By })
	l := topLists[max(0, i)]
	t := p.newTable()
	headings := []any{l.count, "SHARE", l.key, l.detail}
	namespaces := slices.ContainsFunc(top.Entries, func(e traffic.Entry) bool { return e.Namespace != "" })
	if namespaces {
		headings = append(headings, "NAMESPACE")
	}
	if top.Pods != nil || slices.ContainsFunc(top.Entries, func(e traffic.Entry) bool { return e.Pod != "" }) {
		headings = append(headings, "POD", "OWNER")
	}
	t.Row(headings...)

	number := func(count float64) string {
		if l.count == "SECONDS" {
			return fmt.Sprintf("%.1f", count)
		}
		return fmt.Sprintf("%.0f", count)
	}
	excess := 0.0
	for _, row := range top.Rows() {
		if g := row.Group; g != nil {
			t.Row(number(g.Count), percent(g.Share), explain.Clean(g.String()), g.Example)
			continue
		}

		e := row.Entry
		excess = max(excess, e.Excess)
		cells := []any{number(e.Count), percent(e.Share), e.Key, e.Example}
		if namespaces {
			cells = append(cells, e.Namespace)
		}
		if pod, ok := top.Pods[[]string{"", e.Key, e.Example}[l.clients]]; ok {
			cells = append(cells, pod.Namespace+"/"+pod.Name, pod.Owner)
		} else if e.Pod != "" {
			cells = append(cells, e.Pod, e.Owner)
		}
		t.Row(cells...)
	}
	if others := top.Others(); others > 0 {
		t.Row(number(others*top.Total), percent(others), "others", "")
	}
	t.Flush()

	if excess > 0 {
		fmt.Fprintf(p.out, "There were too many to count all: a count may be too large by up to %.1f.\n", excess)
	}
	switch {
	case top.Remedy != "" && among:
		fmt.Fprintln(p.out, "The remedy: "+p.asTyped("seamark top "+top.By))
	case top.Remedy != "":
		fmt.Fprintf(p.out, `
These clients search for names of other domains in the domains of the cluster first. Either
write the names with a final dot (www.example.org.) in the configuration of the workload, or
add this to its manifest. Names such as web and web.shop still resolve, and web.shop.svc
except with musl (Alpine), which then takes it for a whole name.

%s`, top.Remedy)
	}
}

// percent formats a share.
func percent(share float64) string {
	if share > 0 && share < 0.01 {
		return "< 1 %"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
