package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// SetupGRPCServer sets up the grpc_server directive, which limits the connections of DNS over
// gRPC.
//
//	grpc_server {
//	    max_connections N
//	    max_streams N
//	}
//
// A server block with a key of the scheme grpc:// serves CoreDNS's gRPC service,
// coredns.dns.DnsService, at port 443 by default. Its method Query has a DNS message in the
// field msg of the request and of the response. The certificate comes from tls; without it
// the server uses HTTP/2 without TLS. You need this directive only for other limits.
//
//	max_connections  connections at the same time, 200 by default. Further ones are closed. At
//	                 the limit, a connection of a client with fewer connections than another
//	                 client replaces the other client's last one
//	max_streams      queries of one connection at the same time, 256 by default; clients
//	                 of gRPC wait before they send more
//
// 0 means no limit of connections, and the standard number of streams of the HTTP/2
// library.
//
//	grpc://.:8443 {
//	    tls cert.pem key.pem
//	    grpc_server {
//	        max_connections 1000
//	    }
//	    whoami
//	}
//
// The read, write and idle timeouts come from timeouts, as it was at the start of the server.
// Clients of gRPC connect again after the idle timeout. Errors have a status of
// gRPC: INVALID_ARGUMENT for requests that are not queries, RESOURCE_EXHAUSTED for
// larger messages than 65,535 bytes, UNIMPLEMENTED for other methods and compressed messages, and
// UNAVAILABLE for queries that a directive drops, and beyond the bounds of slow queries and
// replies that https describes.
//
// Same as CoreDNS: the service, options and defaults. Differs: CoreDNS answers UNKNOWN to
// requests that are not queries, answers dropped queries with the query, and connections
// over the limit wait.
func SetupGRPCServer(b *config.Block, uses []corefile.Directive) error {
	return setupLimits(b, uses, config.GRPC, config.StreamLimits{Connections: 200, Streams: 256})
}
