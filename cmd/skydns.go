package cmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/etcd"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

func (p *program) skydnsCommand() *cobra.Command {
	flags := etcd.DefaultFlags(os.Getenv)
	var nameservers string
	var showVersion, printCorefile bool
	machines := flags.Etcd.Endpoints
	old := []struct{ name, why string }{
		{"dnssec", etcd.NoDNSSEC},
		{"discover", "members are not looked for: name them all in -machines"},
	}
	c := &cobra.Command{
		Use:   "skydns",
		Short: "Serve the names that are in etcd as SkyDNS does",
		Long: `Skydns takes the place of the program of that name: flags, environment and the
configuration in etcd mean what they mean there, and names, records and the metrics
skydns_skydns_dns_* are the same. It speaks etcd's API v3 alone, watches the keys,
and answers while etcd is away. The configuration and the stub zones in etcd are
followed: a change needs no restart. With PROMETHEUS_PORT in the environment
metrics are served on that port. Flags may have one dash or two.`,
		Example: `  seamark skydns -machines=http://127.0.0.1:2379 -addr=0.0.0.0:53 -domain=cluster.local. -ns-rotate=false
  seamark skydns -domain=skydns.local. -print-corefile`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&flags.Domain, "domain", flags.Domain, "`ZONE` to answer for (SKYDNS_DOMAIN)")
	f.StringVar(&flags.Addr, "addr", flags.Addr, "`IP:PORT` to answer at (SKYDNS_ADDR)")
	f.StringVar(&nameservers, "nameservers", strings.Join(flags.Nameservers, ","), "`IP[:PORT],…` of who is asked for names elsewhere (SKYDNS_NAMESERVERS); else those of /etc/resolv.conf")
	f.BoolVar(&flags.NoRec, "no-rec", false, "ask nobody for names elsewhere")
	f.StringVar(&machines, "machines", machines, "`URL,…` of etcd (ETCD_MACHINES)")
	f.StringVar(&flags.Local, "local", "", "`NAME` of this server, which local.dns.ZONE leads to")
	f.StringVar(&flags.Etcd.Key, "tls-key", flags.Etcd.Key, "`FILE` with the key for etcd (ETCD_TLSKEY)")
	f.StringVar(&flags.Etcd.Cert, "tls-pem", flags.Etcd.Cert, "`FILE` with the certificate for etcd (ETCD_TLSPEM)")
	f.StringVar(&flags.Etcd.CA, "ca-cert", flags.Etcd.CA, "`FILE` with the CA of etcd (ETCD_CACERT)")
	f.StringVar(&flags.Etcd.Username, "username", flags.Etcd.Username, "`USER` of etcd (ETCD_USERNAME)")
	f.StringVar(&flags.Etcd.Password, "password", "", "its password (ETCD_PASSWORD)")
	f.DurationVar(&flags.ReadTimeout, "rtimeout", flags.ReadTimeout, "how long one server elsewhere is waited for")
	f.BoolVar(&flags.RoundRobin, "round-robin", flags.RoundRobin, "turn the addresses of answers")
	f.BoolVar(&flags.NSRotate, "ns-rotate", flags.NSRotate, "ask the servers elsewhere in turn; else the first one first")
	f.BoolVar(&flags.StubZones, "stubzones", false, "follow the stub zones in etcd")
	f.BoolVar(&flags.Verbose, "verbose", false, "log questions")
	f.StringVar(&flags.Hostmaster, "hostmaster", "", "`NAME` of who is responsible for the zone; else hostmaster.ZONE")
	f.Int("scache", 10000, "means nothing: there are no signatures to keep")
	f.IntVar(&flags.RCache, "rcache", 0, "how many answers of servers elsewhere are kept, and as many denials; 0 is none")
	f.IntVar(&flags.RCacheTTL, "rcache-ttl", flags.RCacheTTL, "how many seconds at most; TTLs of names in etcd are cut as well")
	f.IntVar(&flags.Ndots, "ndots", flags.Ndots, "how many labels a name must have to be asked elsewhere (SKYDNS_NDOTS)")
	f.StringVar(&flags.PathPrefix, "path-prefix", flags.PathPrefix, "`NAME` that the keys in etcd begin with (SKYDNS_PATH_PREFIX)")
	f.Bool("etcd3", true, "means nothing: etcd's API v3 is what is spoken")
	f.DurationVar(&flags.Lameduck, "lameduck", flags.Lameduck, "go on answering for this long after being told to stop")
	f.Bool("systemd", false, "is refused")
	for _, o := range old {
		f.String(o.name, "", "is refused")
		_ = f.MarkHidden(o.name)
	}
	_ = f.MarkHidden("systemd")
	f.BoolVar(&printCorefile, "print-corefile", false, "show the Corefile that the flags and the environment mean, without what etcd has, and end")
	f.BoolVar(&showVersion, "version", false, "show the version")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if showVersion {
			return p.showVersion()
		}
		var errs []error
		for _, o := range old {
			if c.Flags().Changed(o.name) {
				errs = append(errs, fmt.Errorf("-%s: %s", o.name, o.why))
			}
		}
		if on, _ := c.Flags().GetBool("systemd"); on || os.Getenv("SKYDNS_SYSTEMD") == "true" {
			errs = append(errs, fmt.Errorf("-systemd: %s", etcd.NoSystemd))
		}
		for _, name := range []string{"GRAPHITE_SERVER", "STATHAT_USER"} {
			if os.Getenv(name) != "" {
				errs = append(errs, fmt.Errorf("%s: statistics are not sent; let them be fetched (PROMETHEUS_PORT)", name))
			}
		}
		flags.Etcd.Endpoints, flags.Nameservers = machines, nil
		if nameservers != "" {
			flags.Nameservers = strings.Split(nameservers, ",")
		}
		if !c.Flags().Changed("password") {
			flags.Etcd.Password = os.Getenv("ETCD_PASSWORD") // which help does not show
		}
		text, err := flags.Corefile(nil, os.Getenv)
		if err := errors.Join(append(errs, err)...); err != nil {
			return err
		}
		if printCorefile {
			_, err := p.out.Write([]byte(text))
			return err
		}
		return p.serveSkyDNS(c, flags)
	}
	return c
}

func (p *program) serveSkyDNS(c *cobra.Command, flags etcd.Flags) error {
	out := newOutput(p.err)
	defer out.close()
	log := server.NewLog(out, slog.LevelInfo)
	limitMemory(log)
	o := p.options(log)
	f := etcd.NewFollower(flags, os.Getenv, func(blocks []corefile.Server) error { return planned(o, blocks) }, log)
	defer f.Stop()
	r := server.Run{Options: o, Read: f.Read, Changed: f.Changed(), Out: out, Greeting: p.greeting()}
	if err := r.Serve(c.Context()); err != nil {
		return failure{err}
	}
	return nil
}
