package cmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/inventory"
	"github.com/seamark/seamark/operate/servers"
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

` + findServers + `

Of several servers it shows each record once. A record that some of them lack follows a comment with
the servers that have it, and the exit status is then 1. Servers differ for moments only. Serial
numbers are not compared.

With --conf or --manifests it plans the Corefile or serves the folder in a process of its own that
listens on no address, as explain does.`,
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
			case conf+manifests != "" && (len(a.addresses) > 0 || a.tokenFile != "" || a.inCluster()):
				return errors.New("flags such as --admin, --token-file and --namespace are for running servers:" +
					" leave out --conf and --manifests")
			}

			out := bufio.NewWriter(p.out)
			show, shown := showRecord(out), 0
			if a.output == "json" {
				e := jsonLines(out)
				show = func(r serverRecord) error { return e.Encode(r) }
			}
			yield := func(r serverRecord) error {
				shown++
				return show(r)
			}

			differ := false
			if conf+manifests != "" {
				err = p.localRecords(c.Context(), serve{conf: conf, manifests: manifests}, a.timeout, filter, yield)
			} else {
				found, stop, usage := a.find(c.Context())
				if usage != nil {
					return usage
				}
				defer stop()
				parameters := url.Values{"zone": {zone}, "directive": {directive}, "name": {name}, "type": {qtype}}
				differ, err = p.serverRecords(c.Context(), found, parameters, yield)
			}

			if err = cmp.Or(err, out.Flush()); err == nil && shown == 0 {
				err = errors.New("no records")
			}
			switch {
			case err != nil:
				return failure{err}
			case differ:
				return different{}
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
	complete(c, "directive", p.answering()...)
	a.flags(c)
	outputFlag(c, &a.output)
	return c
}

// A serverRecord is a record, with the servers that have it if others lack it.
type serverRecord struct {
	inventory.Record
	Servers []string `json:"servers,omitempty"`
}

// serverRecords passes the records of servers to yield, each once. differ reports whether some servers
// lack some records, or do not answer.
func (p *program) serverRecords(
	ctx context.Context, found []*servers.Server, parameters url.Values, yield func(serverRecord) error,
) (differ bool, err error) {
	if len(found) == 1 { // it need not be held in memory
		return false, found[0].Records(ctx, parameters, func(r inventory.Record) error {
			return yield(serverRecord{Record: r})
		})
	}

	replies, err := answered(p.err, askAll(found, func(s *servers.Server) (all []inventory.Record, err error) {
		err = s.Records(ctx, parameters, func(r inventory.Record) error {
			all = append(all, r)
			return nil
		})
		return all, err
	}))
	if err != nil {
		return false, err
	}

	key := func(r inventory.Record) inventory.Record {
		if r.Type == "SOA" {
			r.Data = "" // each server has serial numbers of its own
		}
		return r
	}
	var order []inventory.Record
	holders := map[inventory.Record][]string{}
	for _, reply := range replies {
		seen := map[inventory.Record]bool{} // two server blocks may have the same record
		for _, r := range reply.value {
			k := key(r)
			if seen[k] {
				continue
			}
			seen[k] = true
			if holders[k] == nil {
				order = append(order, r)
			}
			holders[k] = append(holders[k], reply.server.Label())
		}
	}

	differ = len(replies) < len(found)
	for _, r := range order {
		shown := serverRecord{Record: r}
		if names := holders[key(r)]; len(names) < len(replies) {
			shown.Servers, differ = names, true
		}
		if err := yield(shown); err != nil {
			return differ, err
		}
	}
	return differ, nil
}

// localRecords passes the selected records of a server in this process to yield.
func (p *program) localRecords(
	ctx context.Context, s serve, timeout time.Duration, filter inventory.Filter, yield func(serverRecord) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	own, err := p.startLocal(ctx, s)
	if err != nil {
		return err
	}
	defer own.Stop()

	for r := range own.Records() {
		if !filter.Selects(&r) {
			continue
		}
		if err := yield(serverRecord{Record: r}); err != nil {
			return err
		}
	}
	return nil
}

// showRecord returns a function that writes records to w in the format of zone files.
func showRecord(w io.Writer) func(serverRecord) error {
	last := ""
	return func(r serverRecord) error {
		if origin := fmt.Sprintf("; zone %s of %s", r.Zone, r.Directive); origin != last {
			last = origin
			if _, err := fmt.Fprintln(w, explain.Clean(origin)); err != nil {
				return err
			}
		}
		if r.Servers != nil {
			if _, err := fmt.Fprintln(w, explain.Clean("; only on "+strings.Join(r.Servers, ", "))); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(w, explain.Clean(fmt.Sprintf("%s %d IN %s %s", r.Name, r.TTL, r.Type, r.Data)))
		return err
	}
}
