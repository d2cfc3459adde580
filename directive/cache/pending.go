package cache

import (
	"sync"

	"github.com/seamark/seamark/dns"
)

// A pending is a query that waits for a handler below the Cache, and on which
// equal queries wait. The query that created it leads: it is passed down, and
// ends the pending with its answer.
type pending struct {
	proto dns.Proto

	mu      sync.Mutex
	waiting []func() // called at the end
	ended   bool

	// The outcome, once it has ended. If neither is set, the leader failed before
	// it had an answer, and one of the waiting queries must lead.
	result *entry
	local  bool // the answer is this server's own: each waiting query is passed down
}

// await has wake called when p ends. It returns false if p has ended.
func (p *pending) await(wake func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.waiting = append(p.waiting, wake)
	}
	return !p.ended
}

func (p *pending) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// startPending returns the pending query of k. If there was none, it creates one
// with a marker in the table, and the caller leads.
func (st *Store) startPending(s *scope, k *key, proto dns.Proto) (p *pending, marker *entry) {
	marker = &entry{scope: s, key: k.clone(), pending: &pending{proto: proto}}
	st.mu.Lock()
	defer st.mu.Unlock()
	if p := st.find(s, k).pending; p != nil {
		return p, nil
	}
	st.link(marker)
	return marker.pending, marker
}

// finishPending ends a pending query. Its answer is in the store already, if it
// is stored at all.
func (st *Store) finishPending(marker *entry, result *entry, local bool) {
	st.mu.Lock()
	st.unlink(marker)
	st.mu.Unlock()
	p := marker.pending
	p.mu.Lock()
	p.result, p.local, p.ended = result, local, true
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for _, wake := range waiting {
		wake()
	}
}

// answers reports whether the result answers a query over proto. An answer that
// was truncated for UDP may be complete over TCP.
func (p *pending) answers(proto dns.Proto) bool {
	return p.result != nil && (!p.result.tc || p.proto == proto)
}
