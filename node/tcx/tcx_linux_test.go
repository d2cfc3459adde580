package tcx

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// addAddresses adds addresses to lo, which it enables.
func addAddresses(t testing.TB, addrs ...netip.Addr) {
	t.Helper()
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[4:], loInterface)
	binary.NativeEndian.PutUint32(header[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(header[12:], unix.IFF_UP)
	send := func(kind int, flags netlink.HeaderFlags, data []byte) {
		if _, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.Acknowledge | flags}, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	send(unix.RTM_NEWLINK, 0, header)
	for _, a := range addrs {
		header := make([]byte, unix.SizeofIfAddrmsg)
		header[0], header[1] = unix.AF_INET, byte(a.BitLen())
		if a.Is6() {
			header[0], header[2] = unix.AF_INET6, unix.IFA_F_NODAD
		}
		binary.NativeEndian.PutUint32(header[4:], loInterface)
		e := netlink.NewAttributeEncoder()
		e.Bytes(unix.IFA_LOCAL, a.AsSlice())
		e.Bytes(unix.IFA_ADDRESS, a.AsSlice())
		attributes, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		send(unix.RTM_NEWADDR, netlink.Create, append(header, attributes...))
	}
}

// When the programs have found an interface silent, those are paused whose query waits for a reply at that time, and
// not an idle one whose last query got none long ago.
func TestWatchPausesSilentInterface(t *testing.T) {
	c := &Capture{
		options:  Options{Times: Times{}.orDefaults(), Log: slog.New(slog.DiscardHandler)},
		program:  &program{page: &Beat{page: new(shared)}},
		attached: map[int]*attached{}, quiet: map[paused]struct{}{},
	}
	ages := []struct {
		name    string
		pending time.Duration // since a query without a reply; 0 for none
		want    uint32
	}{
		{"no query", 0, 0},
		{"a query in flight", c.options.Times.Silence / 2, 0},
		{"a silent interface", 2 * c.options.Times.Silence, 1},
		{"an idle pod", 2 * c.options.Times.Forget, 0},
	}
	for i, a := range ages {
		c.attached[i] = &attached{name: a.name, state: new(state)}
		if a.pending > 0 {
			// The clock may have started less than that ago: the difference is right nevertheless.
			c.attached[i].state.families[family4].pending.Store(uint64(monotonic() - int64(a.pending)))
		}
	}

	c.program.page.page.silent.Store(1)
	c.watch(time.Now())
	for i, a := range ages {
		if got := c.attached[i].state.families[family4].paused.Load(); got != a.want {
			t.Errorf("%s, pending for %v: got paused %d, want %d", a.name, a.pending, got, a.want)
		}
	}
}
