package directive

import (
	"errors"
	"math"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// SetupHTTPS3 sets up the https3 directive, which limits the streams of DNS over HTTP/3.
//
//	https3 {
//	    max_streams N
//	}
//
// A server block with a key of the scheme https3:// serves DNS over HTTPS (RFC 8484) with
// HTTP/3 (RFC 9114), at UDP port 443 by default, with the certificate of tls. Give the block a
// key with https://, too, for clients without HTTP/3. You need this directive only for another
// limit.
//
//	max_streams  requests of one connection at the same time, 256 by default; clients wait
//	             before they send more. 0 is the standard number of the library, 100
//
//	https3://.:8443 https://.:8443 {
//	    tls cert.pem key.pem
//	    https3 {
//	        max_streams 50
//	    }
//	    whoami
//	}
//
// Requests have the replies and the status that https describes; requests that are not
// complete within the read timeout get 400 or are reset. Of 2,048 requests of all connections
// at the same time, more are reset with H3_REQUEST_REJECTED. Connections have the limits and
// timeouts that quic describes, and are closed with H3_NO_ERROR when the server stops.
// coredns_dns_https3_responses_total{server, status} counts the responses.
//
// Same as CoreDNS: the option and its default. Differs: CoreDNS accepts requests before the
// handshake is complete (0-RTT), and answers 400 instead of 405, 413, 414 and 415.
func SetupHTTPS3(b *config.Block, uses []corefile.Directive) error {
	l := &connectionLimits{config.HTTPS3, config.StreamLimits{Streams: 256}}
	b.Offer(l)
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options(
		corefile.Option{Usage: "max_streams N", Once: true, Set: corefile.Int(&l.limits.Streams, 0, math.MaxInt32)},
	))
}
