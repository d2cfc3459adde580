package cmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/inventory"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/spf13/cobra"
)

func (p *program) recordsCommand() *cobra.Command {
	var a adminFlags
	var conf, manifests, zone, directive, name, qtype string
	c := &cobra.Command{
		Use:   "records",
		Short: "Show the records that a server serves, as a zone file or JSON",
		Long: `Records shows the records of the server's own zones: the zones of the cluster, zone files,
and copies of other servers' zones. Answers of forward, template and rewrite are not records
of a zone. The text is a zone file, zone by zone; JSON has one object on each line.

It asks a running server, which needs the directive admin. With --conf or --manifests it
plans the Corefile or serves the folder in a process of its own that listens on no address,
as explain does.`,
		Example: `  seamark records --zone cluster.local --type SRV
  seamark records --name web.shop
  seamark records --manifests examples --output json`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return err
			}
			filter, err := inventory.NewFilter(zone, directive, name, qtype)
			switch {
			case err != nil:
				return fmt.Errorf("--%w", err)
			case conf != "" && manifests != "":
				return errors.New("set only one of --manifests and --conf")
			case conf+manifests != "" && (c.Flags().Changed("admin") || a.tokenFile != ""):
				return errors.New("--admin and --token-file are for a running server: leave out --conf and --manifests")
			}

			out := bufio.NewWriter(p.out)
			show, found := showRecord(out), 0
			if a.output == "json" {
				e := jsonLines(out)
				show = func(r inventory.Record) error { return e.Encode(r) }
			}
			yield := func(r inventory.Record) error {
				found++
				return show(r)
			}

			if conf+manifests != "" {
				e := explainFlags{conf: conf, manifests: manifests, timeout: a.timeout}
				err = p.localRecords(c.Context(), e, filter, yield)
			} else {
				var client *adminclient.Client
				if client, err = a.client(); err != nil {
					return err
				}
				defer client.Close()
				parameters := url.Values{"zone": {zone}, "directive": {directive}, "name": {name}, "type": {qtype}}
				err = client.Records(c.Context(), parameters, yield)
			}

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
	f.StringVar(&conf, "conf", "", `Corefile in place of a running server, "-" for standard input`)
	f.StringVar(&manifests, "manifests", "", "folder of YAML and JSON files in place of a running server")
	f.StringVar(&zone, "zone", "", "only records of this `ZONE`")
	f.StringVar(&directive, "directive", "", "only records of this `DIRECTIVE`, such as kubernetes or file")
	f.StringVar(&name, "name", "", "only names with this `TEXT` in them")
	f.StringVar(&qtype, "type", "", "only records of this `TYPE`")
	complete(c, "type", commonTypes...)
	a.flags(c)
	return c
}

// localRecords passes the selected records of the server that e selects to yield.
func (p *program) localRecords(
	ctx context.Context, e explainFlags, filter inventory.Filter, yield func(inventory.Record) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	own, err := p.startLocal(ctx, e)
	if err != nil {
		return err
	}
	defer own.Stop()

	for r := range own.Records() {
		if !filter.Selects(&r) {
			continue
		}
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}

// showRecord returns a function that writes records to w in the format of zone files.
func showRecord(w io.Writer) func(inventory.Record) error {
	last := ""
	return func(r inventory.Record) error {
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
