package directive

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Bind lists the addresses that a server block listens on.
type Bind struct{ addresses []config.Address }

// Bound returns the addresses.
func (b *Bind) Bound() []config.Address { return b.addresses }

// SetupBind sets up the bind directive, which selects the addresses that a
// server block listens on.
//
//	bind ADDRESS|INTERFACE... {
//	    except ADDRESS|INTERFACE...
//	}
//
// Use bind to listen on these addresses, over UDP and TCP, instead of on all
// addresses of the machine. The ports are those of the server block's keys. An
// INTERFACE stands for all addresses that it has when the Corefile is read. If
// you give bind several times in a server block, the block listens on the
// addresses of all of them.
//
// except removes addresses from those of its own bind line.
//
//	.:53 {
//	    bind lo eth0 {
//	        except fe80::1%eth0
//	    }
//	    whoami
//	}
//
// Same as CoreDNS. Differs: two server blocks cannot share a port if one of
// them listens on all addresses and the other on a single one.
func SetupBind(b *config.Block, uses []corefile.Directive) error {
	return BindWith(config.InterfaceAddresses)(b, uses)
}

// BindWith returns the Setup of bind on a machine with the given network
// interfaces. The function returns the addresses of an interface, none if there is
// no interface of that name.
func BindWith(interfaces func(name string) ([]netip.Addr, error)) func(*config.Block, []corefile.Directive) error {
	return func(b *config.Block, uses []corefile.Directive) error {
		bind := new(Bind)
		b.Offer(bind)
		var errs []error
		for _, d := range uses {
			errs = append(errs, bind.add(d, interfaces))
		}
		return errors.Join(errs...)
	}
}

// add adds the addresses of one bind directive.
func (b *Bind) add(d corefile.Directive, interfaces func(string) ([]netip.Addr, error)) error {
	var except []config.Address
	errs := []error{d.Arity(1, -1), d.Options(corefile.Option{
		Usage: "except ADDRESS|INTERFACE...",
		Set: func(o corefile.Directive) (err error) {
			more, err := bindAddresses(o, interfaces)
			except = append(except, more...)
			return err
		},
	})}
	listed, err := bindAddresses(d, interfaces)
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

// bindAddresses reads arguments that are IP addresses or names of interfaces.
func bindAddresses(d corefile.Directive, interfaces func(string) ([]netip.Addr, error)) (found []config.Address, err error) {
	var errs []error
	for _, arg := range d.Args {
		ips, err := interfaces(arg.Text)
		if ip, parseErr := netip.ParseAddr(arg.Text); parseErr == nil {
			ips, err = []netip.Addr{ip.Unmap()}, nil
		}
		switch {
		case err != nil:
			errs = append(errs, arg.Errorf(d.Path, "reading the addresses of interface %s: %w", arg.Text, err))
		case len(ips) == 0:
			errs = append(errs, arg.Errorf(d.Path, "want an IP address or the name of an interface that has one, got %q", arg.Text))
		}
		for _, ip := range ips {
			found = append(found, config.Address{IP: ip, From: arg})
		}
	}
	return found, errors.Join(errs...)
}
