package tcx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The qdisc clsact and the parents of filters at its two sides.
const (
	clsactHandle = 0xffff0000
	clsactParent = 0xfffffff1

	clsactIngress, clsactEgress = 0xfffffff2, 0xfffffff3
)

// Attributes and values of linux/rtnetlink.h and linux/pkt_cls.h.
const (
	tcaKind, tcaOptions                         = 1, 2
	tcaBPFFD, tcaBPFName, tcaBPFFlags, tcaBPFID = 6, 7, 8, 11

	directAction = 1
	firstAll     = 1<<16 | uint32(unix.ETH_P_ALL&0xff<<8|unix.ETH_P_ALL>>8) // priority 1, all protocols
)

// filterPrefix begins the names of the filters of all instances.
const filterPrefix = "seamark_"

// A filter is a BPF filter of tc. Its handle is the number of its program, so that two
// instances have different ones.
type filter struct {
	index          int
	handle, parent uint32
	info           uint32 // priority and protocol
	name           string
	program        ebpf.ProgramID
}

// trafficControl returns a message about a qdisc or a filter.
func trafficControl(
	kind uint16, flags netlink.HeaderFlags, f filter, add func(*netlink.AttributeEncoder),
) netlink.Message {
	header := make([]byte, 20) // struct tcmsg
	binary.NativeEndian.PutUint32(header[4:], uint32(f.index))
	binary.NativeEndian.PutUint32(header[8:], f.handle)
	binary.NativeEndian.PutUint32(header[12:], f.parent)
	binary.NativeEndian.PutUint32(header[16:], f.info)

	if add != nil {
		e := netlink.NewAttributeEncoder()
		add(e)
		attributes, _ := e.Encode() // fails for attributes of more than 64 kB
		header = append(header, attributes...)
	}

	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: header,
	}
}

// attachFilter adds a program as the first filter at one side of an interface, and the qdisc
// clsact if it is missing.
func attachFilter(conn *netlink.Conn, index int, parent uint32, p *ebpf.Program, name string) (*filter, error) {
	if err := addClsact(conn, index); err != nil {
		return nil, err
	}
	number, err := id(p)
	if err != nil {
		return nil, err
	}
	f := &filter{index: index, handle: uint32(number), parent: parent, info: firstAll, name: name, program: number}
	flags := netlink.Acknowledge | netlink.Create | netlink.Excl
	_, err = conn.Execute(trafficControl(unix.RTM_NEWTFILTER, flags, *f, func(e *netlink.AttributeEncoder) {
		e.String(tcaKind, "bpf")
		e.Nested(tcaOptions, func(n *netlink.AttributeEncoder) error {
			n.Uint32(tcaBPFFD, uint32(p.FD()))
			n.String(tcaBPFName, name)
			n.Uint32(tcaBPFFlags, directAction)
			return nil
		})
	}))
	if err != nil {
		return nil, fmt.Errorf("adding a BPF filter of tc: %w", err)
	}
	return f, nil
}

// addClsact adds the qdisc clsact to an interface. It stays there: other programs may add
// their filters to it, and without filters it has no effect.
func addClsact(conn *netlink.Conn, index int) error {
	flags := netlink.Acknowledge | netlink.Create | netlink.Excl
	qdisc := filter{index: index, handle: clsactHandle, parent: clsactParent}
	_, err := conn.Execute(trafficControl(unix.RTM_NEWQDISC, flags, qdisc,
		func(e *netlink.AttributeEncoder) { e.String(tcaKind, "clsact") }))
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("adding the qdisc clsact: %w", err)
	}
	with, err := clsacts(conn)
	if err == nil && !with[index] {
		err = errors.New("it has the qdisc ingress of another program, in place of clsact")
	}
	return err
}

// clsacts returns the indexes of the interfaces that have the qdisc clsact.
func clsacts(conn *netlink.Conn) (map[int]bool, error) {
	replies, err := conn.Execute(trafficControl(unix.RTM_GETQDISC, netlink.Dump, filter{}, nil))
	if err != nil {
		return nil, fmt.Errorf("listing the qdiscs: %w", err)
	}
	with := map[int]bool{}
	for _, m := range replies {
		if index, a := parseControl(m); a != nil {
			for a.Next() {
				if a.Type() == tcaKind && a.String() == "clsact" {
					with[index.index] = true
				}
			}
		}
	}
	return with, nil
}

