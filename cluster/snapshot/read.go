package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"
	"unique"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire/protobuf"
)

// maxSize limits the bytes that Read holds in memory. A million endpoints need 20 MB.
const maxSize = 1 << 30

// A Snapshot is a snapshot in memory. Each decodes its objects.
type Snapshot struct {
	Header
	objects []byte
}

// Read reads a snapshot up to the end of r and verifies its checksum.
func Read(r io.Reader) (*Snapshot, error) {
	var buf bytes.Buffer
	if file, ok := r.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			buf.Grow(int(min(info.Size(), maxSize)) + bytes.MinRead) // avoids reallocation
		}
	}
	if _, err := buf.ReadFrom(io.LimitReader(r, maxSize+1)); err != nil {
		return nil, err
	}

	data := buf.Bytes()
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return nil, errors.New("not a snapshot")
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(version)); !ok {
		line, _, _ := bytes.Cut(rest[:min(len(rest), 20)], []byte("\n"))
		return nil, fmt.Errorf("version %q, want %q", line, version[:len(version)-1])
	}

	const trailer = 1 + crc32.Size
	end := len(data) - trailer
	switch {
	case len(data) > maxSize:
		return nil, fmt.Errorf("more than %d bytes", maxSize)
	case len(rest) < trailer || data[end] != fieldSum<<3|5:
		return nil, errors.New("incomplete")
	case binary.LittleEndian.Uint32(data[end+1:]) != crc32.Checksum(data[:end], castagnoli):
		return nil, errors.New("wrong checksum")
	}

	m := protobuf.Message{Rest: rest[:len(rest)-trailer]}
	s := new(Snapshot)
	if !m.Next() || m.Number != fieldHeader {
		return nil, errors.New("no header")
	}
	for head := m.Embedded(); m.NextIn(&head); {
		switch head.Number {
		case headerWritten:
			s.Written = time.Unix(int64(head.Varint()), 0)
		case headerOptions:
			s.Options = head.String()
		}
	}
	s.objects = m.Rest
	return s, m.Err
}

// Each calls put with each object. It returns an error if one is malformed: the objects
// before it have been put.
func (s *Snapshot) Each(put func(cluster.Kind, cluster.Object)) error {
	m := protobuf.Message{Rest: s.objects}
	var namespace string
	for m.Next() {
		i := int(m.Number) - fieldHeader - 1
		if i < 0 || i >= len(kinds) {
			return fmt.Errorf("unknown field %d", m.Number)
		}
		f, err := readFields(m.Bytes(), &namespace)
		if err != nil {
			return fmt.Errorf("malformed object of %s: %w", kinds[i], err)
		}
		put(kinds[i], f.object(kinds[i]))
	}
	return m.Err
}

// fields are the fields of an object of any kind.
type fields struct {
	namespace, name  string
	addrs            []netip.Addr
	ports            []cluster.Port
	flags            uint64
	externalName     string
	external         *cluster.External
	service, cluster string
	endpoints        cluster.Endpoints
	labels           map[string]string
}

// readFields decodes an object. namespace is the namespace of the previous object: most
// objects have the same one, and share its memory.
func readFields(raw []byte, namespace *string) (f fields, err error) {
	m := protobuf.Message{Rest: raw}
	var labels []string
	for m.Next() {
		switch m.Number {
		case objectNamespace:
			if text := m.Bytes(); string(text) != *namespace {
				*namespace = unique.Make(string(text)).Value()
			}
			f.namespace = *namespace
		case objectName:
			f.name = m.String()

		case objectAddress:
			f.addrs = append(f.addrs, readAddr(&m))
		case objectPort:
			f.ports = append(f.ports, readPort(&m))
		case objectFlags:
			f.flags = m.Varint()
		case objectExternalName:
			f.externalName = m.String()
		case objectExternalIP:
			f.makeExternal().IPs = append(f.makeExternal().IPs, readAddr(&m))
		case objectExternalHost:
			f.makeExternal().Hosts = append(f.makeExternal().Hosts, m.String())

		case objectService:
			f.service = m.String()
		case objectCluster:
			f.cluster = m.String()
		case objectEndpoints:
			f.endpoints = cluster.Endpoints(m.String())
			if !f.endpoints.Valid() {
				m.Fail(errors.New("invalid endpoints"))
			}
		case objectLabel:
			labels = append(labels, m.String())
		}
	}

	for pair := range slices.Chunk(labels, 2) {
		if len(pair) < 2 {
			m.Fail(errors.New("label without a value"))
			break
		}
		if f.labels == nil {
			f.labels = map[string]string{}
		}
		f.labels[pair[0]] = pair[1]
	}
	return f, m.Err
}

func (f *fields) makeExternal() *cluster.External {
	if f.external == nil {
		f.external = new(cluster.External)
	}
	return f.external
}

func readAddr(m *protobuf.Message) netip.Addr {
	ip, ok := netip.AddrFromSlice(m.Bytes())
	if !ok || ip.Is4In6() {
		m.Fail(errors.New("invalid address"))
	}
	return ip
}

func readPort(m *protobuf.Message) (p cluster.Port) {
	for port := m.Embedded(); m.NextIn(&port); {
		switch port.Number {
		case portName:
			p.Name = port.String()
		case portProtocol:
			p.Protocol = port.String()
		case portNumber:
			p.Port = uint16(port.Varint())
		}
	}
	return p
}

// object returns the object of a kind with these fields.
func (f *fields) object(kind cluster.Kind) cluster.Object {
	has := func(flag uint64) bool { return f.flags&flag != 0 }
	switch kind {
	case cluster.Namespaces:
		return &cluster.Namespace{Name: f.name}
	case cluster.Slices, cluster.ImportSlices:
		return &cluster.Slice{
			Namespace: f.namespace, Name: f.name, Service: f.service, Cluster: f.cluster,
			Ports: f.ports, Endpoints: f.endpoints,
		}
	case cluster.Pods:
		p := &cluster.Pod{Namespace: f.namespace, Name: f.name, IPs: f.addrs, Host: has(flagHost)}
		if f.labels != nil {
			p.Labels = cluster.NewLabels(f.labels)
		}
		return p
	}
	return &cluster.Service{
		Namespace: f.namespace, Name: f.name,
		ClusterIPs: f.addrs, ExternalName: f.externalName, Ports: f.ports, External: f.external,
		Headless: has(flagHeadless), PublishNotReady: has(flagPublishNotReady), Selector: has(flagSelector),
	}
}
