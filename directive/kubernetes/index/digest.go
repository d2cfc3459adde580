package index

import (
	"github.com/seamark/seamark/cluster"
)

// headHash returns a hash of everything that answers depend on besides the endpoints.
// Replicas with equal objects have equal hashes.
func (e *Entry) headHash() uint32 {
	h := fnv(fnvBasis, e.Key.Labels)
	if e.Ports != nil {
		h = (h ^ e.Ports.hash) * fnvPrime
	}
	if e.Headless {
		h *= fnvPrime // distinguishes it from a Service without addresses
	} else {
		h = fnv(h, e.Records)
	}

	sum := mix(h)
	if e.k8sExternal != nil {
		sum += mix(fnv(h*fnvPrime, e.k8sExternal.Records))
	}
	return sum
}

// endpointsHash returns the sum of the endpoints' hashes, which their order does not
// change.
func (e *Entry) endpointsHash() (sum uint32) {
	h := fnv(fnvBasis, e.Key.Labels)
	for ports, ep := range e.Served() {
		sum += hashEndpoint(h, ports, ep)
	}
	if a := e.Alias(); a != nil {
		sum += a.hash(h)
	}
	return sum
}

// hashDifference returns the difference of two endpointsHash, from the endpoints that differ.
func (e *Entry) hashDifference(d *endpointDiff) (sum uint32) {
	h := fnv(fnvBasis, e.Key.Labels)
	for i := range d.removed {
		if ref := &d.removed[i]; e.IsServed(&ref.ep) {
			sum -= hashEndpoint(h, ref.ports, &ref.ep)
		}
	}
	for i := range d.added {
		if ref := &d.added[i]; e.IsServed(&ref.ep) {
			sum += hashEndpoint(h, ref.ports, &ref.ep)
		}
	}
	return sum
}

// hashEndpoint returns the hash of an endpoint. h is the hash of the Service's key.
func hashEndpoint(h uint32, ports *PortSet, ep *cluster.Endpoint) uint32 {
	h = (h ^ ports.hash) * fnvPrime
	if ep.Addr.Is4() {
		b := ep.Addr.As4()
		h = fnv(h, b[:])
	} else {
		b := ep.Addr.As16()
		h = fnv(h, b[:])
	}

	if ep.Target { // it decides PTR records
		h = (h ^ 1) * fnvPrime
	}
	h = fnv(h, ep.Hostname)
	h = fnv(h*fnvPrime, ep.Zone)
	return mix(h)
}

func fnv[S string | []byte](h uint32, s S) uint32 {
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * fnvPrime
	}
	return h
}

// mix distributes the bits of a hash over all its bits. The serial is a sum of hashes,
// and without mix the sum would often stay the same when two objects swap their last
// bytes.
func mix(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}
