package cache

import "github.com/seamark/seamark/dns"

// A pending is a query that waits for a handler below the Cache, and on which
// equal queries wait. The query that created it leads: it is passed down, and
// ends the pending with its answer.
type pending struct {
	proto dns.Proto
	done  chan struct{} // closed at the end
	// The outcome, once done is closed. If neither is set, the leader failed
	// before it had an answer, and one of the waiting queries must lead.
	result *entry
	local  bool // the answer is this server's own: each waiting query is passed down
}

// startPending returns the pending query of k. If there was none, it creates one
// with a marker in the table, and the caller leads.
func (st *Store) startPending(s *scope, k *key, proto dns.Proto) (p *pending, marker *entry) {
	marker = &entry{scope: s, key: k.clone(), pending: &pending{proto: proto, done: make(chan struct{})}}
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
	p.result, p.local = result, local
	close(p.done)
}

// answers reports whether the result answers a query over proto. An answer that
// was truncated for UDP may be complete over TCP.
func (p *pending) answers(proto dns.Proto) bool {
	return p.result != nil && (!p.result.tc || p.proto == proto)
}
