package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/operate/table"
	"github.com/seamark/seamark/sys/linewriter"
	"github.com/seamark/seamark/sys/terminal"
	"github.com/seamark/seamark/wire"
	"github.com/spf13/cobra"
)

// tailQueue is the number of queries that wait for standard output. When there are more,
// they are counted and not shown, so that the server never waits for a terminal.
const tailQueue = 1024

func (p *program) tailCommand() *cobra.Command {
	var a adminFlags
	var filters [5]string
	var slower time.Duration
	var pods podFlags
	c := &cobra.Command{
		Use:   "tail",
		Short: "Show the queries of running servers as they come",
		Long: `Tail shows the queries that the servers answer: time, client, namespace of the client if the
server knows it, name, type, response code, duration, and the directive that answered; with
several servers also the pod of the server. Filters that are set apply together.

` + findServers + `

A server records up to 1,000 queries a second; when there
are more, it records a random share of them, and each is shown with the number of queries that
it counts for. On a node "(kernel)" marks a sample of the queries that the kernel has answered
with an earlier reply. The server does not wait for this command: if it is too slow, it
skips queries and shows their number. With --pods it shows the client's pod and the workload
that owns the pod.

Ctrl-C ends the command with status 0.`,
		Example: `  seamark tail --rcode NXDOMAIN --client-namespace shop
  seamark tail --client 10.244.0.0/16 --slower 100ms
  seamark tail --rcode SERVFAIL --pods
  seamark tail --name example.org --source cache --output json`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
	}

	f := c.Flags()
	names := []string{"name", "client", "namespace", "rcode", "source"} // parameters of the API
	for i, usage := range []string{
		"only names with this `TEXT` in them", "only this `IP` address or network",
		"only clients of this `NAMESPACE`", "only this response `CODE`, such as NXDOMAIN",
		"only answers of this `DIRECTIVE`, such as kubernetes, cache or forward",
	} {
		flag := names[i]
		if flag == "namespace" {
			flag = "client-namespace" // --namespace is that of the servers
		}
		f.StringVar(&filters[i], flag, "", usage)
	}
	f.DurationVar(&slower, "slower", 0, "only answers that took at least this long")
	complete(c, "rcode", "NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED", "FORMERR", "NOTIMP")
	complete(c, "source", p.answering()...)
	a.flags(c)
	outputFlag(c, &a.output)
	pods.flags(c, &a.cluster)

	c.RunE = func(c *cobra.Command, _ []string) error {
		parameters := url.Values{}
		for i, value := range filters {
			if value != "" {
				parameters.Set(names[i], value)
			}
		}
		if slower != 0 {
			parameters.Set("slower", slower.String())
		}
		if err := checkTail(filters[1], filters[3], slower); err != nil {
			return err
		}

		found, stop, err := a.find(c.Context())
		if err != nil {
			return err
		}
		defer stop()
		table, err := pods.table(c.Context(), a.timeout)
		if err != nil {
			return failure{err}
		}
		return p.tail(c.Context(), found, parameters, a.output == "json", table)
	}
	return c
}

func checkTail(client, rcode string, slower time.Duration) error {
	_, badPrefix := netip.ParsePrefix(client)
	_, badAddr := netip.ParseAddr(client)
	switch {
	case client != "" && badPrefix != nil && badAddr != nil:
		return fmt.Errorf("--client: want an IP address or a network, got %q", client)
	case slower < 0:
		return fmt.Errorf("--slower: want a duration such as 100ms, got %v", slower)
	}
	if _, ok := wire.ParseRCode(rcode); rcode != "" && !ok {
		return fmt.Errorf("--rcode: want a response code such as NXDOMAIN, got %q", rcode)
	}
	return nil
}

func (p *program) tail(
	ctx context.Context, found []*servers.Server, parameters url.Values, asJSON bool, pods *podTable,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer pods.wait()
	defer cancel()

	queue := make(chan shownEvent, tailQueue)
	var lost atomic.Uint64
	written := make(chan error, 1)
	go func() {
		write := eventWriter(found)
		if asJSON {
			write = writeEventJSON
		}
		out := p.log() // its errors are reported here
		written <- writeTail(queue, &lost, cancel, func(e shownEvent) error {
			if e.Client.IsValid() { // the notice of queries that are not shown has none
				if pod, ok := pods.find(ctx, e.Client); ok {
					e.Pod, e.Owner = pod.Namespace+"/"+pod.Name, pod.Owner
				}
			}
			return write(out, e)
		})
	}()

	err := p.tailAll(ctx, found, parameters, queue, &lost)
	close(queue)
	select {
	case bad := <-written:
		if bad != nil {
			return failure{fmt.Errorf("writing the output: %w", bad)}
		}
	case <-time.After(linewriter.FlushTimeout): // the reader of the output has stopped
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return failure{err}
}

// tailAll passes the queries of all servers to a queue, until ctx ends or no server answers any more.
func (p *program) tailAll(
	ctx context.Context, found []*servers.Server, parameters url.Values, queue chan<- shownEvent,
	lost *atomic.Uint64,
) error {
	var mu sync.Mutex // of the messages
	alive := len(found)
	replies := askAll(found, func(s *servers.Server) (struct{}, error) {
		text := "Showing the queries that %s answers. Ctrl-C ends.\n"
		begun := func() {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(p.err, text, s.Address())
			text = "Connected to %s again: queries in between are not shown.\n"
		}
		name := serverName(found, s)
		err := s.Tail(ctx, parameters, begun, func(e adminclient.TailEvent) {
			select {
			case queue <- shownEvent{TailEvent: e, Server: name}:
			default:
				lost.Add(max(1, e.Lost))
			}
		})

		// The others go on.
		mu.Lock()
		defer mu.Unlock()
		alive--
		if err != nil && ctx.Err() == nil && alive > 0 {
			fmt.Fprintf(p.err, "%s\n", visible(err.Error()))
		}
		return struct{}{}, err
	})

	// The last error is that of the end.
	for _, r := range replies {
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			return r.err
		}
	}
	return context.Cause(ctx)
}

