package transfer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Setup sets up the transfer directives of a server block: see Transfer.
func Setup(b *config.Block, uses []corefile.Directive) error {
	t := newTransfer()
	t.log = b.Log
	var errs []error
	for _, d := range uses {
		u, err := parse(b, d)
		errs = append(errs, err)
		t.uses = append(t.uses, u)
		for _, z := range u.zones {
			if t.zones.Get(z) == nil {
				t.zones.Set(z, u)
			}
		}
	}

	f := &followed{transfer: t}
	b.Handle(f)
	b.Handle(t)
	b.OnPlanned(func() error {
		t.handlers = config.Find[zone.Transferable](b)
		t.checkSources(b)
		return nil
	})

	var n *notifier
	b.OnStart(func(s *config.Start) (err error) {
		f.waiting, _ = config.Keep(s, nil, func() (*waiting, error) { return newWaiting(b.Memory, b.Metrics), nil })
		n, err = config.Keep(s, t, func() (*notifier, error) { return newNotifier(t), nil })
		return err
	})
	b.OnSwap(func() {
		n.follow(t.handlers, f.waiting)
		f.waiting.release(false) // queries of the plan before do not hold up its end
	})
	b.OnShutdown(func(context.Context) { f.waiting.release(true) })
	return errors.Join(errs...)
}

func newTransfer() *Transfer {
	return &Transfer{limits: newLimits(maxRunning), long: newLimits(maxLong)}
}

// checkSources warns of zones that no directive of the block has, and of zones that two have.
func (t *Transfer) checkSources(b *config.Block) {
	sources := map[wire.Name]string{} // names of directives
	finds := false
	for _, h := range t.handlers {
		f, ok := h.(zone.Finder)
		finds = finds || ok && f.FindsZones()

		a, ok := h.(dns.Authority)
		if !ok {
			continue
		}
		for _, origin := range slices.Sorted(slices.Values(a.AuthoritativeZones())) {
			first, u := sources[origin], t.find(origin)
			if first != "" && u != nil {
				b.Warn(u.directive.Errorf("zone %s is in %s and in %s: "+
					"only the records of %[2]s are transferred; remove one", origin, first, b.NameOf(h)))
				continue
			}
			sources[origin] = b.NameOf(h)
		}
	}

	for _, u := range t.uses {
		unused := slices.DeleteFunc(slices.Clone(u.zones), func(z wire.Name) bool {
			for origin := range sources {
				if origin.Within(z) && t.find(origin) == u {
					return true
				}
			}
			return finds
		})

		if len(u.directive.Args) == 0 && len(unused) < len(u.zones) {
			continue // the default need not be exact
		}
		for _, z := range unused {
			b.Warn(u.directive.Errorf("no zone to transfer in %s: "+
				"add dynupdate, file, auto, secondary, gateway, k8s_external or kubernetes with the zone to this server block", z))
		}
	}
}

func parse(b *config.Block, d corefile.Directive) (*use, error) {
	zones, err := b.ZonesOr(d)
	dialer := new(net.Dialer)
	u := &use{directive: d, zones: zones, key: new(tsig.Ref), dial: dialer.DialContext}
	if b.Dial != nil {
		u.dial = b.Dial
	}

	errs := []error{err, d.Options(
		corefile.Option{Usage: "to ADDRESS...", Set: func(o corefile.Directive) error {
			var errs []error
			for _, a := range o.Args {
				errs = append(errs, u.addTo(a, o))
			}
			return errors.Join(errs...)
		}},
		corefile.Option{Usage: "source ADDRESS", Once: true, Set: func(o corefile.Directive) error {
			source, err := netip.ParseAddr(o.Args[0].Text)
			if err != nil {
				return o.Errorf("want an IP address, got %q", o.Args[0].Text)
			}
			dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
			return nil
		}},
		u.key.Option(b),
	)}

	if errors.Join(errs...) == nil && !u.any && len(u.clients) == 0 {
		errs = append(errs, d.Errorf("missing to: name the servers that may transfer the zone"))
	}
	return u, errors.Join(errs...)
}

// addTo adds an argument of to.
func (u *use) addTo(a corefile.Token, o corefile.Directive) error {
	if a.Text == "*" {
		u.any = true
		return nil
	}
	at, err := config.ParseServer(a.Text)
	if err != nil {
		return a.Errorf(o.Path, "want *, an IP address or ADDRESS:PORT, got %q", a.Text)
	}
	u.clients = append(u.clients, at.Addr().WithZone(""))
	u.targets = append(u.targets, at)
	return nil
}
