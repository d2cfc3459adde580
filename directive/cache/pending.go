package cache

import (
	"sync"

	"github.com/seamark/seamark/dns"
)

// A pending is a query that waits for a handler below the Cache, and for which
// equal queries wait. The query that created it leads: it is passed down, and ends
// the pending with its answer.
type pending struct {
	key
	scope       *scope
	next        *pending // another one with the same hash; guarded by the store's lock
	proto       dns.Proto
	optionsFrom int // where the reply options of the handlers below begin in the query that leads

	mu      sync.Mutex
	waiting []func() // called at the end
	ended   bool

	// The outcome, once it has ended. If neither is set, the leader failed before
	// it had an answer, and one of the waiting queries must lead.
	result *result
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

// startPending returns the pending query of k. If there was none, it creates one, and
// the caller leads.
func (st *Store) startPending(s *scope, k *key, proto dns.Proto) (p *pending, leads bool) {
	st.mu.Lock()
	defer st.mu.Unlock()

	first := st.pending[k.hash]
	for p := first; p != nil; p = p.next {
		if p.scope == s && p.key.equal(k) {
			return p, false
		}
	}

	p = &pending{scope: s, key: k.clone(), next: first, proto: proto}
	st.pending[k.hash] = p
	return p, true
}

// finishPending ends a pending query. Its answer is in the store already, if it
// is stored at all.
func (st *Store) finishPending(p *pending, result *result, local bool) {
	st.removePending(p)

	p.mu.Lock()
	p.result, p.local, p.ended = result, local, true
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()

	for _, wake := range waiting {
		wake()
	}
}

func (st *Store) removePending(p *pending) {
	st.mu.Lock()
	defer st.mu.Unlock()

	first := st.pending[p.hash]
	at := &first
	for *at != p {
		at = &(*at).next
	}
	if *at = p.next; first != nil {
		st.pending[p.hash] = first
	} else {
		delete(st.pending, p.hash)
	}
}

// answers reports whether the result answers a query over proto. An answer that
// was truncated for UDP may be complete over TCP.
func (p *pending) answers(proto dns.Proto) bool {
	return p.result != nil && (!p.result.tc || p.proto == proto)
}
