package manifests

import (
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/order"
)

// allocate returns an address of 10.96.0.0/16 that is not in taken for each key. Each
// key tries the addresses in an order given by its hash; of two keys that want one
// address the lower one gets it. So a new Service changes the addresses of few others.
func allocate(keys []cluster.Key, taken map[netip.Addr]bool) map[cluster.Key]netip.Addr {
	used := maps.Clone(taken)
	if used == nil {
		used = map[netip.Addr]bool{}
	}
	for _, last := range [][2]byte{{0, 0}, {0, 1}, {0, 10}, {255, 255}} { // network, API server, DNS, broadcast
		used[netip.AddrFrom4([4]byte{10, 96, last[0], last[1]})] = true
	}

	given := make(map[cluster.Key]netip.Addr, len(keys))
	for _, key := range order.Sorted(slices.Values(keys), cluster.Key.Compare) {
		h := fnv.New64a()
		h.Write([]byte(key.String()))
		sum := h.Sum64()
		at, step := uint16(sum), uint16(sum>>16)|1 // an odd step reaches every address
		for range 1 << 16 {
			addr := netip.AddrFrom4([4]byte{10, 96, byte(at >> 8), byte(at)})
			if !used[addr] {
				used[addr] = true
				given[key] = addr
				break
			}
			at += step
		}
	}
	return given
}
