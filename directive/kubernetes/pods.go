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
	s := ix.space(p.Namespace)
	if s == nil {
		return
	}
	before := ix.podsBy[p.Key()]
	ix.podsBy[p.Key()] = p
	ix.moveClient(before, p)
	for _, ip := range p.IPs {
		ix.countPod(s, ip, 1)
	}
	ix.forgetPod(before)
	ix.release(s) // there may be no address in it
}

func (ix *Index) deletePod(key cluster.Key) {
	before := ix.podsBy[key]
	delete(ix.podsBy, key)
	ix.dropPod(before)
}

// dropPod takes a pod away that is in podsBy no more; p may be nil.
func (ix *Index) dropPod(p *cluster.Pod) {
	ix.moveClient(p, nil)
	ix.forgetPod(p)
}

// forgetPod takes back what putPod has counted; p may be nil.
func (ix *Index) forgetPod(p *cluster.Pod) {
	if p == nil {
		return
	}
	s := ix.space(p.Namespace)
	for _, ip := range p.IPs {
		ix.countPod(s, ip, -1)
	}
	ix.release(s)
}

// countPod keeps how many pods of a namespace have an address: those in the
// host's network share it.
func (ix *Index) countPod(s *space, ip netip.Addr, by int) {
	key := podKey(nil, []byte(label(s.name)), ip)
	before, n := 0, by
	if ref := ix.pods.Get(key); ref != nil {
		before = ref.n
		n += before
	}
	if n > 0 {
		ix.pods.Set(string(key), &podRef{n})
	} else {
		ix.pods.Delete(string(key))
	}
	if (before > 0) != (n > 0) {
		worth := mix(fnv(fnvBasis, key))
		s.used += by
		if by < 0 {
			worth = -worth
		}
		ix.weigh(s, false, worth)
	}
}
