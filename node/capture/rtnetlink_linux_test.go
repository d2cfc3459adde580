package capture

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// IPv6 addresses without a local route are missing after the timeout.
func TestAwaitRoutes(t *testing.T) {
	r, err := openRoutes()
	if err != nil {
		t.Fatal(err)
	}
	defer r.conn.Close()
	v4, missing := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	if !r.isLocal(netip.IPv6Loopback()) {
		t.Skip("the machine has no IPv6")
	}
	if got := r.awaitRoutes([]netip.Addr{v4, netip.IPv6Loopback(), missing}, 10*time.Millisecond); !slices.Equal(got, []netip.Addr{missing}) {
		t.Errorf("addresses without a local route: got %v, want %s", got, missing)
	}
}
