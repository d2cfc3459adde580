// Package clustertest makes the objects of a cluster for tests: single objects from short
// texts, and a cluster of random objects that changes. It passes them to a sink as a source
// does. Only tests import it.
package clustertest

import (
	"fmt"
	hashes "hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
)

type importedService struct{ *cluster.Service }

// Import returns the Service as made from a ServiceImport, for Load.
func Import(s *cluster.Service) cluster.Object { return importedService{s} }

// An Index is a sink that has listed the kinds that are not watched.
type Index interface {
	cluster.Sink
	HaveListed(a, b cluster.Kind) bool
}

// Load puts objects into an index like the first lists of a source, and returns the index.
func Load[I Index](ix I, objects ...cluster.Object) I {
	var lists [cluster.Kinds][]cluster.Object
	for _, o := range objects {
		kind := cluster.Namespaces
		switch o := o.(type) {
		case *cluster.Service:
			kind = cluster.Services
		case *cluster.Slice:
			kind = cluster.Slices
			if o.Cluster != "" {
				kind = cluster.ImportSlices
			}
		case *cluster.Pod:
			kind = cluster.Pods
		case importedService:
			lists[cluster.Imports] = append(lists[cluster.Imports], o.Service)
			continue
		}

		lists[kind] = append(lists[kind], o)
	}

	for kind := range cluster.Kinds {
		if !ix.HaveListed(kind, kind) { // otherwise the kind is not watched
			List(ix, kind, lists[kind])
		}
	}
	return ix
}

// List sends a list as a source does: in groups, the last one smaller, and then its end.
func List(to cluster.Sink, kind cluster.Kind, list []cluster.Object) {
	listed := make(map[cluster.Key]bool, len(list))
	for group := range slices.Chunk(list, 7) {
		for _, o := range group {
			listed[o.Key()] = true
		}
		to.Put(kind, group...)
	}
	to.Listed(kind, func(key cluster.Key) bool { return listed[key] })
}

// Namespace returns a Namespace.
func Namespace(name string) *cluster.Namespace { return &cluster.Namespace{Name: name} }

// ClusterIP returns a Service; Ports parses ps.
func ClusterIP(ns, name, ps string, ips ...string) *cluster.Service {
	s := &cluster.Service{Namespace: ns, Name: name, Ports: Ports(ps)}
	for _, ip := range ips {
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(ip))
	}
	return s
}

// Headless returns a headless Service.
func Headless(ns, name string) *cluster.Service {
	return &cluster.Service{Namespace: ns, Name: name, Headless: true}
}

// Pod returns a Pod; host reports whether it is in the network of its node.
func Pod(ns, name string, host bool, ips ...string) *cluster.Pod {
	p := &cluster.Pod{Namespace: ns, Name: name, Host: host}
	for _, ip := range ips {
		p.IPs = append(p.IPs, netip.MustParseAddr(ip))
	}
	return p
}

// ExternalName returns a Service that is an alias of target.
func ExternalName(ns, name, target string) *cluster.Service {
	return &cluster.Service{Namespace: ns, Name: name, ExternalName: target}
}

// Ports parses "http 80/tcp, 9090/tcp".
func Ports(text string) (ps []cluster.Port) {
	for field := range strings.SplitSeq(text, ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		var p cluster.Port
		format, into := "%d/%s", []any{&p.Port, &p.Protocol}
		if strings.Contains(field, " ") {
			format, into = "%s "+format, append([]any{&p.Name}, into...)
		}
		if _, err := fmt.Sscanf(field, format, into...); err != nil {
			panic(field + ": " + err.Error())
		}
		ps = append(ps, p)
	}
	return ps
}

// Slice returns an EndpointSlice. Endpoints are written as "10.0.0.1", "db-0=10.0.0.1",
// "10.0.0.1@zone-a", and with a leading "!" if they are not ready.
func Slice(ns, name, service, ps string, endpoints ...string) *cluster.Slice {
	var buf []byte
	for _, text := range endpoints {
		e := cluster.Endpoint{Ready: true}
		if rest, ok := strings.CutPrefix(text, "!"); ok {
			e.Ready, text = false, rest
		}
		if host, rest, ok := strings.Cut(text, "="); ok {
			e.Hostname, text = host, rest
		}
		text, e.Zone, _ = strings.Cut(text, "@")
		e.Addr = netip.MustParseAddr(text)
		buf = cluster.AppendEndpoint(buf, e)
	}
	return &cluster.Slice{Namespace: ns, Name: name, Service: service, Ports: Ports(ps),
		Endpoints: cluster.Endpoints(buf)}
}

// InCluster returns the slice as imported from another cluster.
func InCluster(id string, s *cluster.Slice) *cluster.Slice {
	s.Cluster = id
	return s
}

// WithTargets returns sl with the flag Target set in each endpoint.
func WithTargets(sl *cluster.Slice) *cluster.Slice {
	var packed []byte
	for ep := range sl.Endpoints.All() {
		ep.Target = true
		packed = cluster.AppendEndpoint(packed, ep)
	}
	out := *sl
	out.Endpoints = cluster.Endpoints(packed)
	return &out
}

// Packed packs n endpoints, made by f.
func Packed(n int, f func(i int) cluster.Endpoint) cluster.Endpoints {
	var buf []byte
	for i := range n {
		buf = cluster.AppendEndpoint(buf, f(i))
	}
	return cluster.Endpoints(buf)
}

// Addr4 returns address i of 10.0.0.0/8.
func Addr4(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// ManyPorts returns n TCP ports, named after the prefix.
func ManyPorts(prefix string, n int) (ports []cluster.Port) {
	for i := range n {
		ports = append(ports, cluster.Port{Name: fmt.Sprintf("%s%d", prefix, i), Protocol: "tcp", Port: uint16(1 + i)})
	}
	return ports
}

// RandomAddr returns any address, many with several zeros in a row if it is an IPv6 address.
func RandomAddr(r *rand.Rand) netip.Addr {
	if r.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
	}
	var b [16]byte
	for i := range b {
		if r.IntN(3) == 0 { // runs of zeros, for "::"
			b[i] = byte(r.Uint32())
		}
	}
	return netip.AddrFrom16(b).Unmap()
}

// A message is SkyDNS's message, whose text kube-dns hashes.
type message struct {
	Host                   string
	Port, Priority, Weight int
	Text                   string
	Mail                   bool
	TTL                    uint32
	TargetStrip            int
	Group, Key             string
}

// HashLabel returns kube-dns's label of an address: the hash of the printed message.
func HashLabel(ip netip.Addr) string {
	h := hashes.New32a()
	fmt.Fprintf(h, "%v", &message{Host: ip.String(), Priority: 10, Weight: 10, TTL: 30})
	return fmt.Sprintf("%x", fmt.Sprintf("%x", h.Sum32()))
}
