package kube

import (
	"hash/fnv"
	"net/netip"

	"github.com/seamark/seamark/cluster"
)

// podKey is how `pods verified` finds a pod: the namespace's label and the
// address.
func podKey(buf []byte, ns []byte, ip netip.Addr) []byte {
	addr := ip.As16()
	return append(append(buf, ns...), addr[:]...)
}

func (ix *Index) putPod(p *cluster.Pod) {
	if label(p.Namespace) == "" {
		return
	}
	ix.podsBy[p.Key()] = p
	for _, ip := range p.IPs {
		ix.countPod(p, ip, 1)
	}
}

func (ix *Index) deletePod(key cluster.Key) {
	p := ix.podsBy[key]
	if p == nil {
		return
	}
	delete(ix.podsBy, key)
	for _, ip := range p.IPs {
		ix.countPod(p, ip, -1)
	}
}

// countPod keeps how many pods of a namespace have an address: those in the
// host's network share it.
func (ix *Index) countPod(p *cluster.Pod, ip netip.Addr, by int) {
	key := podKey(nil, []byte(label(p.Namespace)), ip)
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
		h := fnv.New32a()
		h.Write(key)
		if n > 0 {
			ix.serial.Add(h.Sum32())
		} else {
			ix.serial.Add(-h.Sum32())
		}
	}
}
