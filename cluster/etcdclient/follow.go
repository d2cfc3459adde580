package etcdclient

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Follower follows the keys at and below each of Prefixes. It is for
// configuration, which is small: it holds all keys and passes all of them to its
// callback.
type Follower struct {
	Options
	Prefixes []string
	Log      *slog.Logger
}

const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// Run calls apply with the keys and their values, first with the current ones and
// then after each change, until ctx ends. It does not call apply while etcd is
// unreachable.
func (f Follower) Run(ctx context.Context, apply func(map[string]string)) {
	var last map[string]string
	report := func(now map[string]string) {
		if last == nil || !maps.Equal(now, last) {
			last = maps.Clone(now)
			apply(maps.Clone(now))
		}
	}

	var problems Problems
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		err := f.follow(ctx, report, func() {
			if problems.Clear() {
				f.Log.Info("etcd recovered, following the configuration again")
			}
			pause = minPause
		})
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue // not a failure: list again
		}
		if err = f.Diagnose(ctx, err); problems.Add(err) {
			f.Log.Warn("Following the configuration in etcd failed, retrying", "error", err)
		}
		clock.Sleep(ctx, pause)
	}
}

// follow lists the keys and watches them until that fails.
func (f Follower) follow(ctx context.Context, report func(map[string]string), contacted func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := f.Client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()

	now, revision, err := f.list(ctx, c)
	if err != nil {
		return err
	}
	contacted()
	report(now)

	changes := make(chan clientv3.WatchResponse)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	for _, p := range f.Prefixes {
		watch := c.Watch(clientv3.WithRequireLeader(ctx), p, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
		watching.Go(func() {
			for r := range watch { // closed when ctx ends
				select {
				case changes <- r:
				case <-ctx.Done():
				}
			}
		})
	}

	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-changes:
			if err := r.Err(); err != nil {
				return err
			}
			f.apply(now, r.Events)
			report(now)
		}
	}
}

// list returns the keys at one revision, and the revision.
func (f Follower) list(ctx context.Context, c *clientv3.Client) (now map[string]string, revision int64, err error) {
	now = map[string]string{}
	for _, p := range f.Prefixes {
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		r, err := c.Get(limited, p, clientv3.WithPrefix(), clientv3.WithRev(revision))
		cancel()
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = r.Header.Revision // that of later replies is the present one
		}
		for _, kv := range r.Kvs {
			if f.follows(string(kv.Key)) {
				now[string(kv.Key)] = string(kv.Value)
			}
		}
	}
	return now, revision, nil
}

// apply changes the keys by events.
func (f Follower) apply(now map[string]string, events []*clientv3.Event) {
	for _, e := range events {
		switch key := string(e.Kv.Key); {
		case !f.follows(key):
		case e.Type == clientv3.EventTypeDelete:
			delete(now, key)
		default:
			now[key] = string(e.Kv.Value)
		}
	}
}

// follows reports whether a key is at or below one of the prefixes: /a/b is below
// /a, and /ab is not.
func (f Follower) follows(key string) bool {
	for _, p := range f.Prefixes {
		if key == p || strings.HasPrefix(key, strings.TrimSuffix(p, "/")+"/") {
			return true
		}
	}
	return false
}
