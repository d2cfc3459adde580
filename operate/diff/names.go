package diff

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
)

// A question is a name and a type to query. subject describes the name.
type question struct {
	name    string
	qtype   uint16
	subject string
}

// The subjects of queries.
const (
	subjectZone       = "zone"
	subjectVersion    = "dns-version"
	subjectNamespace  = "namespace"
	subjectService    = "Service"
	subjectHeadless   = "headless Service"
	subjectExternal   = "ExternalName"
	subjectPort       = "port"
	subjectProtocol   = "protocol (empty non-terminal)"
	subjectPlainPort  = "port without underscores"
	subjectEndpoint   = "endpoint"
	subjectNotReady   = "endpoint that is not ready"
	subjectNamed      = "endpoint with a name"
	subjectPod        = "pod address"
	subjectBelowPod   = "name below a pod address"
	subjectReverse    = "reverse name of a Service"
	subjectReverseEP  = "reverse name of an endpoint"
	subjectReverseTop = "reverse name of a network (empty non-terminal)"
	subjectHash       = "hash of a ClusterIP"
	subjectNeighbour  = "name that does not exist"
	subjectSearch     = "search path"
	subjectCase       = "upper case"
)

// allTypes is the number of Services that are queried for every type; the others are
// queried for commonTypes and for one of the other types in turn.
const allTypes = 100

func commonTypes() []uint16 {
	return []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeHTTPS, dns.TypeTXT}
}

func otherTypes() []uint16 {
	return []uint16{
		dns.TypeCNAME, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypePTR, dns.TypeNAPTR, dns.TypeSVCB, dns.TypeCAA,
		dns.TypeANY,
	}
}

// questions returns the queries about the objects.
func (e *expected) questions() iter.Seq[question] {
	return func(yield func(question) bool) {
		l := lister{expected: e, yield: yield, more: true}
		l.zoneNames()
		for kind, object := range e.source.Objects() {
			if !l.more {
				return
			}
			switch o := object.(type) {
			case *cluster.Namespace:
				l.namespace(o.Name)
			case *cluster.Service:
				l.service(kind, o)
			case *cluster.Slice:
				l.slice(kind, o)
			case *cluster.Pod:
				for _, ip := range o.IPs {
					l.add(l.podName(ip, o.Namespace), subjectPod, addressType(ip))
				}
			}
		}
	}
}

// A lister passes queries to yield until it returns false.
type lister struct {
	*expected
	yield    func(question) bool
	more     bool
	services int // so far
}

// add passes a query for each type to yield.
func (l *lister) add(name, subject string, types ...uint16) {
	if _, ok := dns.IsDomainName(name); !ok {
		return // too long: such a name has no query
	}
	for _, t := range types {
		l.more = l.more && l.yield(question{name, t, subject})
	}
}

// zone returns the zone of the names of a kind of objects, such as cluster.local.
func (l *lister) zone(kind cluster.Kind) string {
	if kind == cluster.Imports || kind == cluster.ImportSlices {
		return l.zones[len(l.zones)-1]
	}
	return l.zones[0]
}

func (l *lister) zoneNames() {
	for _, z := range l.zones {
		l.add(z, subjectZone, dns.TypeSOA, dns.TypeNS, dns.TypeA, dns.TypeTXT)
		l.add("svc."+z, subjectNamespace, dns.TypeA, dns.TypeTXT)
		l.add("dns-version."+z, subjectVersion, dns.TypeTXT, dns.TypeA)
		l.add("seamark-none."+z, subjectNeighbour, dns.TypeA, dns.TypeSOA, dns.TypeTXT)
		l.add("seamark-none.svc."+z, subjectNeighbour, dns.TypeA)
		l.add("*.svc."+z, subjectNeighbour, dns.TypeA)
	}
}

func (l *lister) namespace(name string) {
	z := l.zones[0]
	ns := label(name)
	l.add(ns+".svc."+z, subjectNamespace, dns.TypeA, dns.TypeTXT)
	l.add(ns+".pod."+z, subjectNamespace, dns.TypeA)
	l.add("seamark-none."+ns+".svc."+z, subjectNeighbour, dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeSOA)
	l.add("*."+ns+".svc."+z, subjectNeighbour, dns.TypeA)
	l.add("www.example.com."+ns+".svc."+z, subjectSearch, dns.TypeA, dns.TypeAAAA)
}

func (l *lister) service(kind cluster.Kind, s *cluster.Service) {
	l.services++
	z := l.zone(kind)
	svc, ns := label(s.Name), label(s.Namespace)
	name := svc + "." + ns + ".svc." + z
	subject := subjectService
	switch {
	case s.ExternalName != "":
		subject = subjectExternal
	case s.Headless:
		subject = subjectHeadless
	}
	types := commonTypes()
	if others := otherTypes(); l.services <= allTypes {
		types = append(types, others...)
		l.add(strings.ToUpper(name), subjectCase, dns.TypeA)
	} else {
		types = append(types, others[l.services%len(others)])
	}
	l.add(name, subject, types...)

	for _, p := range s.Ports {
		l.port(p, name)
	}
	for _, ip := range s.ClusterIPs {
		l.add(reverseName(ip), subjectReverse, dns.TypePTR)
		if l.kubeDNS {
			l.add(index.HashLabel(ip)+"."+name, subjectHash, addressType(ip), dns.TypeSRV)
		}
		if l.services <= allTypes {
			l.add(reverseName(ip), subjectReverse, dns.TypeA)
			_, above, _ := strings.Cut(reverseName(ip), ".")
			l.add(above, subjectReverseTop, dns.TypePTR)
		}
	}
	l.add("seamark-none."+name, subjectNeighbour, dns.TypeA)
	l.add("_seamark-none._tcp."+name, subjectNeighbour, dns.TypeSRV)
	// A client whose resolver has the usual search path queries these names, too.
	l.add(name+ns+".svc."+z, subjectSearch, dns.TypeA)
	l.add(name+"svc."+z, subjectSearch, dns.TypeA)
	l.add(svc+"."+ns+"."+z, subjectSearch, dns.TypeA)
}

func (l *lister) port(p cluster.Port, service string) {
	protocol := label("_" + p.Protocol)
	l.add(protocol+"."+service, subjectProtocol, dns.TypeA)
	if p.Name == "" {
		return
	}
	l.add(label("_"+p.Name)+"."+protocol+"."+service, subjectPort, dns.TypeSRV, dns.TypeA)
	if l.services <= allTypes {
		l.add(label(p.Name)+"."+label(p.Protocol)+"."+service, subjectPlainPort, dns.TypeSRV)
	}
}

func (l *lister) slice(kind cluster.Kind, s *cluster.Slice) {
	z := l.zone(kind)
	name := label(s.Service) + "." + label(s.Namespace) + ".svc." + z
	if s.Cluster != "" {
		name = dotted(s.Cluster) + name
	}

	first := true

	for ep := range s.Endpoints.All() {
		host := ep.Hostname
		switch {
		case host != "":
		case l.kubeDNS:
			host = index.HashLabel(ep.Addr)
		default:
			host = dashed(ep.Addr)
		}

		types := []uint16{addressType(ep.Addr)}
		if first {
			types = []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT}
			l.add(l.podName(ep.Addr, s.Namespace), subjectPod, addressType(ep.Addr))
			if l.services <= allTypes {
				l.add("x."+l.podName(ep.Addr, s.Namespace), subjectBelowPod, addressType(ep.Addr))
			}
			if len(s.Ports) > 0 && s.Ports[0].Name != "" && kind == cluster.Slices {
				l.port(s.Ports[0], name)
			}
			first = false
		}

		subject := subjectEndpoint
		if !ep.Ready {
			subject = subjectNotReady
		}
		l.add(label(host)+"."+name, subject, types...)
		l.add(reverseName(ep.Addr), subjectReverseEP, dns.TypePTR)
	}

	for host := range s.Endpoints.Names() {
		l.add(label(dashedName(host))+"."+name, subjectNamed, dns.TypeA)
	}
}

func (l *lister) podName(ip netip.Addr, namespace string) string {
	return dashed(ip) + "." + label(namespace) + ".pod." + l.zones[0]
}

func addressType(ip netip.Addr) uint16 {
	if ip.Is4() {
		return dns.TypeA
	}
	return dns.TypeAAAA
}

// dashed returns 10.0.0.1 as 10-0-0-1 and fd00::1 as fd00--1.
func dashed(ip netip.Addr) string {
	text := strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
	if strings.HasSuffix(text, "-") {
		text += "0" // a label may not end in a dash
	}
	return text
}

// dashedName returns the label of an endpoint that has a name in place of an address.
func dashedName(host string) string { return strings.ReplaceAll(host, ".", "-") }

// reverseName returns the name of the PTR records of an address.
func reverseName(ip netip.Addr) string {
	name, err := dns.ReverseAddr(ip.String())
	if err != nil {
		return ""
	}
	return name
}

// label returns a label of a name in presentation form: with escapes for all bytes that a
// host name cannot have.
func label(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "\\%03d", c)
		}
	}
	return b.String()
}

// dotted returns the labels of a cluster's ID, each followed by a dot.
func dotted(id string) string {
	labels := strings.Split(id, ".")
	for i := range labels {
		labels[i] = label(labels[i]) + "."
	}
	return strings.Join(slices.DeleteFunc(labels, func(l string) bool { return l == "." }), "")
}
