package healthz

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/operate/query"
)

const (
	// lookupTimeout limits all queries of a lookup together.
	lookupTimeout = query.Timeout
	// resolvConf lists the servers for a lookup without a server argument.
	resolvConf = "/etc/resolv.conf"
)

// A lookup replaces nslookup as the manifests of kube-dns use it: it succeeds if the
// name has an address.
type lookup struct {
	name   string
	server string // HOST:PORT; "" means the servers in resolvConf
}

// parseLookup parses NAME [SERVER[:PORT]].
func parseLookup(args []string) (lookup, error) {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return lookup{}, fmt.Errorf(builtinOnly+"want no options, got %s", arg)
		}
	}
	if len(args) < 1 || len(args) > 2 {
		return lookup{}, fmt.Errorf(builtinOnly+"want nslookup NAME [SERVER[:PORT]], got %d words", len(args))
	}
	l := lookup{name: dns.Fqdn(args[0])}
	if _, ok := dns.IsDomainName(l.name); !ok || net.ParseIP(args[0]) != nil {
		return lookup{}, fmt.Errorf(builtinOnly+"want a name, got %q", args[0])
	}
	if len(args) == 2 {
		l.server = query.WithPort(args[1])
		if host, _, err := net.SplitHostPort(l.server); err != nil || host == "" {
			return lookup{}, fmt.Errorf(builtinOnly+"want SERVER[:PORT], got %q", args[1])
		}
	}
	return l, nil
}

// builtinOnly starts errors about arguments of nslookup.
const builtinOnly = "no nslookup found and the built-in one is limited: "

func (l lookup) run(ctx context.Context, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()

	servers := []string{l.server}
	if l.server == "" {
		conf, err := dns.ClientConfigFromFile(resolvConf)
		if err != nil {
			return fmt.Errorf("reading %s: %w", resolvConf, err)
		}
		servers = nil
		for _, s := range conf.Servers {
			servers = append(servers, net.JoinHostPort(s, conf.Port))
		}
	}

	err := fmt.Errorf("reading %s: no nameservers", resolvConf)
	for i, server := range servers {
		// Divide the remaining time among the remaining servers.
		deadline, _ := ctx.Deadline()
		queryCtx, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(servers)-i))
		err = l.query(queryCtx, server, stdout)
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}

// query queries server for A records and, if there are none, for AAAA records: a
// cluster may lack IPv4.
func (l lookup) query(ctx context.Context, server string, stdout io.Writer) error {
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		reply, err := query.Exchange(ctx, server, new(dns.Msg).SetQuestion(l.name, qtype))
		if err != nil {
			return err
		}
		if reply.Rcode != dns.RcodeSuccess {
			return fmt.Errorf("querying %s: reply %s for %s", server, query.RCode(reply), l.name)
		}

		var addresses []string
		for _, rr := range reply.Answer {
			switch rr := rr.(type) {
			case *dns.A:
				addresses = append(addresses, rr.A.String())
			case *dns.AAAA:
				addresses = append(addresses, rr.AAAA.String())
			}
		}
		if len(addresses) > 0 {
			fmt.Fprintf(stdout, "Server:  %s\nName:    %s\nAddress: %s\n", server, l.name, strings.Join(addresses, " "))
			return nil
		}
	}
	return fmt.Errorf("querying %s: no address for %s", server, l.name)
}