// writeTail writes the events of a queue until it is closed, and how many were lost before each.
// After an error it calls cancel and drops the rest.
func writeTail(
	queue <-chan shownEvent, lost *atomic.Uint64, cancel func(), write func(shownEvent) error,
) (err error) {
	for e := range queue {
		if n := lost.Swap(0); n > 0 && err == nil {
			err = write(shownEvent{TailEvent: adminclient.TailEvent{Lost: n}})
		}
		if err == nil {
			err = write(e)
		}
		if err != nil {
			cancel()
		}
	}
	return err
}

// A shownEvent is an event with the server and the pod of its client.
type shownEvent struct {
	adminclient.TailEvent
	Server string `json:"server,omitempty"` // with several servers

	// In JSON, in place of the API's nanoseconds.
	Nanoseconds *struct{} `json:"duration,omitempty"`
	Seconds     float64   `json:"duration_seconds"`

	Pod   string `json:"pod,omitempty"`   // NAMESPACE/NAME
	Owner string `json:"owner,omitempty"` // KIND/NAME
}

// eventWriter returns a function that writes events as lines, with the headings before the first.
func eventWriter(found []*servers.Server) func(io.Writer, shownEvent) error {
	width := 0 // of the name of a server
	for _, s := range found {
		width = max(width, len(serverName(found, s)))
	}
	line := func(w io.Writer, server, time, client, qtype, rcode, took, name string, more ...string) error {
		columns := terminal.Columns(w)
		before := fmt.Sprintf("%-8s %-15s %-5s %-8s %-7s ", time, client, qtype, rcode, took)
		if columns > 0 && width > table.Narrowest {
			before = fmt.Sprintf("%-*s ", table.Narrowest, table.Middle(server, table.Narrowest)) + before
		} else if width > 0 {
			before = fmt.Sprintf("%-*s ", width, server) + before
		}
		after := ""
		for _, text := range more {
			if text != "" {
				after += " " + text
			}
		}

		before, name, after = explain.Clean(before), explain.Clean(name), explain.Clean(after)
		if columns > 0 {
			name = table.Middle(name, max(table.Narrowest, columns-utf8.RuneCountInString(before+after)))
		}
		_, err := fmt.Fprintln(w, before+name+after)
		return err
	}

	begun := false
	return func(w io.Writer, e shownEvent) error {
		if e.Lost > 0 {
			_, err := fmt.Fprintf(w, "%s not shown: there are too many\n", counted(e.Lost, "query", "queries"))
			return err
		}
		if !begun {
			begun = true
			if err := line(w, "SERVER", "TIME", "CLIENT", "TYPE", "RCODE", "TOOK", "NAME", "SOURCE"); err != nil {
				return err
			}
		}

		weight := ""
		if e.Weight > 1.5 {
			weight = fmt.Sprintf("x%.0f", e.Weight)
		}
		kernel := ""
		if e.Kernel {
			kernel = "(kernel)"
		}
		namespace := ""
		if e.Namespace != "" && e.Pod == "" {
			namespace = "from " + e.Namespace
		}
		at, rcode := e.Time.Local().Format("15:04:05"), cmp.Or(e.RCode, "no reply")
		return line(w, e.Server, at, e.Client.String(), e.Type, rcode,
			short(e.Duration), e.Name, e.Source, kernel, namespace, e.Pod, e.Owner, weight)
	}
}

// short returns a duration with three significant digits at most: 1.23ms.
func short(d time.Duration) string {
	for unit := time.Second; unit >= time.Microsecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

func writeEventJSON(w io.Writer, e shownEvent) error {
	if e.Lost > 0 {
		return json.NewEncoder(w).Encode(map[string]uint64{"lost": e.Lost})
	}
	e.Seconds = e.Duration.Seconds()
	return jsonLines(w).Encode(e)
}
