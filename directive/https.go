package directive

import (
	"errors"
	"math"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// connectionLimits are the limits of the connections of a scheme.
type connectionLimits struct {
	scheme config.Scheme
	limits config.StreamLimits
}

// StreamLimits returns the scheme and its limits.
func (l *connectionLimits) StreamLimits() (config.Scheme, config.StreamLimits) {
	return l.scheme, l.limits
}

// SetupHTTPS sets up the https directive, which limits the connections of DNS over HTTPS.
//
//	https {
//	    max_connections N
//	    max_streams N
//	}
//
// A server block with a key of the scheme https:// serves DNS over HTTPS (RFC 8484) at the
// path /dns-query, with HTTP/1.1 and HTTP/2, GET and POST, at port 443 by default. The
// certificate comes from tls; without it the server uses HTTP, for a proxy that has TLS.
// You need this directive only for other limits.
//
//	max_connections  connections at the same time, 200 by default. Further ones are closed. At
//	                 the limit, a connection of a client with fewer connections than another
//	                 client replaces the other client's last one
//	max_streams      requests of one HTTP/2 connection at the same time, 250 by default
//
// 0 means no limit of connections, and the standard number of streams of the HTTP/2
// library.
//
//	https://.:8443 {
//	    tls cert.pem key.pem
//	    https {
//	        max_connections 1000
//	    }
//	    whoami
//	}
//
// The read, write and idle timeouts come from timeouts, as it was at the start of the server. A
// reply may be cached for the smallest TTL of its records, or for the time of a negative answer
// (RFC 2308), and a failure not at all. Requests that are not queries get 400, other paths 404,
// other methods 405, larger messages than 65,535 bytes 413 or 414, and other content types 415.
// A query that a directive drops gets 500. Of all connections together, 2,048 queries with POST
// are received at the same time, 64 of them with more than 1,400 bytes, and 16 MB of replies
// with more wait for slow clients; beyond that the status is 503.
// The requests of all connections over HTTP/1.1 and HTTP/2 have 16 MB of memory, some 1,300
// requests, until their replies are read. A client has at most as much as is free, so that there
// is always some for another one, and its other requests are reset. A client is disconnected for
// a second if more than 1,000 of its requests in a second are reset, by the server or within
// 50ms by the client.
// coredns_dns_https_responses_total{server, status} counts the responses.
//
// Same as CoreDNS: options and defaults. Differs: CoreDNS answers 400 instead of 405, 413, 414
// and 415, and connections over the limit wait.
func SetupHTTPS(b *config.Block, uses []corefile.Directive) error {
	return setupLimits(b, uses, config.HTTPS, config.StreamLimits{Connections: 200, Streams: 250})
}

// setupLimits sets up a directive that limits connections and streams.
func setupLimits(b *config.Block, uses []corefile.Directive, scheme config.Scheme, standard config.StreamLimits) error {
	l := &connectionLimits{scheme, standard}
	b.Offer(l)
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options(
		corefile.Option{Usage: "max_connections N", Once: true, Set: corefile.Int(&l.limits.Connections, 0, math.MaxInt32)},
		corefile.Option{Usage: "max_streams N", Once: true, Set: corefile.Int(&l.limits.Streams, 0, math.MaxInt32)},
	))
}
