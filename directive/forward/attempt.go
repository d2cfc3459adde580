package forward

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An attempt is one request sent to one upstream. It ends once, with an
// outcome; whoever takes it out of its table ends it.
type attempt struct {
	request *request
	packet  []byte // its first two bytes are the id
	edns    bool
	bare    bool // without EDNS, because the same upstream did not like it
	stream  bool // over a connection, and not by datagram
	fresh   bool // not by the socket, or connection, of the attempt before
	probe   bool // not for a client: to see whether the upstream lives
	reused  bool // over a connection that others have used
	resent  int  // on how many further connections
	nudged  bool
	to      *upstream
	sent    time.Time
	local   net.Addr     // where it was sent from; nil over a connection
	over    *atomic.Bool // the question has been answered; the outcome is for statistics
	ended   chan<- *outcome
}

// An outcome is how an attempt ended: with a reply or an error. A nudge is no
// end: the upstream has said something that is no answer, and it is time to
// ask another.
type outcome struct {
	*attempt
	reply *reply
	err   error
	nudge bool
}

// A table is the attempts that wait on one socket or connection, by id.
type table struct {
	mu      sync.Mutex
	waiting map[uint16]*attempt
	used    [1 << 10]uint64 // a bit for each id that has ever been in here
	closed  bool
}

// mostWaiting leaves most ids free, so that one is found at once and a guess of
// another's is still a guess.
const mostWaiting = 4096

// add gives a an id that nobody can foresee. It says false if there is no room,
// or the table is closed.
func (t *table) add(a *attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.waiting) >= mostWaiting {
		return false
	}
	if t.waiting == nil {
		t.waiting = map[uint16]*attempt{}
	}
	for {
		_, _ = rand.Read(a.packet[:2]) // it never fails
		id := binary.BigEndian.Uint16(a.packet)
		if _, taken := t.waiting[id]; !taken {
			a.sent = time.Now()
			t.waiting[id] = a
			t.used[id>>6] |= 1 << (id & 63)
			return true
		}
	}
}

// find gives the attempt with that id; nil if there is none. used says that
// there was one.
func (t *table) find(id uint16) (a *attempt, used bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[id], t.used[id>>6]&(1<<(id&63)) != 0
}

// take takes a out. It says false if somebody has done so.
func (t *table) take(a *attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := binary.BigEndian.Uint16(a.packet)
	if t.waiting[id] != a {
		return false
	}
	delete(t.waiting, id)
	return true
}

// expire takes out what was sent before then.
func (t *table) expire(before time.Time) (old []*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, a := range t.waiting {
		if a.sent.Before(before) {
			delete(t.waiting, id)
			old = append(old, a)
		}
	}
	return old
}

// close takes everything out, and nothing more comes in.
func (t *table) close() []*attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	all := slices.Collect(maps.Values(t.waiting))
	t.waiting = nil
	return all
}

// load is how many wait.
func (t *table) load() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// timedOut is the error of an attempt that has waited in vain.
func (a *attempt) timedOut() error {
	network := "udp"
	if a.stream {
		network = "tcp"
	}
	if !a.to.addr.IsValid() {
		return timedOut(network, nil, nil)
	}
	return timedOut(network, a.local, net.UDPAddrFromAddrPort(a.to.addr))
}
