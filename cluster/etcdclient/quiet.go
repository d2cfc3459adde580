package etcdclient

import (
	"io"

	"google.golang.org/grpc/grpclog"
)

// QuietGRPC stops gRPC from logging to standard error. Callers get its errors.
// Call it once, before any call of Client.
func QuietGRPC() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }
