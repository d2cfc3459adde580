package tcx

import (
	"encoding/binary"
	"fmt"
	"path"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A device is a network interface of the node.
type device struct {
	index    int
	name     string
	kind     string // such as veth; "" for hardware and lo
	mac      [8]byte
	ethernet bool
	master   int  // index of the interface that it is a port of; 0 if there is none
	remote   bool // its peer is in another network namespace
}

// openLinks returns a socket that receives changes of interfaces, or none.
func openLinks(groups uint32) (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: groups})
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return conn, nil
}

// devices lists the interfaces.
func devices(conn *netlink.Conn) (found []device, err error) {
	replies, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump},
		Data:   make([]byte, unix.SizeofIfInfomsg),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	for _, m := range replies {
		if d, ok := parseDevice(m.Data); ok {
			found = append(found, d)
		}
	}
	return found, nil
}

// parseDevice parses the data of a message about an interface. Messages of the family of
// bridges are about their ports, and not used.
func parseDevice(data []byte) (d device, ok bool) {
	if len(data) < unix.SizeofIfInfomsg || data[0] != unix.AF_UNSPEC {
		return d, false
	}

	d.ethernet = binary.NativeEndian.Uint16(data[2:]) == unix.ARPHRD_ETHER
	d.index = int(int32(binary.NativeEndian.Uint32(data[4:])))
	a, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return d, false
	}

	for a.Next() {
		switch a.Type() {
		case unix.IFLA_IFNAME:
			d.name = a.String()
		case unix.IFLA_ADDRESS:
			if mac := a.Bytes(); len(mac) == 6 {
				copy(d.mac[:], mac)
			}
		case unix.IFLA_MASTER:
			d.master = int(a.Uint32())
		case unix.IFLA_LINK_NETNSID:
			d.remote = true
		case unix.IFLA_LINKINFO:
			a.Nested(func(n *netlink.AttributeDecoder) error {
				for n.Next() {
					if n.Type() == unix.IFLA_INFO_KIND {
						d.kind = n.String()
					}
				}
				return nil
			})
		}
	}
	return d, a.Err() == nil
}

// selected reports whether the options select an interface.
func (d device) selected(patterns string) bool {
	if patterns == "" {
		return d.kind == "veth" && d.remote
	}
	for p := range strings.SplitSeq(patterns, ",") {
		if ok, _ := path.Match(p, d.name); ok {
			return true
		}
	}
	return false
}

// target returns the address of frames that pods behind d send to the node, or the reason
// why queries cannot be captured there.
func target(d device, known map[int]device) (mac [8]byte, reason string) {
	if !d.ethernet {
		return mac, "it has no Ethernet frames"
	}
	if d.master == 0 {
		return d.mac, ""
	}
	switch master, ok := known[d.master]; {
	case !ok:
		return mac, "it is a port of an interface that is not known"
	case master.kind != "bridge":
		return mac, fmt.Sprintf("it is a port of %s, of the kind %s: only bridges deliver packets to the node itself",
			master.name, master.kind)
	default:
		return master.mac, ""
	}
}
