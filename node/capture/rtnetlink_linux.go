package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// ifaProto is IFA_PROTO, the attribute with the origin of an address (Linux 5.18;
	// earlier kernels ignore it).
	ifaProto = 11
	// ownOrigin marks the addresses that this program has added.
	ownOrigin = 0x53
)

// errNoDummy reports that the kernel has no dummy interfaces.
var errNoDummy = errors.New("the kernel has no dummy interfaces")

// An address is an address of an interface.
type address struct {
	index int // of the interface
	ip    netip.Addr
	own   bool // it has the mark of this program
}

// routes sends requests for interfaces and addresses to the kernel.
type routes struct{ conn *netlink.Conn }

func openRoutes() (routes, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return routes{}, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return routes{conn}, nil
}

func (r routes) execute(kind int, flags netlink.HeaderFlags, data []byte) ([]netlink.Message, error) {
	return r.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: data,
	})
}

// linkHeader returns a struct ifinfomsg.
func linkHeader(index int, flags uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], flags) // the flags to change
	return b
}

// attributes encodes the attributes that add writes.
func attributes(header []byte, add func(*netlink.AttributeEncoder)) []byte {
	e := netlink.NewAttributeEncoder()
	add(e)
	b, err := e.Encode()
	if err != nil {
		panic(err) // an attribute is larger than 64 kB
	}
	return append(header, b...)
}

// A link is an interface.
type link struct {
	index int
	kind  string // such as dummy; "" for hardware and lo
	up    bool
}

// link returns the interface of a name; ok is false if there is none.
func (r routes) link(name string) (l link, ok bool, err error) {
	replies, err := r.execute(unix.RTM_GETLINK, 0, attributes(linkHeader(0, 0), func(e *netlink.AttributeEncoder) {
		e.String(unix.IFLA_IFNAME, name)
	}))
	switch {
	case errors.Is(err, unix.ENODEV):
		return l, false, nil
	case err != nil:
		return l, false, fmt.Errorf("looking up interface %s: %w", name, err)
	case len(replies) == 0 || len(replies[0].Data) < unix.SizeofIfInfomsg:
		return l, false, fmt.Errorf("looking up interface %s: the kernel sent an invalid reply", name)
	}

	data := replies[0].Data
	l.index = int(int32(binary.NativeEndian.Uint32(data[4:])))
	l.up = binary.NativeEndian.Uint32(data[8:])&unix.IFF_UP != 0

	d, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return l, false, err
	}
	for d.Next() {
		if d.Type() == unix.IFLA_LINKINFO {
			d.Nested(func(n *netlink.AttributeDecoder) error {
				for n.Next() {
					if n.Type() == unix.IFLA_INFO_KIND {
						l.kind = n.String()
					}
				}
				return nil
			})
		}
	}
	return l, true, d.Err()
}

// addDummy adds a dummy interface that is up.
func (r routes) addDummy(name string) error {
	_, err := r.execute(unix.RTM_NEWLINK, netlink.Acknowledge|netlink.Create|netlink.Excl,
		attributes(linkHeader(0, unix.IFF_UP), func(e *netlink.AttributeEncoder) {
			e.String(unix.IFLA_IFNAME, name)
			e.Nested(unix.IFLA_LINKINFO, func(n *netlink.AttributeEncoder) error {
				n.String(unix.IFLA_INFO_KIND, "dummy")
				return nil
			})
		}))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return errNoDummy
	case err != nil && !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("adding interface %s: %w", name, needsAdmin(err))
	}
	return nil
}

// setUp enables an interface.
func (r routes) setUp(index int) error {
	_, err := r.execute(unix.RTM_NEWLINK, netlink.Acknowledge, linkHeader(index, unix.IFF_UP))
	return needsAdmin(err)
}

