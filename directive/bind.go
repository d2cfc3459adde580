package directive

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Bind lists the addresses that a server block listens on.
type Bind struct {
	addresses  []config.Address
	uses       []corefile.Directive
	interfaces func(name string) ([]netip.Addr, error)
}

// Bound returns the addresses.
func (b *Bind) Bound() []config.Address { return b.addresses }

// Changed returns the present addresses if they differ from the bound ones, because
// the addresses of an interface have changed.
func (b *Bind) Changed() []config.Address {
	now := &Bind{interfaces: b.interfaces}
	if err := now.read(b.uses); err != nil {
		return nil // such as an interface without an address, which would stop the server
	}
	same := slices.EqualFunc(now.addresses, b.addresses, func(x, y config.Address) bool { return x.IP == y.IP })
	if same {
		return nil
	}
	return now.addresses
}

// read adds the addresses of bind directives.
func (b *Bind) read(uses []corefile.Directive) error {
	var errs []error
	for _, d := range uses {
		errs = append(errs, b.add(d))
	}
	return errors.Join(errs...)
}

// SetupBind sets up the bind directive, which selects the addresses that a server block
// listens on. Its reference page is docs/reference/directives/bind.md.
func SetupBind(b *config.Block, uses []corefile.Directive) error {
	return BindWith(config.InterfaceAddresses)(b, uses)
}

// BindWith returns the Setup of bind on a machine with the given network
// interfaces. The function returns the addresses of an interface, none if there is
// no interface of that name.
func BindWith(interfaces func(name string) ([]netip.Addr, error)) func(*config.Block, []corefile.Directive) error {
	return func(b *config.Block, uses []corefile.Directive) error {
		bind := &Bind{uses: uses, interfaces: interfaces}
		b.Offer(bind)
		return bind.read(uses)
	}
}

// add adds the addresses of one bind directive.
func (b *Bind) add(d corefile.Directive) error {
	var except []config.Address
	errs := []error{d.Arity(1, -1), d.Options(corefile.Option{
		Usage: "except ADDRESS|INTERFACE...",
		Set: func(o corefile.Directive) (err error) {
			more, err := b.list(o)
			except = append(except, more...)
			return err
		},
	})}

	listed, err := b.list(d)
	errs = append(errs, err)
	contains := func(list []config.Address, a config.Address) bool {
		return slices.ContainsFunc(list, func(b config.Address) bool { return a.IP == b.IP })
	}
	selected := slices.DeleteFunc(slices.Clone(listed), func(a config.Address) bool { return contains(except, a) })
	if len(listed) > 0 && len(selected) == 0 {
		errs = append(errs, d.Errorf("no address is left to listen on"))
	}

	for _, a := range selected {
		if !contains(b.addresses, a) {
			b.addresses = append(b.addresses, a)
		}
	}
	return errors.Join(errs...)
}

// list returns the addresses of arguments that are IP addresses or names of interfaces.
func (b *Bind) list(d corefile.Directive) (found []config.Address, err error) {
	var errs []error
	for _, arg := range d.Args {
		ips, err := b.interfaces(arg.Text)
		if ip, parseErr := netip.ParseAddr(arg.Text); parseErr == nil {
			ips, err = []netip.Addr{ip.Unmap()}, nil
		}
		switch {
		case err != nil:
			errs = append(errs, arg.Errorf(d.Path, "reading the addresses of interface %s: %w", arg.Text, err))
		case len(ips) == 0:
			errs = append(errs, arg.Errorf(d.Path,
				"want an IP address or the name of an interface that has one, got %q", arg.Text))
		}
		for _, ip := range ips {
			found = append(found, config.Address{IP: ip, From: arg})
		}
	}
	return found, errors.Join(errs...)
}
