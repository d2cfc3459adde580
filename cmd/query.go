package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/query"
	"github.com/seamark/seamark/operate/resolvconf"
	"github.com/seamark/seamark/operate/stub"
	"github.com/seamark/seamark/wire"
	"github.com/spf13/cobra"
)

// queryFlags are the flags of the command query.
type queryFlags struct {
	source               sourceFlags
	pod                  string
	domain, file, output string
	servers              []string
}

func (p *program) queryCommand() *cobra.Command {
	var q queryFlags
	c := &cobra.Command{
		Use:   "query NAME [TYPE...]",
		Short: "Resolve a name as a pod does, and show each query",
		Long: `Query resolves NAME as the resolver library of a program does: with the search domains,
the ndots option and the nameservers of a resolv.conf, and A and AAAA unless types are set.
It prints each query with its response code, server, time and records, and stops at the
first name that has a record.

With --pod it takes the resolv.conf that the kubelet writes for that pod: it reads the pod,
and the address of the Service kube-dns, from the API server. Search domains of the pod's
node are not known. Outside the cluster, where the Service's address cannot be reached, set
--server to an address that can.

The exit status is 1 if no name has a record.`,
		Example: `  seamark query web.shop.svc.cluster.local --server 127.0.0.1:1053
  seamark query web --pod shop/cart-7d9c
  seamark query web SRV --pod shop/cart-7d9c --output json`,
		Args: arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error { return p.query(c.Context(), q, args[0], args[1:]) },
	}

	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&q.pod, "pod", "", "resolve as this pod: `NAMESPACE/NAME`")
	q.source.flags(c)
	f.StringVar(&q.domain, "cluster-domain", "cluster.local", "the kubelet's clusterDomain")
	f.StringVar(&q.file, "resolv-conf", "/etc/resolv.conf", "`FILE` with the settings of a query without --pod")
	f.StringSliceVar(&q.servers, "server", nil, "nameserver in place of the file's: `IP[:PORT],...`")
	outputFlag(c, &q.output)
	return c
}

func (p *program) query(ctx context.Context, q queryFlags, name string, typeNames []string) error {
	types, err := queryTypes(typeNames)
	if err != nil {
		return err
	}
	if err := oneOf("output", q.output, "text", "json"); err != nil {
		return err
	}
	pod, ok := cluster.ParseKey(q.pod)
	if q.pod != "" && !ok {
		return fmt.Errorf("--pod: want NAMESPACE/NAME, got %q", q.pod)
	}
	for _, s := range q.servers {
		if _, err := netip.ParseAddrPort(query.WithPort(s)); err != nil {
			return fmt.Errorf("--server: want IP or IP:PORT, got %q", s)
		}
	}

	config, err := p.queryConfig(ctx, q, pod)
	if err != nil {
		return failure{err}
	}
	if len(q.servers) > 0 { // --server= makes it empty
		config.Nameservers = q.servers
	}

	r := stub.New(config)
	steps := []stub.Step{} // in JSON a list, even if it is empty
	r.Searches = append([]string{}, r.Searches...)
	err = r.Lookup(ctx, name, types, func(s stub.Step) {
		if q.output == "text" {
			p.showStep(s)
		}
		steps = append(steps, s)
	})

	if q.output == "json" {
		if err := indented(p.out, struct {
			Name     string      `json:"name"`
			Searches []string    `json:"searches"`
			Ndots    int         `json:"ndots"`
			Found    bool        `json:"found"`
			Steps    []stub.Step `json:"steps"`
		}{name, r.Searches, r.Ndots, err == nil, steps}); err != nil {
			return failure{err}
		}
	}
	if err != nil {
		return failure{fmt.Errorf("%q: %w", name, err)}
	}
	return nil
}

func queryTypes(names []string) (types []uint16, err error) {
	for _, name := range names {
		t, ok := wire.ParseType(name)
		if !ok {
			return nil, fmt.Errorf("want a record type such as SRV or TYPE65, got %q", name)
		}
		types = append(types, uint16(t))
	}
	if types == nil {
		types = []uint16{dns.TypeA, dns.TypeAAAA}
	}
	return types, nil
}

func (p *program) showStep(s stub.Step) {
	result := s.RCode
	switch {
	case s.Error != "":
		result = "no reply"
	case s.RCode == "NOERROR" && len(s.Records) == 0:
		result = "NODATA"
	}
	fmt.Fprintf(p.out, "%s %s: %s from %s in %v\n", s.Name, s.Type, result, s.Server, s.Time.Round(10*time.Microsecond))
	for _, record := range s.Records {
		fmt.Fprintf(p.out, "    %s\n", record)
	}
}

// queryConfig returns the contents of the resolv.conf that applies.
func (p *program) queryConfig(ctx context.Context, q queryFlags, key cluster.Key) (resolvconf.Config, error) {
	if q.pod == "" {
		return resolvconf.ReadResolver(q.file)
	}

	session, err := q.source.session()
	if err != nil {
		return resolvconf.Config{}, err
	}
	defer session.Close()

	manifest, _, err := apiPod(ctx, session, key)
	if err != nil {
		return resolvconf.Config{}, err
	}
	address, err := clusterDNS(ctx, session)
	switch {
	case err == nil:
	case len(q.servers) == 0:
		return resolvconf.Config{}, fmt.Errorf("%w: set --server", err)
	default:
		address = netip.MustParseAddrPort(query.WithPort(q.servers[0])).Addr()
	}
	return p.kubeletConfig(manifest, q.domain, address)
}

// clusterDNS returns the address of the Service kube-dns.
func clusterDNS(ctx context.Context, session *apiserver.Session) (address netip.Addr, err error) {
	var service struct{ Spec struct{ ClusterIP string } }
	const path = "/api/v1/namespaces/kube-system/services/kube-dns"
	if err := session.Read(ctx, path, "the Service kube-system/kube-dns", &service); err != nil {
		return address, err
	}
	if address, err = netip.ParseAddr(service.Spec.ClusterIP); err != nil {
		return address, errors.New("the Service kube-system/kube-dns has no ClusterIP")
	}
	return address, nil
}