func (r routes) removeLink(index int) error {
	_, err := r.execute(unix.RTM_DELLINK, netlink.Acknowledge, linkHeader(index, 0))
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// addresses returns all addresses of the node.
func (r routes) addresses() (all []address, err error) {
	replies, err := r.execute(unix.RTM_GETADDR, netlink.Dump, make([]byte, unix.SizeofIfAddrmsg))
	if err != nil {
		return nil, fmt.Errorf("listing the addresses: %w", err)
	}

	for _, m := range replies {
		if len(m.Data) < unix.SizeofIfAddrmsg {
			continue
		}

		a := address{index: int(binary.NativeEndian.Uint32(m.Data[4:]))}
		d, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfAddrmsg:])
		if err != nil {
			return nil, err
		}

		for d.Next() {
			switch d.Type() {
			case unix.IFA_LOCAL: // on a point-to-point interface IFA_ADDRESS is the peer
				a.ip, _ = netip.AddrFromSlice(d.Bytes())
			case unix.IFA_ADDRESS:
				if !a.ip.IsValid() {
					a.ip, _ = netip.AddrFromSlice(d.Bytes())
				}
			case ifaProto:
				a.own = d.Uint8() == ownOrigin
			}
		}

		if err := d.Err(); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// change adds (RTM_NEWADDR) or removes (RTM_DELADDR) an address. The node does not
// choose it as the source of its own packets: its scope is the host.
func (r routes) change(kind int, flags netlink.HeaderFlags, index int, ip netip.Addr) error {
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[0], header[1], header[3] = unix.AF_INET, uint8(ip.BitLen()), unix.RT_SCOPE_HOST
	if ip.Is6() {
		header[0], header[2], header[3] = unix.AF_INET6, unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE
	}
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	_, err := r.execute(kind, netlink.Acknowledge|flags, attributes(header, func(e *netlink.AttributeEncoder) {
		e.Bytes(unix.IFA_LOCAL, ip.AsSlice())
		e.Bytes(unix.IFA_ADDRESS, ip.AsSlice())
		e.Uint8(ifaProto, ownOrigin)
	}))
	return err
}

// addAddress adds an address. The kernel may deliver packets to it later: see awaitRoutes.
func (r routes) addAddress(index int, ip netip.Addr) error {
	err := r.change(unix.RTM_NEWADDR, netlink.Create|netlink.Excl, index, ip)
	if err == nil || errors.Is(err, unix.EEXIST) {
		return nil
	}
	return fmt.Errorf("adding the address %s: %w", ip, needsAdmin(err))
}

func (r routes) removeAddress(index int, ip netip.Addr) error {
	err := r.change(unix.RTM_DELADDR, 0, index, ip)
	if err == nil || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("removing the address %s: %w", ip, needsAdmin(err))
}

// needsAdmin adds the remedy to a refusal of the kernel.
func needsAdmin(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: the process needs the capability NET_ADMIN: add it to the container,"+
			" and run it as user 0, because other users do not receive added capabilities", err)
	}
	return err
}

// routeTimeout is how long Open waits for local routes. The kernel has needed more than a second on
// a busy machine.
const routeTimeout = 15 * time.Second

// awaitRoutes waits for the local routes of the IPv6 addresses among ips, and returns the
// addresses that have none after the timeout. The kernel adds the route some time after the
// address, in a work queue: sockets can be bound to the address before, but packets to it are
// unreachable.
func (r routes) awaitRoutes(ips []netip.Addr, timeout time.Duration) (missing []netip.Addr) {
	deadline := time.Now().Add(timeout)
	for _, ip := range ips {
		for ip.Is6() && !r.isLocal(ip) {
			if time.Now().After(deadline) {
				missing = append(missing, ip)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return missing
}

// isLocal reports whether the kernel delivers packets for an address to this node.
func (r routes) isLocal(ip netip.Addr) bool {
	header := make([]byte, unix.SizeofRtMsg)
	header[0], header[1] = unix.AF_INET, uint8(ip.BitLen())
	if ip.Is6() {
		header[0] = unix.AF_INET6
	}
	replies, err := r.execute(unix.RTM_GETROUTE, 0, attributes(header, func(e *netlink.AttributeEncoder) {
		e.Bytes(unix.RTA_DST, ip.AsSlice())
	}))
	const kind = 7 // rtm_type
	return err == nil && len(replies) > 0 && len(replies[0].Data) > kind && replies[0].Data[kind] == unix.RTN_LOCAL
}
