package nodecache

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/corefile"
)

// listening lists the directives whose arguments are addresses to listen on.
var listening = []string{"bind", "health", "ready", "prometheus", "pprof"}

// ListenAt returns a Corefile in which aliases replace the addresses to listen on that
// they stand for. It does not change the Corefile that was read.
func ListenAt(r corefile.Reading, aliases map[netip.Addr]netip.Addr) corefile.Reading {
	if len(aliases) == 0 {
		return r
	}
	r.Servers = slices.Clone(r.Servers)
	for n, s := range r.Servers {
		r.Servers[n].Directives = slices.Clone(s.Directives)
		for m, d := range s.Directives {
			if slices.Contains(listening, d.Text) {
				r.Servers[n].Directives[m] = replaceAddresses(d, aliases)
			}
		}
	}
	return r
}

func replaceAddresses(d corefile.Directive, aliases map[netip.Addr]netip.Addr) corefile.Directive {
	d.Args = slices.Clone(d.Args)
	for n, arg := range d.Args {
		if ip, err := netip.ParseAddr(arg.Text); err == nil && aliases[ip].IsValid() {
			d.Args[n].Text = aliases[ip].String()
		} else if at, err := netip.ParseAddrPort(arg.Text); err == nil && aliases[at.Addr()].IsValid() {
			d.Args[n].Text = netip.AddrPortFrom(aliases[at.Addr()], at.Port()).String()
		}
	}
	d.Body = slices.Clone(d.Body)
	for n, o := range d.Body {
		d.Body[n] = replaceAddresses(o, aliases)
	}
	return d
}
