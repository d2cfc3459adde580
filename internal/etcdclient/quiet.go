package etcdclient

import (
	"io"

	"google.golang.org/grpc/grpclog"
)

// QuietGRPC keeps the client's transport from writing to standard error in a form of
// its own: what goes wrong comes back to the caller. It is called once, before any
// Client.
func QuietGRPC() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }
