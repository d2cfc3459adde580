package api

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/wire/protobuf"
)

// maxPodName is one more than the length of a DNS label.
const maxPodName = 64

// A packer slims an EndpointSlice, endpoint by endpoint.
type packer struct {
	Slimmer
	slim  *cluster.Slice
	names bool   // the addressType is FQDN
	buf   []byte // the packed endpoints
}

func (p *packer) warnValue(msg string, value any) {
	p.Slimmer.warn(msg, "EndpointSlice", p.slim.Namespace, p.slim.Name, value)
}

// unknownCluster is the ID of the cluster of an imported slice without a source.
const unknownCluster = "unknown"

// belongs sets the slice's Service by its labels. It returns false for a slice without a
// Service, and for an imported slice of names. A slice with the multi-cluster label of a Service
// never belongs to a Service of this cluster, even if it also names the derived Service
// that some controllers create. As in CoreDNS the label of its source may be missing.
func (p *packer) belongs(own, imported, source, kind string) bool {
	p.slim.Service, p.names = own, kind == addressFQDN
	if imported != "" {
		p.slim.Service, p.slim.Cluster = imported, cmp.Or(strings.ToLower(source), unknownCluster)
		if !p.Options.Multicluster {
			return false
		}
		if source == "" {
			p.Warn("Imported EndpointSlice without a label, its cluster is unknown",
				"namespace", p.slim.Namespace, "name", p.slim.Name, "label", LabelImportCluster)
		}
		if p.names {
			p.warnValue("Ignored names of an imported EndpointSlice", kind)
			return false
		}
	}
	return p.slim.Service != ""
}

// port adds a port.
func (p *packer) port(port ServicePort) {
	p.slim.Ports = p.appendPort(p.slim.Ports, port, "EndpointSlice", p.slim.Namespace, p.slim.Name)
}

// endpoint returns an endpoint without its address. pod is the name of its Pod, if
// any, and target reports whether its targetRef identifies it.
func (p *packer) endpoint(ready bool, hostname, pod, zone string, target bool) cluster.Endpoint {
	e := cluster.Endpoint{Ready: ready, Target: target}
	switch {
	case hostname != "":
		e.Hostname = strings.ToLower(hostname)
	case p.Options.PodNames && len(pod) < maxPodName && !strings.Contains(pod, "."):
		// A pod's name may be longer than a label, or be several labels.
		e.Hostname = strings.ToLower(pod)
	}
	if e.Hostname != "" && len(validation.IsDNS1123Label(e.Hostname)) > 0 {
		p.warnValue("Ignored invalid hostname of an endpoint", e.Hostname)
		e.Hostname = ""
	}
	if p.Options.Zones {
		e.Zone = strings.ToLower(zone)
	}
	return e
}

// identifies reports whether a targetRef names a Node or a Pod of the slice's namespace. The
// API server's own slices have no targetRef.
func (p *packer) identifies(kind, namespace []byte) bool {
	switch string(kind) {
	case "Pod":
		return len(namespace) == 0 || string(namespace) == p.slim.Namespace
	case "Node":
		return true
	}
	return p.slim.Namespace == "default" && p.slim.Service == "kubernetes"
}

// address adds an endpoint with this address or name.
func (p *packer) address(e cluster.Endpoint, text []byte) {
	if p.names {
		if name := strings.ToLower(strings.TrimSuffix(string(text), ".")); IsTarget(name) {
			p.buf = cluster.AppendName(p.buf, name, e)
		} else {
			p.warnValue("Ignored invalid name of an endpoint", string(text))
		}
		return
	}
	var ok bool
	if e.Addr, ok = wire.ParseIPv4(text, '.'); !ok {
		if e.Addr, ok = parseAddr(string(text)); !ok {
			p.warnValue("Ignored invalid IP address", string(text))
			return
		}
	}
	p.buf = cluster.AppendEndpoint(p.buf, e)
}

