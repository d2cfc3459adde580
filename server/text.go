package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/seamark/seamark/config"
)

// Addresses returns the addresses on which a started plan listens, in the order of the
// Corefile. For port 0 they have the port that the kernel chose.
func (p *Plan) Addresses() (addresses []netip.AddrPort) {
	for _, l := range p.listeners {
		addresses = append(addresses, l.Addr())
	}
	return addresses
}

// printAddresses writes the zones and ports of a started plan, in CoreDNS's format. It writes once: the
// plan logs already, maybe to the same file, and a line of the log within one of these would break both.
func (p *Plan) printAddresses(out io.Writer) {
	w := new(bytes.Buffer)
	addresses := p.Addresses()
	for i, s := range p.sites {
		at := addresses[i]
		printed := map[config.Key]bool{}
		for _, r := range s.routes {
			zone := config.Key{Zone: r.key.Zone}
			if printed[zone] {
				continue // for another view of the zone
			}
			printed[zone] = true

			if s.scheme != config.DNS {
				fmt.Fprintf(w, "%s://", s.scheme)
			}
			fmt.Fprintf(w, "%s:%d", r.key.Zone, at.Port())
			if s.addr.Addr() != everywhere {
				fmt.Fprintf(w, " on %s", s.addr.Addr())
			}
			fmt.Fprintln(w)
		}
	}
	_, _ = out.Write(w.Bytes())
}

// An exemplifier is a handler with example queries, as arguments of dig:
// "db.shop.svc.cluster.local SRV". It may wait for its data until ctx ends.
type exemplifier interface {
	Examples(ctx context.Context) []string
}

// examples returns two dig command lines for a started plan: examples of its
// handlers, then the given queries.
func (p *Plan) examples(ctx context.Context, questions []string) (lines []string) {
	var known []string
	for _, e := range Find[exemplifier](p) {
		known = append(known, e.Examples(ctx)...)
	}

	at := p.Addresses()[0] // a plan has at least one block, and a block at least one address
	host := at.Addr()
	if host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for _, q := range append(known, questions...) {
		lines = append(lines, fmt.Sprintf("dig @%s -p %d %s", host, at.Port(), q))
	}
	return lines[:min(2, len(lines))]
}
