package transport

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// A filter drops the packets of limited clients, of both families and on a socket of
// both families, and passes others.
func TestFilter(t *testing.T) {
	v4, v6 := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::")
	for _, tc := range []struct {
		bind, from string
		limited    []netip.Addr
		dropped    bool
	}{
		{"127.0.0.1", "127.0.0.2", []netip.Addr{v4, v6}, true},
		{"127.0.0.1", "127.0.0.3", []netip.Addr{v4, v6}, false},
		{"127.0.0.1", "127.0.0.2", []netip.Addr{netip.MustParseAddr("127.0.0.3"), v4}, true},
		{"::", "127.0.0.2", []netip.Addr{v4, v6}, true},
		{"::", "127.0.0.3", []netip.Addr{v4, v6}, false},
		{"::", "::1", []netip.Addr{v4, netip.MustParseAddr("2001:db8::"), v6}, true},
		{"::1", "::1", []netip.Addr{v6, v4}, true},
		{"::1", "::1", []netip.Addr{v4, netip.MustParseAddr("0:0:0:1::"), netip.MustParseAddr("::1:0:0:0:0:0")}, false},
	} {
		requireAddress(t, tc.from)
		server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(tc.bind)})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		raw, err := server.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var limits []limit
		for _, a := range tc.limited {
			limits = append(limits, limit{client: a, passed: leastPassed})
		}
		drops := func() (n int) {
			_ = raw.Control(func(fd uintptr) { n = int(readMemory(fd)[unix.SK_MEMINFO_DROPS]) })
			return n
		}
		send := func() {
			from := net.ParseIP(tc.from)
			client, err := net.DialUDP("udp", &net.UDPAddr{IP: from}, &net.UDPAddr{IP: local(from), Port: server.LocalAddr().(*net.UDPAddr).Port})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for range 50 {
				if _, err := client.Write(make([]byte, 40)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := controlFD(raw, func(fd int) error { return attachFilter(fd, limits) }); err != nil {
			t.Fatal(err)
		}
		send()
		if n := drops(); (n >= 45) != tc.dropped || !tc.dropped && n > 0 {
			t.Errorf("socket of %s, limits for %s: %d of 50 packets from %s dropped, want them dropped: %v", tc.bind, tc.limited, n, tc.from, tc.dropped)
		}
		before := drops()
		_ = controlFD(raw, func(fd int) error { detachFilter(fd); return nil })
		if send(); drops() != before {
			t.Errorf("socket of %s: %d packets dropped after the filter was detached, want none", tc.bind, drops()-before)
		}
	}
}

// local returns the loopback address of the family of ip.
func local(ip net.IP) net.IP {
	if ip.To4() != nil {
		return net.IPv4(127, 0, 0, 1)
	}
	return net.IPv6loopback
}
