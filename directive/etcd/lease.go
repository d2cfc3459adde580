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

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
)

const (
	// minRefresh and maxRefresh bound the time between two requests for the
	// remaining time of a lease, which its owner may extend.
	minRefresh = 2 * time.Second
	maxRefresh = time.Minute
	// refreshPause is the pause between two requests, since each key may have a
	// lease of its own.
	refreshPause = 2 * time.Millisecond
	// refreshBatch is the number of leases to refresh before new ones take
	// precedence again.
	refreshBatch = 500
	// maxRefreshes is the largest number of concurrent requests for one query, and
	// maxLeases the largest number of leases kept for later queries.
	maxRefreshes = 8
	maxLeases    = 100000
)

// A lease is the lease of one or more keys.
type lease struct {
	expiry      atomic.Int64 // a clock.Now; 0 if unknown
	nextRefresh atomic.Int64 // the clock.Now of the next refresh; 0 before the first one
}

// leases are the leases of the keys. They only limit the TTLs of records: when a
// lease expires, etcd deletes its keys, and the watch reports the deletions.
type leases struct {
	mu    sync.Mutex
	known map[clientv3.LeaseID]*lease
	added follow.Signal // of new leases; nil while refresh is not running
}

// get returns the lease with an id; nil for NoLease.
func (ls *leases) get(id clientv3.LeaseID) *lease {
	if id == clientv3.NoLease {
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if found := ls.known[id]; found != nil {
		return found
	}
	if ls.known == nil {
		ls.known = map[clientv3.LeaseID]*lease{}
	}
	created := new(lease)
	ls.known[id] = created
	ls.added.Send()
	return created
}

// start refreshes leases until halt is called, which waits for the end.
func (ls *leases) start(ctx context.Context, c *clientv3.Client) (halt func()) {
	added := follow.NewSignal()
	ls.mu.Lock()
	ls.added = added
	ls.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { ls.refresh(ctx, c, added) })
	return func() {
		cancel()
		running.Wait()
	}
}

// refresh requests the remaining time of each lease: at once if it is new, and
// periodically after that.
func (ls *leases) refresh(ctx context.Context, c *clientv3.Client, added follow.Signal) {
	tick := time.NewTicker(minRefresh)
	defer tick.Stop()
	for {
		due := ls.due(clock.Now())
		for _, id := range due {
			ls.refreshOne(ctx, c, id)
			if !clock.Sleep(ctx, refreshPause) {
				return
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

// due returns up to refreshBatch leases to refresh: new ones first, then leases
// whose nextRefresh has passed.
func (ls *leases) due(now time.Duration) []clientv3.LeaseID {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var due, fresh []clientv3.LeaseID
	for id, l := range ls.known {
		switch next := l.nextRefresh.Load(); {
		case next == 0:
			fresh = append(fresh, id)
		case now >= time.Duration(next):
			due = append(due, id)
		}
	}
	ids := append(fresh, due...)
	return ids[:min(len(ids), refreshBatch)]
}

// refreshAll refreshes the leases of ids that are due, for one query.
func (ls *leases) refreshAll(ctx context.Context, c *clientv3.Client, ids []clientv3.LeaseID) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var refreshing sync.WaitGroup
	slots := make(chan struct{}, maxRefreshes)
	now := int64(clock.Now())
	for _, id := range ids[:min(len(ids), refreshBatch)] {
		if l := ls.get(id); l == nil || l.nextRefresh.Load() > now {
			continue
		}
		slots <- struct{}{}
		refreshing.Go(func() {
			ls.refreshOne(ctx, c, id)
			<-slots
		})
	}
	refreshing.Wait()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.known) > maxLeases {
		clear(ls.known)
	}
}

// refreshOne requests the remaining time of a lease.
func (ls *leases) refreshOne(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := c.TimeToLive(ctx, id)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.known[id]
	switch {
	case l == nil:
	case errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && r.TTL < 0:
		delete(ls.known, id) // its keys are deleted too
	case err != nil:
		l.nextRefresh.Store(int64(clock.Now() + minRefresh))
	default:
		l.set(clock.Now(), time.Duration(r.TTL)*time.Second)
	}
}

// set records that left remains of the lease.
func (l *lease) set(now, left time.Duration) {
	l.expiry.Store(int64(now + left))
	l.nextRefresh.Store(int64(now + min(max(left/3, minRefresh), maxRefresh)))
}
