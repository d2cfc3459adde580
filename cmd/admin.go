package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/seamark/seamark/wire"
	"github.com/spf13/cobra"
)

// adminFlags are the flags of the commands that look into a running server by its directive
// admin.
type adminFlags struct {
	address, tokenFile, output string
	timeout                    time.Duration
}

const adminUsage = "`ADDRESS` of the server's directive admin: URL, HOST:PORT or unix:PATH"

func (a *adminFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&a.address, "admin", adminclient.Default, adminUsage)
	a.common(c)
}

// common adds the flags besides the address.
func (a *adminFlags) common(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	tokenFlag(c, &a.tokenFile)
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long to wait for the server")
	f.StringVarP(&a.output, "output", "o", "text", "format: text or json")
	complete(c, "output", "text", "json")
}

func tokenFlag(c *cobra.Command, file *string) {
	c.Flags().StringVar(file, "token-file", "",
		"`FILE` with the token of the server (default: $"+adminclient.TokenVariable+")")
}

// complete sets the values that the shell completes for a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	// It fails for an unknown flag only.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// check returns the errors of the command line.
func (a *adminFlags) check() error {
	if a.timeout <= 0 {
		return fmt.Errorf("--timeout: want a positive duration, got %v", a.timeout)
	}
	return oneOf("output", a.output, "text", "json")
}

// client returns a client of the server.
func (a *adminFlags) client() (*adminclient.Client, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	return newAdminClient(a.address, a.tokenFile, a.timeout)
}

func newAdminClient(address, tokenFile string, timeout time.Duration) (*adminclient.Client, error) {
	c, err := adminclient.New(address, timeout)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	if tokenFile != "" {
		if err := c.ReadToken(tokenFile); err != nil {
			return nil, failure{err}
		}
	}
	return c, nil
}

// show writes value as JSON, or calls text to write it for a person.
func (a *adminFlags) show(w io.Writer, value any, text func()) error {
	if a.output == "text" {
		text()
		return nil
	}
	if err := indented(escaped{w}, value); err != nil {
		return failure{err}
	}
	return nil
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

// A table writes rows of cells, which may be from clients and other servers.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer) table { return table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)} }

func (t table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = explain.Clean(fmt.Sprint(cell))
	}
	fmt.Fprintln(t, strings.TrimRight(strings.Join(texts, "\t"), "\t "))
}

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
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("want list or flush, got %q", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
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
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()

			if qtype, err = recordType("type", qtype); err != nil {
				return err
			}
			if limit < 1 || limit > 100_000 {
				return fmt.Errorf("--limit: want a number of 1..100000, got %d", limit)
			}

			found, err := client.Cache(c.Context(), strings.Join(args, ""), qtype, limit)
			if err != nil {
				return failure{err}
			}
			return a.show(p.out, found, func() { p.showCached(found, limit) })
		},
	}
	a.flags(c)
	c.Flags().StringVar(&qtype, "type", "", "only answers of this record `TYPE`")
	c.Flags().IntVar(&limit, "limit", 100, "list at most this many")
	complete(c, "type", commonTypes...)
	return c
}

func (p *program) showCached(found []adminclient.CachedAnswer, limit int) {
	t := newTable(p.out)
	t.row("NAME", "TYPE", "RCODE", "RECORDS", "BYTES", "AGE", "LEFT", "ZONE")
	for _, e := range found {
		left := e.Left.Round(time.Second).String()
		if e.Left < 0 {
			left = "expired"
		}
		t.row(e.Name, e.Type, e.RCode, e.Records, e.Size, e.Age.Round(time.Second), left, e.Zone)
	}
	_ = t.Flush() // p.out keeps the error
	if len(found) == limit {
		fmt.Fprintf(p.out, "There may be more: set a higher --limit, or a part of the name.\n")
	}
}

func (p *program) cacheFlushCommand() *cobra.Command {
	var a adminFlags
	c := &cobra.Command{
		Use:   "flush NAME",
		Short: "Remove the cached answers for NAME and all names below it",
		Long: `Flush removes the cached answers for NAME and all names below it from the caches of the
server blocks that have the directive admin. A dot removes all.`,
		Example: `  seamark cache flush www.example.org
  seamark cache flush .`,
		Args:              arguments(1, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := domainName(args[0]); err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()

			removed, err := client.Flush(c.Context(), args[0])
			if err != nil {
				return failure{err}
			}
			return a.show(p.out, map[string]int{"removed": removed}, func() {
				fmt.Fprintf(p.out, "Removed %s.\n", counted(removed, "cached answer", "cached answers"))
			})
		},
	}
	a.flags(c)
	return c
}
