package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/web"
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

// openSite returns the site at addr for the pages of d.
func openSite(s *config.Start, d corefile.Directive, addr string, files web.TLS) (*web.Site, error) {
	site, err := web.Open(s, addr, files)
	if err != nil {
		return nil, d.Errorf("%w", err)
	}
	return site, nil
}

// httpPages is offered to the server, which checks that no address overlaps with
// another one.
type httpPages struct {
	addr string
	from corefile.Directive
}

// HTTPAddress returns the address and the directive that names it.
func (p *httpPages) HTTPAddress() (addr string, from corefile.Directive) { return p.addr, p.from }
