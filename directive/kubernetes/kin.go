package kubernetes

import (
	"slices"

	"github.com/seamark/seamark/cluster"
)

// A kin is what the endpoints of a slice have in common. A cluster has few of
// them: slices, and Services for their own ports, share those that are equal.
type kin struct {
	cluster string // id of the cluster they are in; "" for our own
	ports   []cluster.Port
	dotted  bool   // the id can stand in a name, or there is none
	hash    uint32 // of the above
}

func (k *kin) equal(o *kin) bool {
	return k == o || k.cluster == o.cluster && slices.Equal(k.ports, o.ports)
}

// kins are those that are in use, and some that were. The zero value is empty.
type kins struct {
	known map[string]*kin // by all that is in one
	buf   []byte          // of a key
	after int             // how many there were when those without use were dropped
}

// get gives the one with this content. What is given is kept by whoever asks;
// ports are copied.
func (ks *kins) get(id string, ports []cluster.Port) *kin {
	buf := append(append(ks.buf[:0], id...), 0)
	for _, p := range ports {
		buf = append(append(append(append(buf, p.Name...), '/'), p.Protocol...), '/', byte(p.Port>>8), byte(p.Port))
	}
	ks.buf = buf[:0]
	if k := ks.known[string(buf)]; k != nil {
		return k
	}
	k := &kin{cluster: id, ports: slices.Clone(ports), dotted: id == "" || isDotted(id), hash: fnv(fnvBasis, string(buf))}
	if ks.known == nil {
		ks.known = map[string]*kin{}
	}
	ks.known[string(buf)] = k
	return k
}

// crowded says whether it is time to drop those without use.
func (ks *kins) crowded() bool { return len(ks.known) > 2*ks.after+64 }

// keep drops all but those that are used.
func (ks *kins) keep(used map[*kin]struct{}) {
	next := make(map[string]*kin, len(used))
	for key, k := range ks.known {
		if _, ok := used[k]; ok {
			next[key] = k
		}
	}
	ks.known, ks.after = next, len(next)
}

// sweep drops the kins that no entry has.
func (ix *Index) sweep() {
	if !ix.kins.crowded() {
		return
	}
	used := map[*kin]struct{}{}
	for _, imported := range [2]bool{false, true} {
		for _, e := range ix.table(imported).All() {
			for _, k := range e.kins() {
				used[k] = struct{}{}
			}
		}
	}
	ix.kins.keep(used)
}

// FNV-1a (RFC 9923), 32 bits.
const (
	fnvBasis = 2166136261
	fnvPrime = 16777619
)

func fnv[S string | []byte](h uint32, s S) uint32 {
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * fnvPrime
	}
	return h
}

// mix spreads a hash's bits over all of it. The serial is a sum of hashes, and
// without this two that swap their last bytes would often add up to the same.
func mix(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}
