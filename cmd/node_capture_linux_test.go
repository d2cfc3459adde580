package cmd

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/seamark/seamark/compat/nodecache"
	"github.com/seamark/seamark/node/tcx"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/sys/health"
)

// The status says that the kernel repeats no replies if it has no array for them, unless flags or the way of the capture
// are the reason.
func TestStatusWithoutReplies(t *testing.T) {
	cluster := netip.MustParseAddr("10.96.0.10")
	aliases := map[netip.Addr]netip.Addr{cluster: netip.MustParseAddr("169.254.20.11")}
	for _, c := range []struct {
		name    string
		aliases map[netip.Addr]netip.Addr
		repeat  bool
		want    bool
	}{{"no array", aliases, true, true}, {"the flag", aliases, false, false}, {"capture by address", nil, true, false}} {
		p, r := new(program), new(server.Run)
		end, err := p.repeatReplies(r, nil, c.aliases, nodecache.Flags{RepeatReplies: c.repeat})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		end()
		summary := health.Summary(shared(r).Health.Conditions())
		if got := strings.Contains(summary, "repeats no replies"); got != c.want {
			t.Errorf("%s: got the status %q, want one that says so: %t", c.name, summary, c.want)
		}
	}
}

// With more ClusterIPs than the programs can capture, auto is address, and the log has the reason.
func TestCaptureAutoManyClusterIPs(t *testing.T) {
	if nodecache.MaxClusterIPs != tcx.MaxPairs {
		t.Errorf("ClusterIPs of a family: got %d in the flags, want %d as in the programs", nodecache.MaxClusterIPs, tcx.MaxPairs)
	}

	f := nodecache.DefaultFlags()
	f.LocalIPs = "169.254.20.10,10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5"
	var out strings.Builder
	method := captureMethod(f, slog.New(slog.NewTextHandler(&out, nil)))
	const reason = `reason="want at most 4 ClusterIPs of each family in -localip, got 5 of IPv4 and 0 of IPv6"`
	if method != nodecache.CaptureAddress || !strings.Contains(out.String(), reason) {
		t.Errorf("five ClusterIPs: got %s and the log %q, want %s and %s", method, out.String(), nodecache.CaptureAddress, reason)
	}
}
