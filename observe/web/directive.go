package web

import (
	"net/http"
	"net/netip"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// ReadAddress sets *addr to the optional argument of a directive that serves pages.
func ReadAddress(d corefile.Directive, addr *string) error {
	if err := d.Arity(0, 1); err != nil || len(d.Args) == 0 {
		return err
	}
	*addr = d.Args[0].Text
	return d.Each(ParseAddress(*addr))
}

// Client returns the address of a request's client. It is not valid over a Unix socket.
func Client(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr().Unmap()
}

// ServePages opens addr for the pages of d when the plan starts, calls handle,
// which registers the pages, and shows them when the plan begins to serve. The address of a
// directive that a flag stands for is opened later if it is in use.
func ServePages(
	b *config.Block, d corefile.Directive, addr string, files TLS, handle func(*config.Start, *Site) error,
) {
	b.Offer(&pages{addr, d})
	b.OnStart(func(s *config.Start) error {
		// A default of all installations must not keep a server from answering queries.
		site, err := open(s, addr, files, reports{b.Log, b.Health(), d.OfFlag()})
		if err != nil && d.OfFlag() {
			b.Log.Warn("Pages are not served", "error", d.Errorf("%w", err))
			return nil
		}
		if err != nil {
			return d.Errorf("%w", err)
		}
		if err := handle(s, site); err != nil {
			return err
		}
		b.OnSwap(site.Show)
		return nil
	})
}

// pages is offered to the server, which checks that no address overlaps with
// another one.
type pages struct {
	addr string
	from corefile.Directive
}

// HTTPAddress returns the address and the directive that names it.
func (p *pages) HTTPAddress() (addr string, from corefile.Directive) { return p.addr, p.from }
