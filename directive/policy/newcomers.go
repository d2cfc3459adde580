package policy

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

const (
	// appearance is how long a query waits for the pod with its address. A kubelet writes the address
	// into the status of the pod after its containers have started, within a second or two.
	appearance = 2 * time.Second
	// lookAgain is the time between two looks for the pod.
	lookAgain = 50 * time.Millisecond
	// forgotten is how long an address is remembered as no pod's. Another pod may get it then.
	forgotten = time.Minute
	// rememberedClients is the number of addresses that are remembered.
	rememberedClients = 1024
)

// newcomers remember since when clients have been unknown, so that queries of a machine that is no pod
// wait once a minute, and not each. Two addresses with the same place forget each other.
type newcomers struct {
	mu    *sync.Mutex
	seed  maphash.Seed
	first *[rememberedClients]newcomer
}

// A newcomer is a client that was first seen at a time.
type newcomer struct {
	ip netip.Addr
	at time.Time
}

func newNewcomers() newcomers {
	return newcomers{new(sync.Mutex), maphash.MakeSeed(), new([rememberedClients]newcomer)}
}

// mayAppear reports whether a client that is not known as a pod may become known soon.
func (n newcomers) mayAppear(ip netip.Addr, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.place(ip)
	if c.ip != ip || now.Sub(c.at) > forgotten {
		*c = newcomer{ip, now}
	}
	return now.Sub(c.at) < appearance
}

// forget forgets a client that has become known.
func (n newcomers) forget(ip netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.place(ip); c.ip == ip {
		*c = newcomer{}
	}
}

// place returns the place of an address.
func (n newcomers) place(ip netip.Addr) *newcomer {
	return &n.first[maphash.Comparable(n.seed, ip)%rememberedClients]
}
