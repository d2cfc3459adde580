package kubernetes

import (
	"net/netip"

	"github.com/seamark/seamark/cluster"
)

// podKey is how `pods verified` finds a pod: the namespace's label and the
// address.
func podKey(buf []byte, ns []byte, ip netip.Addr) []byte {
	addr := ip.As16()
	return append(append(buf, ns...), addr[:]...)
}

// putPod counts the pod before it forgets what it was before: an address that
// it has kept is never away.
func (ix *Index) putPod(p *cluster.Pod) {
	s := ix.namespace(p.Namespace)
	if s == nil {
		return
	}
	before := ix.podObjects[p.Key()]
	ix.podObjects[p.Key()] = p
	ix.replacePodAddrs(before, p)
	for _, ip := range p.IPs {
		ix.addPodAddr(s, ip, 1)
	}
	ix.removePodAddrs(before)
	ix.removeIfEmpty(s) // there may be no address in it
}

func (ix *Index) deletePod(key cluster.Key) {
	before := ix.podObjects[key]
	delete(ix.podObjects, key)
	ix.removePod(before)
}

// dropPod takes a pod away that is in podsBy no more; p may be nil.
func (ix *Index) removePod(p *cluster.Pod) {
	ix.replacePodAddrs(p, nil)
	ix.removePodAddrs(p)
}

// forgetPod takes back what putPod has counted; p may be nil.
func (ix *Index) removePodAddrs(p *cluster.Pod) {
	if p == nil {
		return
	}
	s := ix.namespace(p.Namespace)
	for _, ip := range p.IPs {
		ix.addPodAddr(s, ip, -1)
	}
	ix.removeIfEmpty(s)
}

// countPod keeps how many pods of a namespace have an address: those in the
// host's network share it.
func (ix *Index) addPodAddr(s *namespace, ip netip.Addr, by int) {
	key := podKey(nil, []byte(label(s.name)), ip)
	before, n := 0, by
	if ref := ix.pods.Get(key); ref != nil {
		before = ref.pods
		n += before
	}
	if n > 0 {
		ix.pods.Set(string(key), &podCount{n})
	} else {
		ix.pods.Delete(string(key))
	}
	if (before > 0) != (n > 0) {
		worth := mix(fnv(fnvBasis, key))
		s.objects += by
		if by < 0 {
			worth = -worth
		}
		ix.addHash(s, false, worth)
	}
}
