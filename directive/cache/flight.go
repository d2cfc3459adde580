package cache

import (
	"time"

	"github.com/seamark/seamark/dns"
)

// A flight is an answer under way: whoever asks for it leads, the others wait
// until it is over.
type flight struct {
	proto dns.Proto
	done  chan struct{}
	// Once it is over: what came, if the others may have the same; or that
	// each may ask for itself, all at once. Neither is that the leader came to
	// no end, so that one of the others must lead.
	result *entry
	alone  bool
}

// lead begins a flight for k unless there is one. It stands in the table like
// an answer, so that whoever looks for one finds it.
func (st *Store) lead(s *scope, k *key, proto dns.Proto) (f *flight, marker *entry) {
	marker = &entry{scope: s, key: k.clone(), flight: &flight{proto: proto, done: make(chan struct{})}}
	st.mu.Lock()
	defer st.mu.Unlock()
	if f := st.find(s, k).flight; f != nil {
		return f, nil
	}
	st.link(marker)
	return marker.flight, marker
}

// land ends a flight. What came of it is in the store by now.
func (st *Store) land(marker *entry, result *entry, alone bool) {
	st.mu.Lock()
	st.unlink(marker)
	st.mu.Unlock()
	f := marker.flight
	f.result, f.alone = result, alone
	close(f.done)
}

// shared says whether a query over proto may have what came.
func (f *flight) shared(proto dns.Proto) bool {
	// What was cut off for UDP is whole over TCP.
	return f.result != nil && (!f.result.tc || f.proto == proto)
}

func seconds(d time.Duration) uint32 { return uint32(max(d, 0) / time.Second) }
