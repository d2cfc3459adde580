package directive

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// ProxyHeaders are the settings of the directive proxyproto.
type ProxyHeaders struct{ headers config.ProxyHeaders }

// ProxyHeaders returns the settings.
func (p *ProxyHeaders) ProxyHeaders() config.ProxyHeaders { return p.headers }

// SetupProxyproto sets up the proxyproto directive, which takes the addresses of clients
// from a load balancer.
//
//	proxyproto {
//	    allow CIDR...
//	    default use|ignore|reject|skip
//	    udp_session_tracking DURATION [SESSIONS]
//	}
//
// A load balancer that forwards queries hides the addresses of clients. With the PROXY
// protocol it sends them in a header: versions 1 and 2 at the beginning of TCP connections,
// including tls://, https:// and grpc://, and version 2 in front of each query over UDP.
// Everything that looks at the client (acl, view, log, ratelimit, the limits of TCP
// connections) then sees the address in the header.
//
//	allow    networks and addresses of the load balancers; without it, all peers.
//	         Anyone who may send headers may claim any address: list your load balancers
//	default  what to do with headers of other peers: use them; ignore them (the standard),
//	         which removes them; reject connections and packets that have one; or skip,
//	         not to look for headers
//
// A peer that may send headers need not: without one it is the client itself, and so it
// is with a header of command LOCAL, as health checks have, or without an IP address.
//
// udp_session_tracking is for Cloudflare Spectrum, which sends the header of a UDP client
// in a packet of its own. Packets from the same address and port then have the same client,
// until none has arrived for DURATION, 1s to 24h. SESSIONS is the largest number of such
// clients, 10240 by default; beyond it, a new client replaces the client that was silent
// longest.
//
//	.:1053 {
//	    proxyproto {
//	        allow 10.0.0.0/8 192.0.2.7
//	        default reject
//	    }
//	    whoami
//	}
//
// Malformed headers, and headers that default rejects, are counted in
// seamark_transport_proxy_headers_rejected_total{proto} and logged, at most one in a minute:
// the connection is closed, or the packet dropped. A header has at most 2,048 bytes, and
// must arrive within the idle timeout of timeouts; over https:// and grpc://, within the
// read timeout. A checksum in it is verified.
//
// Server blocks that listen on the same address share the first proxyproto. A reload
// changes it for new connections and packets. A hand-over passes TCP connections without TLS to
// the new process with the client that their header names, or with the part of the header that
// was received; it does not pass the clients of udp_session_tracking. The shares of UDP clients
// under overload are off while load balancers may name their clients: the kernel, which applies
// them, sees load balancers only.
//
// Measured with cluster names over UDP, on one core: proxyproto adds 3 % to the CPU time
// of an answer (4.13 to 4.18 µs instead of 4.03), with and without headers.
//
// Same as CoreDNS: options and defaults. Differs: allow may be repeated and may have single
// addresses; over UDP, headers of command LOCAL and those for TCP clients are accepted, as
// load balancers send them for health checks and for clients of DoH. It is not supported
// with quic:// and https3://.
func SetupProxyproto(b *config.Block, uses []corefile.Directive) error {
	d, p := uses[0], &ProxyHeaders{config.ProxyHeaders{Sessions: 10240}}
	b.Offer(p)
	h := &p.headers
	allow := func(o corefile.Directive) (err error) {
		for _, word := range o.Words() {
			prefix, bad := parseSource(word)
			if bad != nil {
				err = errors.Join(err, o.Errorf("want an address or a network such as 10.0.0.0/8, got %q", word))
			}
			h.Trusted = append(h.Trusted, prefix)
		}
		return err
	}
	policy := func(o corefile.Directive) error {
		o.Args[0].Text = strings.ToLower(o.Args[0].Text)
		return corefile.OneOf(&h.Others, "use", "ignore", "reject", "skip")(o)
	}
	tracking := func(o corefile.Directive) error {
		sessions := o
		o.Args, sessions.Args = o.Args[:1], o.Args[1:]
		return errors.Join(corefile.Duration(&h.SessionTime, time.Second, 24*time.Hour)(o), corefile.Int(&h.Sessions, 1, math.MaxInt32)(sessions))
	}
	err := errors.Join(config.Once(uses), d.Arity(0, 0), d.Options(
		corefile.Option{Usage: "allow CIDR...", Set: allow},
		corefile.Option{Usage: "default use|ignore|reject|skip", Once: true, Set: policy},
		corefile.Option{Usage: "udp_session_tracking DURATION [SESSIONS]", Once: true, Set: tracking},
	))
	for _, s := range b.Schemes {
		if s == config.QUIC || s == config.HTTPS3 {
			err = errors.Join(err, d.Errorf("not supported with %s://: give these zones a server block of their own", s))
		}
	}
	switch {
	case h.Others != "":
	case len(h.Trusted) > 0:
		h.Others = "ignore"
	default:
		h.Others = "use"
	}
	return err
}
