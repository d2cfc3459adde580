package healthz

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// patience is how long all questions of a lookup wait for their answers.
	patience = 2 * time.Second
	// resolvConf says who is asked if the command does not.
	resolvConf = "/etc/resolv.conf"
)

// A lookup is what nslookup does in the manifests of kube-dns: it succeeds if the
// name has an address.
type lookup struct {
	name   string
	server string // HOST:PORT, or empty: those of the machine
}

// parseLookup reads NAME [SERVER[:PORT]].
func parseLookup(args []string) (lookup, error) {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return lookup{}, fmt.Errorf("there is no nslookup here but ours, which has no options, got %s", arg)
		}
	}
	if len(args) < 1 || len(args) > 2 {
		return lookup{}, fmt.Errorf("there is no nslookup here but ours: want nslookup NAME [SERVER[:PORT]], got %d words", len(args))
	}
	l := lookup{name: dns.Fqdn(args[0])}
	if _, ok := dns.IsDomainName(l.name); !ok || net.ParseIP(args[0]) != nil {
		return lookup{}, fmt.Errorf("there is no nslookup here but ours: want a name, got %q", args[0])
	}
	if len(args) == 2 {
		l.server = withPort(args[1])
		if host, _, err := net.SplitHostPort(l.server); err != nil || host == "" {
			return lookup{}, fmt.Errorf("there is no nslookup here but ours: want SERVER[:PORT], got %q", args[1])
		}
	}
	return l, nil
}

// withPort is server, with port 53 if it names none. An IPv6 address may stand
// alone, without brackets.
func withPort(server string) string {
	if bare := strings.Trim(server, "[]"); net.ParseIP(bare) != nil {
		return net.JoinHostPort(bare, "53")
	}
	if !strings.Contains(server, ":") {
		return server + ":53"
	}
	return server
}

func (l lookup) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
	err := errors.New("there is nobody to ask in " + resolvConf)
	for i, server := range servers {
		// Each gets its share of the time that is left.
		deadline, _ := ctx.Deadline()
		turn, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(servers)-i))
		err = l.ask(turn, server, out)
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}

// ask puts the question for A to one server, and the one for AAAA if there is none:
// a cluster may have no IPv4.
func (l lookup) ask(ctx context.Context, server string, out io.Writer) error {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		q := new(dns.Msg).SetQuestion(l.name, kind)
		reply, err := exchange(ctx, "udp", server, q)
		if err == nil && reply.Truncated {
			reply, err = exchange(ctx, "tcp", server, q)
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded): // the socket's deadline is the same
			return fmt.Errorf("no answer from %s in time", server)
		case err != nil:
			return fmt.Errorf("asking %s: %w", server, err)
		case reply.Rcode != dns.RcodeSuccess:
			return fmt.Errorf("%s says %s to %s", server, dns.RcodeToString[reply.Rcode], l.name)
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
			fmt.Fprintf(out, "Server:  %s\nName:    %s\nAddress: %s\n", server, l.name, strings.Join(addresses, " "))
			return nil
		}
	}
	return fmt.Errorf("%s has no address for %s", server, l.name)
}

// exchange waits for one reply; the end of ctx breaks it off.
func exchange(ctx context.Context, network, server string, q *dns.Msg) (*dns.Msg, error) {
	client := dns.Client{Net: network, Timeout: patience}
	conn, err := client.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	reply, _, err := client.ExchangeWithConnContext(ctx, q, conn)
	return reply, err
}
