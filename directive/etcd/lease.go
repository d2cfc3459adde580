package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// leaseLeast is the shortest time between two looks at a lease, and leaseMost
	// the longest: who holds one may have kept it alive.
	leaseLeast = 2 * time.Second
	leaseMost  = time.Minute
	// leasePace is the time between two questions about leases: there may be one
	// for each key.
	leasePace = 2 * time.Millisecond
	// leasesAtOnce is how many are looked at before new ones come first again.
	leasesAtOnce = 500
	// leasesAsked is how many are asked for at the same time for one question, and
	// leasesKept how many are remembered for the next ones.
	leasesAsked = 8
	leasesKept  = 100000
)

// A lease knows how long its keys are good for. It is shared by all of them.
type lease struct {
	ends atomic.Int64 // in Unix nanoseconds; 0 is not known yet
	next atomic.Int64 // when to look again, likewise; 0 while nobody has looked
}

// leases are those that keys hang on. A key that loses its lease is deleted by
// etcd, which the watch tells; so all that has to be known of a lease is how long
// its keys may be kept by others.
type leases struct {
	mu    sync.Mutex
	known map[clientv3.LeaseID]*lease
	fresh chan struct{} // there are some that nobody has looked at; nil while nobody looks
	stop  context.CancelFunc
	done  chan struct{}
}

// of gives the lease with an id; nil is none.
func (l *leases) of(id clientv3.LeaseID) *lease {
	if id == clientv3.NoLease {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.known[id]; found != nil {
		return found
	}
	if l.known == nil {
		l.known = map[clientv3.LeaseID]*lease{}
	}
	made := new(lease)
	l.known[id] = made
	select {
	case l.fresh <- struct{}{}:
	default: // it is known already, or nobody looks
	}
	return made
}

// begin looks at leases until end.
func (l *leases) begin(ctx context.Context, c *clientv3.Client) {
	ctx, l.stop = context.WithCancel(ctx)
	l.done = make(chan struct{})
	fresh := make(chan struct{}, 1)
	l.mu.Lock()
	l.fresh = fresh
	l.mu.Unlock()
	go func() {
		defer close(l.done)
		l.look(ctx, c, fresh)
	}()
}

func (l *leases) end() {
	l.stop()
	<-l.done
}

// look asks for each lease how long it goes on: at once when it is new, and again
// and again.
func (l *leases) look(ctx context.Context, c *clientv3.Client, fresh <-chan struct{}) {
	again := time.NewTicker(leaseLeast)
	defer again.Stop()
	for {
		due := l.due(time.Now())
		for _, id := range due {
			l.learn(ctx, c, id)
			select {
			case <-ctx.Done():
				return
			case <-time.After(leasePace):
			}
		}
		if len(due) == leasesAtOnce {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-fresh:
		case <-again.C:
		}
	}
}

// due lists those to look at, not all at once: the new ones, and of the others those
// of whose time a third has gone.
func (l *leases) due(now time.Time) []clientv3.LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due, fresh []clientv3.LeaseID
	for id, one := range l.known {
		switch next := one.next.Load(); {
		case next == 0:
			fresh = append(fresh, id)
		case now.UnixNano() >= next:
			due = append(due, id)
		}
	}
	all := append(fresh, due...)
	return all[:min(len(all), leasesAtOnce)]
}

// learnAll asks for those of the leases that are due, for a question that waits.
func (l *leases) learnAll(ctx context.Context, c *clientv3.Client, ids []clientv3.LeaseID) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var learning sync.WaitGroup
	places := make(chan struct{}, leasesAsked)
	now := time.Now().UnixNano()
	for _, id := range ids[:min(len(ids), leasesAtOnce)] {
		if one := l.of(id); one == nil || one.next.Load() > now {
			continue
		}
		places <- struct{}{}
		learning.Go(func() {
			l.learn(ctx, c, id)
			<-places
		})
	}
	learning.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) > leasesKept {
		clear(l.known)
	}
}

// learn asks for one.
func (l *leases) learn(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	r, err := c.TimeToLive(ctx, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.known[id]
	switch {
	case one == nil:
	case errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && r.TTL < 0:
		delete(l.known, id) // its keys have gone with it
	case err != nil:
		one.next.Store(time.Now().Add(leaseLeast).UnixNano())
	default:
		one.set(time.Now(), time.Duration(r.TTL)*time.Second)
	}
}

// set notes how long a lease goes on from now.
func (one *lease) set(now time.Time, left time.Duration) {
	one.ends.Store(now.Add(left).UnixNano())
	one.next.Store(now.Add(min(max(left/3, leaseLeast), leaseMost)).UnixNano())
}