// Slice slims an EndpointSlice. It returns nil if the slice is not delivered.
func (s Slimmer) Slice(full *EndpointSlice) *cluster.Slice {
	p := packer{Slimmer: s, slim: &cluster.Slice{Namespace: intern(full.Namespace), Name: full.Name}}
	own := ShareName(full.Name, []byte(full.Labels[LabelServiceName]))
	if !p.belongs(own, full.Labels[LabelImportService], full.Labels[LabelImportCluster], full.AddressType) {
		return nil
	}

	for _, port := range full.Ports {
		if port.Port != nil { // without a number there can be no SRV record
			p.port(ServicePort{Name: value(port.Name), Protocol: value(port.Protocol), Port: *port.Port})
		}
	}

	for i := range full.Endpoints {
		in := &full.Endpoints[i]
		target, pod := value(in.TargetRef), ""
		if target.Kind == "Pod" {
			pod = target.Name
		}
		zone := value(in.Zone)
		if p.Options.Hints {
			zone = hintedZone(zone, value(in.Hints).ForZones)
		}
		e := p.endpoint(in.Conditions.Ready == nil || *in.Conditions.Ready, value(in.Hostname), pod, zone,
			p.identifies([]byte(target.Kind), []byte(target.Namespace)))
		for _, text := range in.Addresses {
			p.address(e, []byte(text))
		}
	}
	p.slim.Endpoints = cluster.Endpoints(p.buf)
	return p.slim
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// readSlice decodes and slims a slice in protobuf. It packs the endpoints as it decodes
// them, into room, whose capacity it may increase. The fields may have any order, so it
// iterates over the message three times, which costs little.
func (s Slimmer) readSlice(raw []byte, o *Decoded, room *[]byte) error {
	var own, imported, source, kind string
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			o.readMeta(&m, func(key, value []byte) {
				switch string(key) {
				case LabelServiceName:
					own = ShareName(o.Name, value)
				case LabelImportService:
					imported = string(value)
				case LabelImportCluster:
					source = string(value)
				}
			})
		case 4:
			kind = m.StringOf(AddressIPv4, AddressIPv6)
		}
	}

	p := packer{Slimmer: s, slim: &cluster.Slice{Namespace: o.Namespace, Name: o.Name}, buf: (*room)[:0]}
	if m.Err != nil || !p.belongs(own, imported, source, kind) {
		return m.Err
	}

	for m = (protobuf.Message{Rest: raw}); m.NextOf(3); {
		if port, numbered := readServicePort(&m); m.Err == nil && numbered {
			p.port(port)
		}
	}
	if m.Err == nil {
		for m = (protobuf.Message{Rest: raw}); m.NextOf(2); {
			p.readEndpoint(&m)
		}
	}
	p.slim.Endpoints = cluster.Endpoints(p.buf)
	o.Slim, *room = p.slim, p.buf
	return m.Err
}

// ShareName returns text as a string. It shares memory with name if that begins with
// text: names of slices begin with the names of their Services.
func ShareName(name string, text []byte) string {
	if len(text) <= len(name) && name[:len(text)] == string(text) {
		return name[:len(text)]
	}
	return string(text)
}

// readEndpoint calls Next. NextIn, which calls it, would cost a fifth of the time.
func (p *packer) readEndpoint(m *protobuf.Message) {
	ready, addresses := true, 0
	var address, hostname, zone, hints []byte
	var target targetRef

	endpoint := m.Embedded()
	for endpoint.Next() {
		switch endpoint.Number {
		case 1:
			address = endpoint.Bytes()
			addresses++
		case 2:
			conditions := endpoint.Embedded()
			for conditions.Next() {
				if conditions.Number == 1 {
					ready = conditions.Bool()
				}
			}
			endpoint.Fail(conditions.Err)
		case 3:
			hostname = endpoint.Bytes()
		case 4:
			target.read(&endpoint)
		case 7:
			zone = endpoint.Bytes()
		case 8:
			hints = endpoint.Bytes()
		}
	}
	m.Fail(endpoint.Err)

	pod := ""
	if p.Options.PodNames && string(target.kind) == "Pod" {
		pod = string(target.name)
	}
	switch {
	case !p.Options.Zones:
		zone = nil
	case p.Options.Hints && hints != nil:
		forZones, err := readHints(hints)
		m.Fail(err)
		zone = []byte(hintedZone(string(zone), forZones))
	}
	if m.Err != nil {
		return
	}

	identified := p.identifies(target.kind, target.namespace)
	e := p.endpoint(ready, string(hostname), pod, string(zone), identified)
	if addresses == 1 { // as every controller writes it
		p.address(e, address)
		return
	}
	for endpoint = m.Embedded(); endpoint.NextOf(1); {
		p.address(e, endpoint.Bytes())
	}
}

// A targetRef identifies an endpoint.
type targetRef struct{ kind, namespace, name []byte }

func (t *targetRef) read(m *protobuf.Message) {
	ref := m.Embedded()
	for ref.Next() {
		switch ref.Number {
		case 1:
			t.kind = ref.Bytes()
		case 2:
			t.namespace = ref.Bytes()
		case 3:
			t.name = ref.Bytes()
		}
	}
	m.Fail(ref.Err)
}

// hintedZone returns the zone whose clients should use an endpoint: its own, unless its
// hints name others only. Controllers write one hint.
func hintedZone(own string, hints []ForZone) string {
	if len(hints) == 0 || slices.Contains(hints, ForZone{own}) {
		return own
	}
	return hints[0].Name
}

func readHints(raw []byte) (forZones []ForZone, err error) {
	m := protobuf.Message{Rest: raw}
	for m.NextOf(1) {
		for zone := m.Embedded(); m.NextIn(&zone); {
			if zone.Number == 1 {
				forZones = append(forZones, ForZone{zone.String()})
			}
		}
	}
	return forZones, m.Err
}
