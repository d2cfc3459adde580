package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/web"
)

// httpAddress sets *addr to the optional argument of a directive that serves
// HTTP pages.
func httpAddress(d corefile.Directive, addr *string) error {
	if err := d.Arity(0, 1); err != nil || len(d.Args) == 0 {
		return err
	}
	*addr = d.Args[0].Text
	if err := web.ParseAddress(*addr); err != nil {
		return d.Errorf("%w", err)
	}
	return nil
}

// servePages opens addr for the pages of d when the plan starts, calls handle,
// which registers the pages, and shows them when the plan begins to serve.
func servePages(b *config.Block, d corefile.Directive, addr string, files web.TLS, handle func(*config.Start, *web.Site) error) {
	b.Offer(&httpPages{addr, d})
	b.OnStart(func(s *config.Start) error {
		site, err := web.Open(s, addr, files)
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

// httpPages is offered to the server, which checks that no address overlaps with
// another one.
type httpPages struct {
	addr string
	from corefile.Directive
}

// HTTPAddress returns the address and the directive that names it.
func (p *httpPages) HTTPAddress() (addr string, from corefile.Directive) { return p.addr, p.from }
