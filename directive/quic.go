package directive

import (
	"errors"
	"math"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// SetupQUIC sets up the quic directive, which limits the streams of DNS over QUIC.
//
//	quic {
//	    max_streams N
//	    worker_pool_size N
//	}
//
// A server block with a key of the scheme quic:// serves DNS over QUIC (RFC 9250), at port
// 853 by default, with the certificate of tls. You need this directive only for other limits.
//
//	max_streams       queries of one connection at the same time, 256 by default; clients
//	                  wait before they send more
//	worker_pool_size  queries of all connections that are not complete yet, and large
//	                  replies that wait for the client, at the same time: 1024 by default;
//	                  others are reset with DOQ_EXCESSIVE_LOAD
//
//	quic://.:8853 {
//	    tls cert.pem key.pem
//	    quic {
//	        max_streams 100
//	    }
//	    whoami
//	}
//
// The read, write and idle timeouts and maxtcpqueries come from timeouts; the idle timeout and
// max_streams keep the values that they had at the start of the connection. At most 500 connections
// are open for each address, and each costs about 80 KB of memory: a new connection replaces the
// connection that has been idle longest. A client has at most 100 of them; more are refused with
// CONNECTION_REFUSED. While many handshakes are incomplete, clients have to show that they receive at
// their address before the server keeps state for them (Retry, RFC 9000 §8.1.2).
//
// Clients may resume sessions, but not send queries before the handshake is complete (0-RTT),
// which an attacker could repeat. Replies to padded queries are padded to multiples of 468
// bytes. A query with an ID other than 0 or with the option keepalive, or a stream that is not
// exactly one message, closes the connection with DOQ_PROTOCOL_ERROR. A query that a directive
// drops resets its stream. Zone transfers work, as over TCP.
//
// Connections continue over a reload. When the server stops or is replaced by another process
// (handover), it answers the queries that it has received and closes the connections with
// DOQ_NO_ERROR; clients connect again. coredns_dns_quic_responses_total{server, status} counts
// replies (0x0) and connections that are closed for a protocol error (0x2).
//
// Same as CoreDNS: options and defaults. Differs: CoreDNS accepts 0-RTT, has no limit of
// connections and no time limit for incomplete queries, and counts all queries in its worker
// pool, for which they wait.
func SetupQUIC(b *config.Block, uses []corefile.Directive) error {
	l := &connectionLimits{config.QUIC, config.StreamLimits{Streams: 256, Workers: 1024}}
	b.Offer(l)
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options(
		corefile.Option{Usage: "max_streams N", Once: true, Set: corefile.Int(&l.limits.Streams, 1, math.MaxInt32)},
		corefile.Option{Usage: "worker_pool_size N", Once: true, Set: corefile.Int(&l.limits.Workers, 1, math.MaxInt32)},
	))
}
