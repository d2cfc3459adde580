package stubzones

import (
	"strings"
	"sync"

	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/wire"
)

// A pool has the upstreams that are open. It outlives a reload that does not change the options of
// upstreams: the zones of the new plan use those of the old one, with their connections and health.
type pool struct {
	forward func(to []string) *forward.Upstreams

	mu  sync.Mutex
	all map[string]*upstreams // by zone and targets
}

// Upstreams are those of one zone, which are open as long as they have users.
type upstreams struct {
	*forward.Upstreams
	key   string
	open  sync.Once
	users int // with the lock of the pool
}

func newPool(open func(to []string) *forward.Upstreams) *pool {
	return &pool{forward: open, all: map[string]*upstreams{}}
}

// acquire returns the upstreams of a zone with these targets, for one more user. It blocks until they are
// open, and other zones do not wait for that.
func (p *pool) acquire(name wire.Name, targets string) *upstreams {
	key := string(name) + targets
	p.mu.Lock()
	u := p.all[key]
	if u == nil {
		u = &upstreams{key: key}
		p.all[key] = u
	}
	u.users++
	p.mu.Unlock()

	u.open.Do(func() { u.Upstreams = p.forward(strings.Fields(targets)) })
	return u
}

// release ends one use of upstreams, and closes them after the last. u may be nil.
func (p *pool) release(u *upstreams) {
	if u == nil {
		return
	}
	p.mu.Lock()
	u.users--
	last := u.users == 0
	if last {
		delete(p.all, u.key)
	}
	p.mu.Unlock()
	if last {
		u.Stop()
	}
}

// Stop does nothing: the zones release what they use.
func (*pool) Stop() {}
