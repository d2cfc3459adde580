package server

import (
	"crypto/tls"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

// The server finds these interfaces with config.Find. Each comment names the
// directive that implements it.
type (
	// timeouts limits the TCP connections of an address; zero is the server's
	// default (timeouts).
	timeouts interface {
		ConnectionTimeouts() (read, write, idle time.Duration)
		MaxTCPQueries() int
	}
	// serverTLS is the TLS configuration of an address, which depends on the files
	// (tls). ServerTLS may be called once the plan has started.
	serverTLS interface {
		TLSFiles() any // comparable
		ServerTLS() *tls.Config
	}
	// streamLimits are the limits of connections of a scheme (https, https3, grpc_server,
	// quic).
	streamLimits interface {
		StreamLimits() (config.Scheme, config.StreamLimits)
	}
	// proxyHeaders are the peers of an address that may be proxies (proxyproto).
	proxyHeaders interface{ ProxyHeaders() config.ProxyHeaders }
	// portUser gets the listening addresses of the plan, in the order of the Corefile, once
	// they serve (admin).
	portUser interface{ SetPorts(ports []config.Port) }
	// serversUser gets the server blocks of the plan, in the order of the Corefile, when they
	// begin to serve (admin).
	serversUser interface {
		SetServers(servers []corefile.Server)
	}
	// sockets is the number of UDP sockets of an address (multisocket).
	sockets interface{ Sockets() int }
	// unserved observes queries in no server block's zone (prometheus).
	unserved interface {
		Unserved(c *dns.Chain) dns.Observer
	}
	// corefileChecks makes the server check its Corefile for changes (reload).
	corefileChecks interface {
		CorefileChecks() (interval, jitter time.Duration)
	}
	// interfaceAddresses are the present addresses to listen on, if they have
	// changed since the Corefile was read (bind).
	interfaceAddresses interface{ Changed() []config.Address }
	// lameduck is how long the server answers after a signal to stop (lameduck,
	// health).
	lameduck interface{ Lameduck() time.Duration }
	// successorSocket is the path of the socket at which another process may replace
	// this one (handover).
	successorSocket interface {
		Handover() (path string, remain bool, from corefile.Directive)
	}
	// nodeOnly is a directive that only the command node accepts (capture).
	nodeOnly interface{ NodeOnly() corefile.Directive }
	// debugLogging makes the server log debug lines (debug).
	debugLogging interface{ Debug() }
)

// Bound returns the addresses of Listen, which replace the addresses of the directive bind.
func (o *Options) Bound() (addresses []config.Address) {
	for _, a := range o.Listen {
		addresses = append(addresses, config.Address{IP: a.Addr()})
	}
	return addresses
}
