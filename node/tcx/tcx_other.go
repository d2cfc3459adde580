//go:build !linux

package tcx

import (
	"errors"
	"net/netip"
	"os"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/generation"
)

var errLinux = errors.New("capturing queries at the interfaces of pods needs Linux")

// A Capture is available on Linux only.
type Capture struct{}

// ProbeClsact reports that the system has no BPF.
func ProbeClsact() (Support, error) { return Probe() }

// RemoveLeftovers finds nothing.
func RemoveLeftovers() (int, error) { return 0, nil }

// Probe returns Unsupported.
func Probe() (Support, error) { return Unsupported, errLinux }

// Open fails.
func Open(Options) (*Capture, error) { return nil, errLinux }

// Enable does nothing.
func (*Capture) Enable() {}

// Disable does nothing.
func (*Capture) Disable() {}

// Close does nothing.
func (*Capture) Close() {}

// Counters returns zeros.
func (*Capture) Counters() Counters { return Counters{} }

// Heartbeat returns nil.
func (*Capture) Heartbeat() *os.File { return nil }

// ReplyFiles returns nil.
func (*Capture) ReplyFiles() []*os.File { return nil }

// Replies are available on Linux only.
type Replies struct{}

// Generations returns nil.
func (*Replies) Generations() *generation.Cells { return nil }

// OpenReplies fails.
func OpenReplies([]*os.File, []netip.Addr, uint16, Times) (*Replies, error) { return nil, errLinux }

// Keep does nothing.
func (*Replies) Keep(*dns.Query) {}

// Forget does nothing.
func (*Replies) Forget() {}

// Unsuitable returns "".
func (*Replies) Unsuitable(*dns.Query) string { return "" }

// Total returns 0.
func (*Replies) Total() uint64 { return 0 }

// LostSamples returns 0.
func (*Replies) LostSamples() uint64 { return 0 }

// Close does nothing.
func (*Replies) Close() {}

// A Beat is available on Linux only.
type Beat struct{}

// OpenBeat fails.
func OpenBeat(*os.File) (*Beat, error) { return nil, errLinux }

// Stamp does nothing.
func (*Beat) Stamp() {}

// Counters returns zeros.
func (*Beat) Counters() Counters { return Counters{} }

// Close does nothing.
func (*Beat) Close() {}
