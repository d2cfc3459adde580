package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/transport/streams"
)

// A Listener serves one address and survives reloads: see transport.Listener. Listeners of
// some schemes also have methods of the interfaces below.
type Listener interface {
	Port() *dns.Port
	Addr() netip.AddrPort
	Readers() int
	SetLimits(transport.Limits) (applied bool)
	Serve()
	Stop()
}

type (
	// A socketListener has sockets of the operating system, which it can pass to another
	// process.
	socketListener interface {
		Listener
		Files() ([]*os.File, error)
		HandOver(ctx context.Context, send func(transport.Conn) error) error
		Resume()
		Adopt(transport.Conn) error
		LastQuery() time.Time
	}
	// An exclusiveListener has a socket that only one process may read: that of QUIC.
	exclusiveListener interface{ Exclusive() bool }
	// A proxiedListener accepts PROXY headers.
	proxiedListener interface {
		SetProxies(*transport.ProxyOptions)
	}
	// A tlsListener has connections with TLS.
	tlsListener interface {
		SetTLS(source func() *tls.Config)
	}
	// A streamListener has limits of a protocol above TLS. applied is false if the limit of
	// streams differs, and cannot be changed.
	streamListener interface {
		SetStreamLimits(streams.Limits) (applied bool)
	}
)

type listenerKey struct {
	scheme config.Scheme
	tls    bool
	addr   netip.AddrPort
}

// listen returns the listener of an address: the old plan's if it has one.
func (p *Plan) listen(ctx context.Context, s *site) (Listener, error) {
	hasTLS := s.scheme != config.DNS && s.tls() != nil
	return config.Keep(p.start, listenerKey{s.scheme, hasTLS, s.addr}, func() (Listener, error) {
		o := transport.Options{
			Readers:     cmp.Or(s.sockets(), p.opts.Readers),
			Grace:       p.opts.Grace,
			Inherited:   p.opts.Inherited,
			Limits:      s.limits(),
			Descriptors: p.start.Descriptors,
			Log:         p.opts.Log,
			Metrics:     p.opts.Metrics,
			Memory:      p.opts.Memory,
		}
		if hasTLS {
			o.TLS = &transport.TLS{Crypto: p.start.Crypto}
		}
		l, err := p.open(ctx, s, o)
		if err == nil {
			p.opened = append(p.opened, l)
		}
		return l, err
	})
}

// open opens an address for the protocol of its scheme.
func (p *Plan) open(ctx context.Context, s *site, o transport.Options) (Listener, error) {
	if p.opts.Open != nil {
		return p.opts.Open(ctx, s.addr, o)
	}

	more := streams.Options{Options: o, Name: s.name(), Limits: s.streamLimits()}
	switch s.scheme {
	case config.HTTPS:
		return streams.ListenHTTPS(ctx, s.addr, more)
	case config.GRPC:
		return streams.ListenGRPC(ctx, s.addr, more)
	case config.QUIC:
		return streams.ListenQUIC(ctx, s.addr, more)
	case config.HTTPS3:
		return streams.ListenHTTPS3(ctx, s.addr, more)
	}
	return transport.Listen(ctx, s.addr, o)
}

// configure applies the plan's limits to a listener that may have been opened by
// an older plan.
func (p *Plan) configure(s *site, l Listener) {
	if !l.SetLimits(s.limits()) {
		p.opts.Log.Warn("Ignored timeouts for an open address: restart the server to apply it", "address", s.name())
	}
	if l, ok := l.(proxiedListener); ok {
		l.SetProxies(s.proxies())
	}

	if s.scheme == config.DNS {
		if want := s.sockets(); want > 0 && want != l.Readers() {
			p.opts.Log.Warn("Ignored multisocket for an open address: restart the server to apply it",
				"address", s.name(), "sockets", l.Readers(), "wanted", want)
		}
		return
	}

	if source := s.tls(); source != nil {
		l.(tlsListener).SetTLS(source)
	}
	if l, ok := l.(streamListener); ok && !l.SetStreamLimits(s.streamLimits()) {
		p.opts.Log.Warn("Ignored max_streams for an open address: restart the server to apply it", "address", s.name())
	}
}

// isExclusive reports whether only one process may read the listener's socket.
func isExclusive(l Listener) bool {
	e, ok := l.(exclusiveListener)
	return ok && e.Exclusive()
}

// Ports returns the listening addresses of a started plan, in the order of the Corefile.
func (p *Plan) Ports() (ports []config.Port) {
	for i, s := range p.sites {
		l := p.listeners[i]
		ports = append(ports, config.Port{Name: s.name(), Address: l.Addr(), Port: l.Port()})
	}
	return ports
}

// listensOn reports whether the plan has an address with a port.
func (p *Plan) listensOn(port uint16) bool {
	return slices.ContainsFunc(p.sites, func(s *site) bool { return s.addr.Port() == port })
}

// listener returns the listener of an address, or nil.
func (p *Plan) listener(a netip.AddrPort) socketListener {
	for _, l := range p.sockets() {
		if l.Addr() == a {
			return l
		}
	}
	return nil
}

// sockets returns the listeners with sockets of the operating system.
func (p *Plan) sockets() (listeners []socketListener) {
	for _, l := range p.listeners {
		if l, ok := l.(socketListener); ok {
			listeners = append(listeners, l)
		}
	}
	return listeners
}
