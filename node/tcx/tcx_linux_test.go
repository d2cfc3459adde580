package tcx

import (
	"encoding/binary"
	"net/netip"
	"testing"

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
