package cluster

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxPodName is one more than the length of a DNS label.
const maxPodName = 64

// A packer slims an EndpointSlice, endpoint by endpoint.
type packer struct {
	Options
	slim  *Slice
	names bool   // the addressType is FQDN
	buf   []byte // the packed endpoints
	warn  func(format string, args ...any)
}

// belongs sets the slice's Service by its labels. It returns false for a slice without a
// Service, and for an imported slice of names. A slice with the multi-cluster labels
// never belongs to a Service of this cluster, even if it also names the derived Service
// that some controllers create.
func (p *packer) belongs(own, imported, source, kind string) bool {
	p.slim.Service, p.names = own, kind == addressFQDN
	if imported != "" {
		p.slim.Service, p.slim.Cluster = imported, strings.ToLower(source)
		if !p.Multicluster || source == "" || p.names {
			return false
		}
	}
	return p.slim.Service != ""
}

// port adds a port.
func (p *packer) port(name, protocol string, number int32) {
	if outside(number) {
		p.warn("EndpointSlice %s/%s: %d is not a port: ignored", p.slim.Namespace, p.slim.Name, number)
		return
	}
	p.slim.Ports = appendPort(p.slim.Ports, name, protocol, number)
}

// endpoint returns an endpoint without its address. pod is the name of its Pod, if
// any.
func (p *packer) endpoint(ready bool, hostname, pod, zone string) Endpoint {
	e := Endpoint{Ready: ready}
	switch {
	case hostname != "":
		e.Hostname = strings.ToLower(hostname)
	case p.PodNames && len(pod) < maxPodName && !strings.Contains(pod, "."):
		// A pod's name may be longer than a label, or be several labels.
		e.Hostname = strings.ToLower(pod)
	}
	if e.Hostname != "" && len(validation.IsDNS1123Label(e.Hostname)) > 0 {
		p.warn("EndpointSlice %s/%s: %q is not a hostname: ignored", p.slim.Namespace, p.slim.Name, e.Hostname)
		e.Hostname = ""
	}
	if p.Zones {
		e.Zone = strings.ToLower(zone)
	}
	return e
}

// address adds an endpoint with this address or name.
func (p *packer) address(e Endpoint, text []byte) {
	if p.names {
		if name := strings.ToLower(strings.TrimSuffix(string(text), ".")); isTarget(name) {
			p.buf = AppendName(p.buf, name, e)
		} else {
			p.warn("EndpointSlice %s/%s: %q is not a name: ignored", p.slim.Namespace, p.slim.Name, text)
		}
		return
	}
	addr, ok := dotted(text)
	if !ok {
		for _, addr = range addrs([]string{string(text)}, "EndpointSlice", p.slim.Namespace, p.slim.Name, p.warn) {
			ok = true
		}
	}
	if ok {
		e.Addr = addr
		p.buf = AppendEndpoint(p.buf, e)
	}
}

// dotted parses an IPv4 address without an allocation.
func dotted(text []byte) (addr netip.Addr, ok bool) {
	var b [4]byte
	for i := range b {
		n, digits := 0, 0
		for digits < 3 && digits < len(text) && text[digits]-'0' < 10 {
			n = 10*n + int(text[digits]-'0')
			digits++
		}
		if digits == 0 || n > 255 || digits > 1 && text[0] == '0' {
			return addr, false
		}
		b[i], text = byte(n), text[digits:]
		if i < 3 {
			if len(text) == 0 || text[0] != '.' {
				return addr, false
			}
			text = text[1:]
		}
	}
	return netip.AddrFrom4(b), len(text) == 0
}

