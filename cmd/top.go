package cmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/operate/adminclient"
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
	{"waste", "clients whose searches for names cannot succeed, with the remedy", "COUNT", "CLIENT", "LAST NAME", 1},
}

func (p *program) topCommand() *cobra.Command {
	var a adminFlags
	var limit int
	var pods podFlags
	var names, lines []string
	for _, l := range topLists {
		names = append(names, l.name+"\t"+l.brief)
		lines = append(lines, fmt.Sprintf("  %-11s %s", l.name, l.brief))
	}
	c := &cobra.Command{
		Use:   "top names|clients|namespaces|nxdomain|servfail|slow|waste",
		Short: "Show the most frequent names, clients and failures of a running server",
		Long: `Top shows a list of what the server has recorded in the last five to ten minutes:

` + strings.Join(lines, "\n") + `

The server needs the directive admin. It records up to 1,000 queries a second; when there
are more, it records a random share of them and estimates the counts. Names that are queried
a few times each, such as the random names of a storm, are counted by their parent. Searches that cannot
succeed are queries such as www.example.org.shop.svc.cluster.local: a pod's resolver appends
search domains to names with fewer dots than its option ndots, which is 5 in a cluster. With
--pods the list has the pods of the clients, and the workloads that own them.`,
		Example: `  seamark top names
  seamark top waste --pods
  seamark top nxdomain --admin localhost:9053 --output json`,
		Args:      arguments(1, 1),
		ValidArgs: names,
		RunE: func(c *cobra.Command, args []string) error {
			i := slices.IndexFunc(topLists, func(l topList) bool { return l.name == args[0] })
			if i < 0 {
				return fmt.Errorf("want one of %s, got %q", strings.Join(traffic.ListNames[:], ", "), args[0])
			}
			if limit < 1 || limit > 500 {
				return fmt.Errorf("--limit: want a number of 1..500, got %d", limit)
			}

			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()

			var result topResult
			if result.Top, err = client.Top(c.Context(), args[0], limit); err != nil {
				return failure{err}
			}
			if result.Pods, err = pods.read(c.Context(), a.timeout); err != nil {
				return failure{err}
			}
			if args[0] == "waste" {
				result.Remedy = traffic.WasteRemedy
			}
			result.Pods.keep(result.Entries)
			return a.show(p.out, result, func() { p.showTop(i, result, client) })
		},
	}
	a.flags(c)
	c.Flags().IntVar(&limit, "limit", 20, "show at most this many")
	pods.flags(c)
	return c
}

// A topResult is a list of top, with the pods of its clients.
type topResult struct {
	traffic.Top
	Pods   podsByAddress `json:"pods,omitempty"`
	Remedy string        `json:"remedy,omitempty"`
}

func (p *program) showTop(i int, top topResult, client *adminclient.Client) {
	l := topLists[i]
	fmt.Fprintf(p.out, "%s: %s, in the last %v; %s of the queries are recorded\n",
		client.Address(), l.name, top.Window.Round(time.Second), percent(top.Sampled))
	if len(top.Entries) == 0 && len(top.Groups) == 0 {
		fmt.Fprintln(p.out, "There are none.")
		return
	}

	t := newTable(p.out)
	headings := []any{l.count, "SHARE", l.key, l.detail}
	namespaces := slices.ContainsFunc(top.Entries, func(e traffic.Entry) bool { return e.Namespace != "" })
	if namespaces {
		headings = append(headings, "NAMESPACE")
	}
	if top.Pods != nil || slices.ContainsFunc(top.Entries, func(e traffic.Entry) bool { return e.Pod != "" }) {
		headings = append(headings, "POD", "OWNER")
	}
	t.row(headings...)

	number := func(count float64) string {
		if l.count == "SECONDS" {
			return fmt.Sprintf("%.1f", count)
		}
		return fmt.Sprintf("%.0f", count)
	}
	excess := 0.0
	for _, e := range top.Entries {
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
		t.row(cells...)
	}
	for _, g := range top.Groups {
		t.row(number(g.Count), percent(g.Share), explain.Clean(g.String()), g.Example)
	}
	if others := top.Others(); others > 0 {
		t.row(number(others*top.Total), percent(others), "others", "")
	}
	_ = t.Flush() // p.out keeps the error

	if excess > 0 {
		fmt.Fprintf(p.out, "There were too many to count all: a count may be too large by up to %.1f.\n", excess)
	}
	if top.Remedy != "" {
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
