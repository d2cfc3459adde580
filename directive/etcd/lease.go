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

	"github.com/seamark/seamark/internal/clock"
)

const (
	// minRefresh and maxRefresh bound the time between two refreshes of a lease,
	// whose owner may have extended it.
	minRefresh = 2 * time.Second
	maxRefresh = time.Minute
	// refreshPause is the pause between two requests: each key may have a lease
	// of its own.
	refreshPause = 2 * time.Millisecond
	// refreshBatch is the number of leases to refresh before new ones go first
	// again.
	refreshBatch = 500
	// maxRefreshes is the number of concurrent requests for one query, and
	// maxLeases the number of leases remembered for later queries.
	maxRefreshes = 8
	maxLeases    = 100000
)

// A lease knows the remaining time of its keys, which share it.
type lease struct {
	ends atomic.Int64 // a clock.Now; 0 if not known yet
	next atomic.Int64 // the clock.Now of the next refresh; 0 before the first one
}

// leases are the leases of the keys. etcd deletes the keys of an expired lease,
// which the watch reports. So a lease is only needed for the TTL of records.
type leases struct {
	mu    sync.Mutex
	known map[clientv3.LeaseID]*lease
	added chan struct{} // signals new leases; nil while refresh does not run
	stop  context.CancelFunc
	done  chan struct{}
}

// get returns the lease with an id; nil for NoLease.
func (l *leases) get(id clientv3.LeaseID) *lease {
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
	case l.added <- struct{}{}:
	default: // already signaled, or refresh does not run
	}
	return made
}

// start refreshes leases until halt is called.
func (l *leases) start(ctx context.Context, c *clientv3.Client) {
	ctx, l.stop = context.WithCancel(ctx)
	l.done = make(chan struct{})
	added := make(chan struct{}, 1)
	l.mu.Lock()
	l.added = added
	l.mu.Unlock()
	go func() {
		defer close(l.done)
		l.refresh(ctx, c, added)
	}()
}

func (l *leases) halt() {
	l.stop()
	<-l.done
}

// refresh requests the remaining time of each lease: at once if it is new, and
// periodically after that.
func (l *leases) refresh(ctx context.Context, c *clientv3.Client, added <-chan struct{}) {
	tick := time.NewTicker(minRefresh)
	defer tick.Stop()
	for {
		due := l.due(clock.Now())
		for _, id := range due {
			l.refreshOne(ctx, c, id)
			select {
			case <-ctx.Done():
				return
			case <-time.After(refreshPause):
			}
		}
		if len(due) == refreshBatch {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-added:
		case <-tick.C:
		}
	}
}

// due returns up to refreshBatch leases to refresh: new ones, and those that have
// passed a third of their time.
func (l *leases) due(now time.Duration) []clientv3.LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due, fresh []clientv3.LeaseID
	for id, item := range l.known {
		switch next := item.next.Load(); {
		case next == 0:
			fresh = append(fresh, id)
		case now >= time.Duration(next):
			due = append(due, id)
		}
	}
	all := append(fresh, due...)
	return all[:min(len(all), refreshBatch)]
}

// refreshAll refreshes those of the leases that are due, for one query.
func (l *leases) refreshAll(ctx context.Context, c *clientv3.Client, ids []clientv3.LeaseID) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var refreshing sync.WaitGroup
	slots := make(chan struct{}, maxRefreshes)
	now := int64(clock.Now())
	for _, id := range ids[:min(len(ids), refreshBatch)] {
		if item := l.get(id); item == nil || item.next.Load() > now {
			continue
		}
		slots <- struct{}{}
		refreshing.Go(func() {
			l.refreshOne(ctx, c, id)
			<-slots
		})
	}
	refreshing.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) > maxLeases {
		clear(l.known)
	}
}

// refreshOne requests the remaining time of a lease.
func (l *leases) refreshOne(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	r, err := c.TimeToLive(ctx, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.known[id]
	switch {
	case item == nil:
	case errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && r.TTL < 0:
		delete(l.known, id) // its keys are deleted too
	case err != nil:
		item.next.Store(int64(clock.Now() + minRefresh))
	default:
		item.set(clock.Now(), time.Duration(r.TTL)*time.Second)
	}
}

// set records the remaining time.
func (item *lease) set(now, left time.Duration) {
	item.ends.Store(int64(now + left))
	item.next.Store(int64(now + min(max(left/3, minRefresh), maxRefresh)))
}
