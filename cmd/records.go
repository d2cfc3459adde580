package cmd

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/seamark/seamark/internal/adminclient"
	"github.com/seamark/seamark/internal/explain"
	"github.com/spf13/cobra"
)

func (p *program) recordsCommand() *cobra.Command {
	var a adminFlags
	var zone, name, qtype string
	c := &cobra.Command{
		Use:   "records",
		Short: "Show the records that a running server serves, as a zone file or JSON",
		Long: `Records shows the records of the zones that the server has data of: those of the cluster,
zone files, copies of other servers' zones. Answers of forward, template and rewrite are
not records of a zone. The text is a zone file, zone by zone; JSON has an object a line.

The server needs the directive admin.`,
		Example: `  seamark records --zone cluster.local --type SRV
  seamark records --name web.shop
  seamark records --output json`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			if qtype, err = recordType("type", qtype); err != nil {
				return err
			}
			out := bufio.NewWriter(p.out)
			show, found := showRecord(out), 0
			if a.output == "json" {
				e := jsonLines(out)
				show = func(r adminclient.Record) error { return e.Encode(r) }
			}
			err = client.Records(c.Context(), url.Values{"zone": {zone}, "name": {name}, "type": {qtype}}, func(r adminclient.Record) error {
				found++
				return show(r)
			})
			if err = cmp.Or(err, out.Flush()); err == nil && found == 0 {
				err = errors.New("no records")
			}
			if err != nil {
				return failure{err}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&zone, "zone", "", "only records of this `ZONE`")
	f.StringVar(&name, "name", "", "only names with this `TEXT` in them")
	f.StringVar(&qtype, "type", "", "only records of this `TYPE`")
	complete(c, "type", commonTypes...)
	a.flags(c)
	return c
}

// showRecord returns a function that writes records to w in the format of zone files.
func showRecord(w io.Writer) func(adminclient.Record) error {
	last := ""
	return func(r adminclient.Record) error {
		if origin := fmt.Sprintf("; zone %s of %s", r.Zone, r.Directive); origin != last {
			last = origin
			if _, err := fmt.Fprintln(w, explain.Clean(origin)); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(w, explain.Clean(fmt.Sprintf("%s %d IN %s %s", r.Name, r.TTL, r.Type, r.Data)))
		return err
	}
}
