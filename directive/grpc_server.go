package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// SetupGRPCServer sets up the grpc_server directive, which limits the connections of DNS over
// gRPC. Its reference page is docs/reference/directives/grpc_server.md.
func SetupGRPCServer(b *config.Block, uses []corefile.Directive) error {
	return setupLimits(b, uses, config.GRPC, config.StreamLimits{Connections: 200, Streams: 256})
}
