package cmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/skydns"
	"github.com/seamark/seamark/server"
	"github.com/spf13/cobra"
)

func (p *program) skydnsCommand() *cobra.Command {
	options := skydns.DefaultFlags(os.Getenv)
	var nameservers string
	var printCorefile bool
	machines := options.Etcd.Endpoints
	c := &cobra.Command{
		Use:   "skydns",
		Short: "Serve the names in etcd with SkyDNS's flags and records",
		Long: `Skydns replaces the program of that name: flags, environment and the configuration
in etcd have the same meaning, and names, records and the metrics skydns_skydns_dns_*
are the same. It uses etcd's API v3 only, watches the keys, and answers while etcd is
unavailable. It follows the configuration and the stub zones in etcd; a change needs
no restart. With PROMETHEUS_PORT in the environment it serves metrics on that port.
Flags may start with one dash or two.`,
		Example: `  seamark skydns -machines=http://127.0.0.1:2379 -addr=0.0.0.0:53 -domain=cluster.local. -ns-rotate=false
  seamark skydns -domain=skydns.local. -print-corefile`,
		Args: arguments(0, 0),
	}

	f := c.Flags()
	f.StringVar(&options.Domain, "domain", options.Domain, "`ZONE` to answer for (SKYDNS_DOMAIN)")
	f.StringVar(&options.Addr, "addr", options.Addr, "`IP:PORT` to listen on (SKYDNS_ADDR)")
	f.StringVar(&nameservers, "nameservers", strings.Join(options.Nameservers, ","),
		"`IP[:PORT],...` of the upstreams (SKYDNS_NAMESERVERS; default those in /etc/resolv.conf)")
	f.BoolVar(&options.NoRec, "no-rec", false, "do not forward queries to upstreams")
	f.StringVar(&machines, "machines", machines, "`URL,...` of etcd's members (ETCD_MACHINES)")
	f.StringVar(&options.Local, "local", "", "target `NAME` of local.dns.ZONE: this server")

	f.StringVar(&options.Etcd.Key, "tls-key", options.Etcd.Key, "key `FILE` of the client certificate (ETCD_TLSKEY)")
	f.StringVar(&options.Etcd.Cert, "tls-pem", options.Etcd.Cert, "client certificate `FILE` for etcd (ETCD_TLSPEM)")
	f.StringVar(&options.Etcd.CA, "ca-cert", options.Etcd.CA, "CA certificate `FILE` to verify etcd (ETCD_CACERT)")
	f.StringVar(&options.Etcd.Username, "username", options.Etcd.Username, "`USER` in etcd (ETCD_USERNAME)")
	f.StringVar(&options.Etcd.Password, "password", "", "password of the user (ETCD_PASSWORD)")

	f.DurationVar(&options.ReadTimeout, "rtimeout", options.ReadTimeout, "timeout of a query to an upstream")
	f.BoolVar(&options.RoundRobin, "round-robin", options.RoundRobin, "rotate the addresses in answers")
	f.BoolVar(&options.NSRotate, "ns-rotate", options.NSRotate,
		"query the upstreams in turn; without it, always the first available one")
	f.BoolVar(&options.StubZones, "stubzones", false, "follow the stub zones in etcd")
	f.BoolVar(&options.Verbose, "verbose", false, "log queries")
	f.StringVar(&options.Hostmaster, "hostmaster", "",
		"mail address in the SOA record as a `NAME` (default hostmaster.ZONE)")
	f.Int("scache", 10000, "ignored: there are no signatures to cache")
	f.IntVar(&options.RCache, "rcache", 0,
		"cache this many positive and as many negative answers of upstreams; 0 disables the cache")
	f.IntVar(&options.RCacheTTL, "rcache-ttl", options.RCacheTTL,
		"maximum TTL in seconds; also limits TTLs of names in etcd")
	f.IntVar(&options.Ndots, "ndots", options.Ndots, "forward only names with at least this many labels (SKYDNS_NDOTS)")
	f.StringVar(&options.PathPrefix, "path-prefix", options.PathPrefix,
		"first path element `NAME` of the keys in etcd (SKYDNS_PATH_PREFIX)")
	f.Bool("etcd3", true, "ignored: the server always uses etcd's API v3")
	f.DurationVar(&options.Lameduck, "lameduck", options.Lameduck, "keep answering for this time after SIGTERM")

	flags.Refuse(f, "dnssec", skydns.NoDNSSEC)
	flags.Refuse(f, "discover", "members are not discovered: list all of them in -machines")
	flags.RefuseSwitch(f, "systemd", skydns.NoSystemd)
	p.admin.flag(c)
	f.BoolVar(&printCorefile, "print-corefile", false,
		"print the Corefile for these flags and the environment, without the configuration in etcd, and exit")

	p.replaces(c, func([]string) error {
		errs := []error{flags.CheckRefused(f)}
		if os.Getenv("SKYDNS_SYSTEMD") == "true" {
			errs = append(errs, fmt.Errorf("SKYDNS_SYSTEMD: %s", skydns.NoSystemd))
		}
		for _, name := range []string{"GRAPHITE_SERVER", "STATHAT_USER"} {
			if os.Getenv(name) != "" {
				errs = append(errs, fmt.Errorf("%s: the server does not push statistics:"+
					" set PROMETHEUS_PORT and scrape them", name))
			}
		}

		options.Etcd.Endpoints, options.Nameservers = machines, nil
		if nameservers != "" {
			options.Nameservers = strings.Split(nameservers, ",")
		}
		if !c.Flags().Changed("password") {
			options.Etcd.Password = os.Getenv("ETCD_PASSWORD") // not the default, which --help would print
		}

		text, err := options.Corefile(nil, os.Getenv)
		if err := errors.Join(append(errs, err)...); err != nil {
			return err
		}

		if printCorefile {
			_, err := p.out.Write([]byte(text))
			return err
		}
		return p.serveSkyDNS(c, options)
	})
	return c
}

func (p *program) serveSkyDNS(c *cobra.Command, options skydns.Flags) error {
	out := newOutput(p.err)
	defer out.Stop()
	log := server.NewLog(out, slog.LevelInfo)
	o := p.options(log)
	f := skydns.NewFollower(options, os.Getenv, planned(o), log)
	defer f.Stop()

	r := server.Run{
		Options: o, Read: f.Read, Changed: f.Changed(), Out: out, Greeting: p.build.String(), Signals: p.signals,
	}
	return failed(r.Serve(c.Context()))
}
