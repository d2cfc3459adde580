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

// SetupBind is the Setup of the bind directive, which gives the addresses that a
// server block listens on.
//
//	bind ADDRESS|INTERFACE… {
//	    except ADDRESS|INTERFACE…
//	}
//
// The server block listens on these addresses instead of on all, by UDP and TCP,
// at the ports of its keys. An interface stands for every address that it has when the Corefile is read. Several uses
// in one block add up; except takes from its own use alone.
//
//	.:53 {
//	    bind lo eth0 {
//	        except fe80::1%eth0
//	    }
//	    whoami
//	}
//
// Same as CoreDNS. Differs: two server blocks cannot have one port, one of them
// on all addresses and the other on a single one.
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
			errs = append(errs, bind.use(d, interfaces))
		}
		return errors.Join(errs...)
	}
}

// use adds the addresses of one use of the directive.
func (b *Bind) use(d corefile.Directive, interfaces func(string) ([]netip.Addr, error)) error {
	var except []config.Address
	errs := []error{d.Arity(1, -1), d.Options(corefile.Option{
		Name: "except", Min: 1, Max: -1,
		Set: func(o corefile.Directive) (err error) {
			more, err := addresses(o, interfaces)
			except = append(except, more...)
			return err
		},
	})}
	listed, err := addresses(d, interfaces)
	errs = append(errs, err)
	contains := func(list []config.Address, a config.Address) bool {
		return slices.ContainsFunc(list, func(b config.Address) bool { return a.IP == b.IP })
	}
	left := slices.DeleteFunc(slices.Clone(listed), func(a config.Address) bool { return contains(except, a) })
	if len(listed) > 0 && len(left) == 0 {
		errs = append(errs, d.Errorf("no address is left to listen on"))
	}
	for _, a := range left {
		if !contains(b.addresses, a) {
			b.addresses = append(b.addresses, a)
		}
	}
	return errors.Join(errs...)
}

// addresses reads arguments that are addresses or names of interfaces.
func addresses(d corefile.Directive, interfaces func(string) ([]netip.Addr, error)) (found []config.Address, err error) {
	var errs []error
	for _, arg := range d.Args {
		ips, err := interfaces(arg.Text)
		if ip, bad := netip.ParseAddr(arg.Text); bad == nil {
			ips, err = []netip.Addr{ip.Unmap()}, nil
		}
		switch {
		case err != nil:
			errs = append(errs, arg.Errorf(d.Path, "interface %s: %w", arg.Text, err))
		case len(ips) == 0:
			errs = append(errs, arg.Errorf(d.Path, "want an IP address or the name of an interface that has one, got %q", arg.Text))
		}
		for _, ip := range ips {
			found = append(found, config.Address{IP: ip, From: arg})
		}
	}
	return found, errors.Join(errs...)
}
