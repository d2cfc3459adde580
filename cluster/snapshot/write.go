package snapshot

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
)

// Write writes a snapshot of objects, one after the other.
func Write(w io.Writer, h Header, objects iter.Seq2[cluster.Kind, cluster.Object]) error {
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	out.WriteString(magic + version) // Flush returns the errors of all writes

	var m message
	m.number(headerWritten, uint64(h.Written.Unix()))
	m.text(headerOptions, h.Options)
	put := func(field int) {
		var head [binary.MaxVarintLen64 + 1]byte
		out.Write(binary.AppendUvarint(append(head[:0], byte(field<<3|2)), uint64(len(m))))
		out.Write(m)
		m = m[:0]
	}

	put(fieldHeader)
	for kind, o := range objects {
		i := slices.Index(kinds[:], kind)
		if i < 0 {
			return fmt.Errorf("writing a snapshot: %s are not supported", kind)
		}
		m.object(o)
		put(fieldHeader + 1 + i)
	}

	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(appendSum(nil, sum.Sum32()))
	return err
}

// appendSum appends the last field.
func appendSum(buf []byte, sum uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(buf, fieldSum<<3|5), sum)
}

// A message is a message in protobuf's wire format, under construction.
type message []byte

func (m *message) number(field int, n uint64) {
	*m = binary.AppendUvarint(append(*m, byte(field<<3)), n)
}

func (m *message) bytes(field int, b []byte) {
	*m = append(binary.AppendUvarint(append(*m, byte(field<<3|2)), uint64(len(b))), b...)
}

// text appends a string unless it is empty.
func (m *message) text(field int, s string) {
	if s != "" {
		*m = append(binary.AppendUvarint(append(*m, byte(field<<3|2)), uint64(len(s))), s...)
	}
}

func (m *message) addrs(field int, ips []netip.Addr) {
	for _, ip := range ips {
		m.bytes(field, ip.AsSlice())
	}
}

func (m *message) ports(ports []cluster.Port) {
	sub := make(message, 0, 64)
	for _, p := range ports {
		sub = sub[:0]
		sub.text(portName, p.Name)
		sub.text(portProtocol, p.Protocol)
		sub.number(portNumber, uint64(p.Port))
		m.bytes(objectPort, sub)
	}
}

func (m *message) object(o cluster.Object) {
	key, flags := o.Key(), uint64(0)
	flag := func(set bool, f uint64) {
		if set {
			flags |= f
		}
	}

	m.text(objectNamespace, key.Namespace)
	m.text(objectName, key.Name)
	switch o := o.(type) {
	case *cluster.Service:
		m.addrs(objectAddress, o.ClusterIPs)
		m.ports(o.Ports)
		m.text(objectExternalName, o.ExternalName)
		if o.External != nil {
			m.addrs(objectExternalIP, o.External.IPs)
			for _, host := range o.External.Hosts {
				m.text(objectExternalHost, host)
			}
		}
		flag(o.Headless, flagHeadless)
		flag(o.PublishNotReady, flagPublishNotReady)
		flag(o.Selector, flagSelector)

	case *cluster.Slice:
		m.ports(o.Ports)
		m.text(objectService, o.Service)
		m.text(objectCluster, o.Cluster)
		m.text(objectEndpoints, string(o.Endpoints))

	case *cluster.Pod:
		m.addrs(objectAddress, o.IPs)
		for _, text := range o.Labels.Pairs() {
			m.bytes(objectLabel, []byte(text))
		}
		flag(o.Host, flagHost)
	}

	if flags != 0 {
		m.number(objectFlags, flags)
	}
}
