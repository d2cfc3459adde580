package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seamark/seamark/operate/adminclient"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/wire"
	"github.com/spf13/cobra"
)

// show writes value as JSON, or calls text to write it for a person.
func (a *adminFlags) show(w io.Writer, value any, text func()) error {
	if a.output == "text" {
		text()
		return nil
	}
	return failed(indented(escaped{w}, value))
}

// An escaped writer writes JSON text in ASCII. It must receive whole characters: names and
// texts are from clients and other servers, and a terminal interprets some characters.
type escaped struct{ io.Writer }

func (e escaped) Write(text []byte) (int, error) {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r >= 0x7f:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, byte(r))
		}
	}
	if _, err := e.Writer.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// jsonLines returns an encoder that writes an object a line.
func jsonLines(w io.Writer) *json.Encoder { return json.NewEncoder(escaped{w}) }

// commonTypes are the record types that the shell completes.
var commonTypes = []string{"A", "AAAA", "CNAME", "SRV", "PTR", "TXT", "MX", "NS", "SOA", "HTTPS"}

// domainName returns an error unless an argument is a domain name.
func domainName(text string) error {
	if text == "" {
		return errors.New("want a domain name, such as . for the root, got an empty one")
	}
	if _, err := wire.ParseName(text); err != nil {
		return fmt.Errorf("want a domain name: %w", err)
	}
	return nil
}

// recordType returns the type of a flag in upper case.
func recordType(flag, value string) (string, error) {
	if value == "" {
		return "", nil
	}
	t, ok := wire.ParseType(value)
	if !ok {
		return "", fmt.Errorf("--%s: want a record type such as SRV or TYPE65, got %q", flag, value)
	}
	return t.String(), nil
}

func (p *program) cacheCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "List or remove the cached answers of a running server",
		Example: `  seamark cache list example.org --type A
  seamark cache flush www.example.org`,
	}
	wantsCommand(c, "list or flush")
	c.AddCommand(p.cacheListCommand(), p.cacheFlushCommand())
	return c
}

func (p *program) cacheListCommand() *cobra.Command {
	var a adminFlags
	var qtype string
	var limit int
	c := &cobra.Command{
		Use:   "list [NAME]",
		Short: "List cached answers, with NAME in their names",
		Example: `  seamark cache list
  seamark cache list example.org --type A --output json`,
		Args:              arguments(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if qtype, err = recordType("type", qtype); err != nil {
				return err
			}
			if limit < 1 || limit > 100_000 {
				return fmt.Errorf("--limit: want a number of 1..100000, got %d", limit)
			}

			found, stop, err := a.find(c.Context())
			if err != nil {
				return err
			}
			defer stop()
			replies, err := answered(p.err, askAll(found, func(s *servers.Server) ([]adminclient.CachedAnswer, error) {
				return s.Cache(c.Context(), strings.Join(args, ""), qtype, limit)
			}))
			if err != nil {
				return err
			}

			all := []cachedAnswer{}
			full := false
			for _, r := range replies {
				full = full || len(r.value) == limit
				for _, answer := range r.value {
					all = append(all, cachedAnswer{
						Server: serverName(found, r.server), CachedAnswer: answer,
						AgeSeconds: answer.Age.Seconds(), LeftSeconds: answer.Left.Seconds(),
					})
				}
			}
			if err := a.show(p.out, all, func() { p.showCached(all, len(found) > 1, full) }); err != nil {
				return err
			}
			return partial(len(found), len(replies))
		},
	}
	c.Flags().StringVar(&qtype, "type", "", "only answers of this record `TYPE`")
	c.Flags().IntVar(&limit, "limit", 100, "list at most this many")
	complete(c, "type", commonTypes...)
	a.flags(c)
	outputFlag(c, &a.output)
	return c
}

// A cachedAnswer is an answer in the cache of one server, whose name is empty if there is one only.
type cachedAnswer struct {
	Server string `json:"server,omitempty"`
	adminclient.CachedAnswer

	// In JSON, in place of the API's nanoseconds.
	AgeNanoseconds  *struct{} `json:"age,omitempty"`
	LeftNanoseconds *struct{} `json:"left,omitempty"`
	AgeSeconds      float64   `json:"age_seconds"`
	LeftSeconds     float64   `json:"left_seconds"` // negative if it has expired and may be served stale
}

func (p *program) showCached(found []cachedAnswer, several, full bool) {
	t := p.newTable()
	headings := []any{"NAME", "TYPE", "RCODE", "RECORDS", "BYTES", "AGE", "LEFT", "ZONE"}
	if several {
		headings = append([]any{"SERVER"}, headings...)
	}
	t.Row(headings...)
	for _, e := range found {
		left := e.Left.Round(time.Second).String()
		if e.Left < 0 {
			left = "expired"
		}
		cells := []any{e.Name, e.Type, e.RCode, e.Records, e.Size, e.Age.Round(time.Second), left, e.Zone}
		if several {
			cells = append([]any{e.Server}, cells...)
		}
		t.Row(cells...)
	}
	t.Flush()
	if full {
		fmt.Fprintf(p.out, "There may be more: set a higher --limit, or a part of the name.\n")
	}
}

func (p *program) cacheFlushCommand() *cobra.Command {
	var a adminFlags
	c := &cobra.Command{
		Use:   "flush NAME",
		Short: "Remove the cached answers for NAME and all names below it",
		Long: `Flush removes the cached answers for NAME and all names below it from the caches of the
server blocks that have the directive admin, in all servers that it finds. A dot removes all.`,
		Example: `  seamark cache flush www.example.org
  seamark cache flush .`,
		Args:              arguments(1, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := domainName(args[0]); err != nil {
				return err
			}
			found, stop, err := a.find(c.Context())
			if err != nil {
				return err
			}
			defer stop()
			replies, err := answered(p.err, askAll(found, func(s *servers.Server) (int, error) {
				return s.Flush(c.Context(), args[0])
			}))
			if err != nil {
				return err
			}

			result := flushed{}
			for _, r := range replies {
				result.Removed += r.value
				if len(found) > 1 {
					result.Servers = append(result.Servers, flushedServer{r.server.Label(), r.value})
				}
			}
			if err := a.show(p.out, result, func() { p.showFlushed(result) }); err != nil {
				return err
			}
			return partial(len(found), len(replies))
		},
	}
	a.flags(c)
	outputFlag(c, &a.output)
	return c
}

// flushed is how many answers were removed, in all and of each of several servers.
type flushed struct {
	Removed int             `json:"removed"`
	Servers []flushedServer `json:"servers,omitempty"`
}

type flushedServer struct {
	Server  string `json:"server"`
	Removed int    `json:"removed"`
}

func (p *program) showFlushed(f flushed) {
	fmt.Fprintf(p.out, "Removed %s", counted(f.Removed, "cached answer", "cached answers"))
	for i, s := range f.Servers {
		fmt.Fprintf(p.out, "%s%d of %s", map[bool]string{true: ": ", false: ", "}[i == 0], s.Removed, s.Server)
	}
	fmt.Fprintln(p.out, ".")
}
