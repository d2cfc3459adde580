//go:build !linux

package cmd

import (
	"context"
	"errors"

	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/compat/nodecache"
	"github.com/seamark/seamark/server"
)

// A nodeWorker exists on Linux only.
type nodeWorker struct{}

// LastText returns "".
func (*nodeWorker) LastText() string { return "" }

// KeepText does nothing.
func (*nodeWorker) KeepText([]byte) error { return nil }

// Count returns 0.
func (*nodeWorker) Count(int) uint64 { return 0 }

// node runs the cache of a node in this process.
func (p *program) node(ctx context.Context, options nodecache.Flags, klog *flags.Klog) error {
	return failed(p.serveNode(ctx, options, klog, nil))
}

var (
	errCapture = errors.New("capturing queries at the interfaces of pods needs Linux")
	errAddress = errors.New("adding local addresses to the node needs Linux: set -capture=none")
)

// openNode checks the Corefile, and fails unless nothing is to be changed on the node.
func (p *program) openNode(
	r *server.Run, options nodecache.Flags, _ *nodeWorker, _ func(kind string),
) (end func(), err error) {
	if _, err := r.Check(); err != nil {
		return nil, err
	}
	switch options.Capture {
	case nodecache.CaptureNone:
		return func() {}, nil
	case nodecache.CaptureTCX, nodecache.CaptureClsact:
		return nil, errCapture
	case nodecache.CaptureAuto:
		r.Log.Info("Queries are captured by local addresses", "capture", nodecache.CaptureAddress, "reason", errCapture)
	}
	return nil, errAddress
}
