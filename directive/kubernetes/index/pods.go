package index

import (
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
)

// PodKey appends the key under which the index has a pod's address: the label of its
// namespace and the address.
func PodKey[S string | []byte](buf []byte, ns S, ip netip.Addr) []byte {
	addr := ip.As16()
	return append(append(buf, ns...), addr[:]...)
}

// putPod adds the new version of a pod before it removes the old one, so that an address
// of both never disappears.
func (ix *Index) putPod(p *cluster.Pod) {
	ns := ix.ensureNamespace(p.Namespace)
	if ns == nil {
		return
	}
	before := ix.podObjects[p.Key()]
	ix.podObjects[p.Key()] = p
	ix.objects[cluster.Pods].Store(int64(len(ix.podObjects)))

	if before == nil || before.Host != p.Host || !slices.Equal(before.IPs, p.IPs) ||
		!slices.Equal(before.Labels.Pairs(), p.Labels.Pairs()) {
		ix.podChanges.Add(1)
	}

	ix.replacePodAddrs(before, p)
	for _, ip := range p.IPs {
		ix.addPodAddr(ns, ip, 1)
	}
	ix.removePodAddrs(before)
	ix.removeIfEmpty(ns) // the pod may have no address
}

func (ix *Index) deletePod(key cluster.Key) {
	before := ix.podObjects[key]
	delete(ix.podObjects, key)
	ix.podChanges.Add(1)
	ix.objects[cluster.Pods].Store(int64(len(ix.podObjects)))
	ix.replacePodAddrs(before, nil)
	ix.removePodAddrs(before)
}

// removePodAddrs undoes putPod; p may be nil.
func (ix *Index) removePodAddrs(p *cluster.Pod) {
	if p == nil {
		return
	}
	ns := ix.ensureNamespace(p.Namespace)
	for _, ip := range p.IPs {
		ix.addPodAddr(ns, ip, -1)
	}
	ix.removeIfEmpty(ns)
}

// addPodAddr counts the pods of a namespace that have an address. Pods in the host's
// network share one.
func (ix *Index) addPodAddr(ns *Namespace, ip netip.Addr, by int) {
	key := PodKey(nil, Label(ns.Name), ip)
	before, n := 0, by
	if ref := ix.pods.Get(key); ref != nil {
		before = ref.pods
		n += before
	}

	name := string(key)
	ix.generations.Begin(name)
	if n > 0 {
		ix.pods.Set(name, &podCount{n})
	} else {
		ix.pods.Delete(name)
	}
	ix.generations.End(name)
	if (before > 0) == (n > 0) {
		return
	}

	for _, u := range ix.undos {
		u.addPod(key, before > 0)
	}
	worth := mix(fnv(fnvBasis, key))
	if by < 0 {
		worth = -worth
	}
	ns.objects += by
	ix.addHash(ns, false, worth)
}

// An addrPods is a list of the pods that have one address. It is immutable.
type addrPods struct {
	pod  *cluster.Pod
	next *addrPods
}

// PodAt returns the pod that has an address; nil if no pod or several have it, or if it
// is the node's address.
func (ix *Index) PodAt(ip netip.Addr) *cluster.Pod {
	key := ip.As16()
	if c := ix.clients.Get(key[:]); c != nil && c.next == nil && !c.pod.Host {
		return c.pod
	}
	return nil
}

// replacePodAddrs replaces a pod by its new version at all addresses of both. Either may
// be nil. An address that both have never disappears.
func (ix *Index) replacePodAddrs(before, now *cluster.Pod) {
	if !ix.settings.PodsByAddr {
		return
	}

	var at []netip.Addr
	for _, p := range []*cluster.Pod{before, now} {
		if p != nil {
			at = append(at, p.IPs...)
		}
	}

	// Readers may be in the old list of an address, so a new one replaces it.
	for _, ip := range Unique(at) {
		key := ip.As16()
		var next *addrPods
		for c := ix.clients.Get(key[:]); c != nil; c = c.next {
			if c.pod != before {
				next = &addrPods{c.pod, next}
			}
		}
		if now != nil && slices.Contains(now.IPs, ip) {
			next = &addrPods{now, next}
		}

		if next == nil {
			ix.clients.Delete(string(key[:]))
		} else {
			ix.clients.Set(string(key[:]), next)
		}
	}
}

// PodAddr returns the address of a PodKey.
func PodAddr(key string) netip.Addr {
	return netip.AddrFrom16([16]byte([]byte(key[1+key[0]:]))).Unmap()
}