// slice slims an EndpointSlice. It returns nil if the slice is not delivered.
func (o Options) slice(s *apiSlice, warn func(format string, args ...any)) *Slice {
	p := packer{Options: o, warn: warn, slim: &Slice{Namespace: intern(s.Namespace), Name: s.Name}}
	if !p.belongs(within(s.Name, []byte(s.Labels[labelServiceName])), s.Labels[labelImportService], s.Labels[labelImportCluster], s.AddressType) {
		return nil
	}
	for _, port := range s.Ports {
		if port.Port != nil { // without a number there can be no SRV record
			p.port(value(port.Name), value(port.Protocol), *port.Port)
		}
	}
	for i := range s.Endpoints {
		in, pod := &s.Endpoints[i], ""
		if in.TargetRef != nil && in.TargetRef.Kind == "Pod" {
			pod = in.TargetRef.Name
		}
		e := p.endpoint(in.Conditions.Ready == nil || *in.Conditions.Ready, value(in.Hostname), pod, value(in.Zone))
		for _, text := range in.Addresses {
			p.address(e, []byte(text))
		}
	}
	p.slim.Endpoints = Endpoints(p.buf)
	return p.slim
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// readSlice is the same for a slice in protobuf. Its endpoints go from the
// message into their packed form, which is built in room: it returns it with
// what has been added to its capacity. The fields may have any order, so the
// walk is done thrice; passing over the endpoints costs little.
func (o Options) readSlice(raw []byte, a *arrived, room []byte, warn func(format string, args ...any)) (*Slice, []byte, error) {
	var own, imported, source, kind string
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			m.fail(a.readMeta(m.bytes(), func(key, value []byte) {
				switch string(key) {
				case labelServiceName:
					own = within(a.name, value)
				case labelImportService:
					imported = string(value)
				case labelImportCluster:
					source = string(value)
				}
			}))
		case 4:
			kind = family(m.bytes())
		}
	}
	p := packer{Options: o, warn: warn, slim: &Slice{Namespace: a.namespace, Name: a.name}, buf: room[:0]}
	if m.err != nil || !p.belongs(own, imported, source, kind) {
		return nil, room, m.err
	}
	for m = (message{rest: raw}); m.next(); {
		if m.number == 3 {
			m.fail(p.readPort(m.bytes()))
		}
	}
	if m.err == nil {
		for m = (message{rest: raw}); m.next(); {
			if m.number == 2 {
				m.fail(p.readEndpoint(m.bytes()))
			}
		}
	}
	p.slim.Endpoints = Endpoints(p.buf)
	return p.slim, p.buf, m.err
}

// within returns text as a string. It shares memory with name if that begins with
// text: names of slices begin with the names of their Services.
func within(name string, text []byte) string {
	if len(text) <= len(name) && name[:len(text)] == string(text) {
		return name[:len(text)]
	}
	return string(text)
}

// family returns an address type as a string, without an allocation for known types.
func family(text []byte) string {
	switch string(text) {
	case addressIPv4:
		return addressIPv4
	case addressIPv6:
		return addressIPv6
	}
	return string(text)
}

func (p *packer) readPort(raw []byte) error {
	var name, protocol string
	var number int32
	all := true
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			name = m.string()
		case 2:
			protocol = m.string()
		case 3:
			number, all = int32(m.varint()), false
		}
	}
	if m.err == nil && !all {
		p.port(name, protocol, number)
	}
	return m.err
}

func (p *packer) readEndpoint(raw []byte) error {
	ready, addresses := true, 0
	var address, hostname, zone, kind, pod []byte
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			address = m.bytes()
			addresses++
		case 2:
			conditions := message{rest: m.bytes()}
			for conditions.next() {
				if conditions.number == 1 {
					ready = conditions.bool()
				}
			}
			m.fail(conditions.err)
		case 3:
			hostname = m.bytes()
		case 4:
			text := m.bytes()
			if !p.PodNames {
				continue
			}
			target := message{rest: text}
			for target.next() {
				switch target.number {
				case 1:
					kind = target.bytes()
				case 3:
					pod = target.bytes()
				}
			}
			m.fail(target.err)
		case 7:
			zone = m.bytes()
		}
	}
	if m.err != nil {
		return m.err
	}
	if string(kind) != "Pod" {
		pod = nil
	}
	if !p.Zones {
		zone = nil
	}
	e := p.endpoint(ready, string(hostname), string(pod), string(zone))
	if addresses == 1 { // as every controller writes it
		p.address(e, address)
		return nil
	}
	for m = (message{rest: raw}); m.next(); {
		if m.number == 1 {
			p.address(e, m.bytes())
		}
	}
	return m.err
}