// parseControl parses the header of a message about a qdisc or a filter. The attributes are
// nil if the message is malformed.
func parseControl(m netlink.Message) (f filter, a *netlink.AttributeDecoder) {
	const size = 20
	if len(m.Data) < size {
		return f, nil
	}
	f.index = int(int32(binary.NativeEndian.Uint32(m.Data[4:])))
	f.handle = binary.NativeEndian.Uint32(m.Data[8:])
	f.parent = binary.NativeEndian.Uint32(m.Data[12:])
	f.info = binary.NativeEndian.Uint32(m.Data[16:])
	a, err := netlink.NewAttributeDecoder(m.Data[size:])
	if err != nil {
		return f, nil
	}
	return f, a
}

// filters returns the BPF filters of tc at both sides of an interface, in their order.
func filters(conn *netlink.Conn, index int) (found []filter) {
	for _, parent := range []uint32{clsactIngress, clsactEgress} {
		at := filter{index: index, parent: parent}
		replies, err := conn.Execute(trafficControl(unix.RTM_GETTFILTER, netlink.Dump, at, nil))
		if err != nil {
			continue // there is no such qdisc
		}

		for _, m := range replies {
			f, a := parseControl(m)
			if a == nil {
				continue
			}

			kind := ""
			for a.Next() {
				switch a.Type() {
				case tcaKind:
					kind = a.String()
				case tcaOptions:
					a.Nested(f.parse)
				}
			}
			if kind == "bpf" && f.handle != 0 { // else it is the list that the filters are in
				f.parent = parent
				found = append(found, f)
			}
		}
	}
	return found
}

// parse reads the options of a BPF filter.
func (f *filter) parse(a *netlink.AttributeDecoder) error {
	for a.Next() {
		switch a.Type() {
		case tcaBPFName:
			f.name = a.String()
		case tcaBPFID:
			f.program = ebpf.ProgramID(a.Uint32())
		}
	}
	return nil
}

// remove removes the filter. It is no error if it does not exist any more.
func (f *filter) remove(conn *netlink.Conn) error {
	_, err := conn.Execute(trafficControl(unix.RTM_DELTFILTER, netlink.Acknowledge, *f,
		func(e *netlink.AttributeEncoder) { e.String(tcaKind, "bpf") }))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil // the filter, the interface or the qdisc
	}
	return err
}

// left reports whether the filter is one of an instance that has ended.
func (f *filter) left() bool {
	return strings.HasPrefix(f.name, filterPrefix) && !marked(f.program)
}

// RemoveLeftovers removes the filters of instances that have ended: the kernel does not. They
// capture nothing, because nothing stamps their heartbeat. It returns how many they were.
func RemoveLeftovers() (removed int, err error) {
	conn, err := openLinks(0)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	with, err := clsacts(conn)
	if err != nil {
		return 0, err
	}

	for index := range with {
		for _, f := range filters(conn, index) {
			if !f.left() {
				continue
			}
			if err := f.remove(conn); err != nil {
				return removed, fmt.Errorf("removing the filter %s of an instance that has ended: %w", f.name, err)
			}
			removed++
		}
	}
	return removed, nil
}

// ProbeClsact reports whether Open would work with Clsact. It adds a filter, which changes
// nothing, and removes it: on an interface that has the qdisc, or else on lo. When the qdisc is
// added to an interface or removed, the kernel drops packets to it for some milliseconds.
func ProbeClsact() (Support, error) {
	if err := checkCapabilities(); err != nil {
		return Unsupported, err
	}
	p, err := loadUnused()
	if err != nil {
		return loadSupport(err)
	}
	defer p.close()

	conn, err := openLinks(0)
	if err != nil {
		return Unknown, err
	}
	defer conn.Close()
	before, err := clsacts(conn)
	if err != nil {
		return Unknown, err
	}

	probe := func(index int) error {
		f, err := attachFilter(conn, index, clsactIngress, p.query, filterPrefix+"probe")
		if err != nil {
			return err
		}
		return f.remove(conn)
	}

	for index := range before {
		if probe(index) == nil { // else it may have been deleted meanwhile
			return Supported, nil
		}
	}

	if !before[loInterface] {
		defer func() {
			if len(filters(conn, loInterface)) == 0 {
				lo := filter{index: loInterface, handle: clsactHandle, parent: clsactParent}
				_, _ = conn.Execute(trafficControl(unix.RTM_DELQDISC, netlink.Acknowledge, lo, nil))
			}
		}()
	}

	switch err := probe(loInterface); {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP):
		return Unsupported, fmt.Errorf("the kernel has no BPF filters of tc"+
			" (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF): %w", err)
	case err != nil:
		return Unknown, err
	}
	return Supported, nil
}
