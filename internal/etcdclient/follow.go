package etcdclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Few is some keys that are followed: those at and below each of Prefixes. It is
// for configuration, of which little is there: all of it is held and told at once.
type Few struct {
	Options
	Prefixes []string
	Log      *slog.Logger
}

const (
	pauseLeast = 100 * time.Millisecond
	pauseMost  = 5 * time.Second
)

// Run calls back with the keys and their values, first with those that are there,
// and then after each change, until ctx ends. While etcd is away nobody is called;
// after that what is there is told if it is something else.
func (f Few) Run(ctx context.Context, apply func(map[string]string)) {
	var told map[string]string
	tell := func(now map[string]string) {
		if told == nil || !maps.Equal(now, told) {
			told = maps.Clone(now)
			apply(maps.Clone(now))
		}
	}
	trouble := false
	heard := func() {
		if trouble {
			f.Log.Info("following the configuration in etcd: it answers again")
		}
		trouble = false
	}
	for pause := pauseLeast; ctx.Err() == nil; pause = min(2*pause, pauseMost) {
		err := f.follow(ctx, tell, func() {
			heard()
			pause = pauseLeast
		})
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue // no trouble: they are listed anew
		}
		if !trouble {
			f.Log.Warn(fmt.Sprintf("following the configuration in etcd: %v: trying again, what is known goes on", f.Why(ctx, err)))
		}
		trouble = true
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// follow lists the keys and watches them until that fails.
func (f Few) follow(ctx context.Context, tell func(map[string]string), heard func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := f.Client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	now := map[string]string{}
	revision := int64(0)
	for _, p := range f.Prefixes {
		limited, cancel := context.WithTimeout(ctx, patience)
		r, err := c.Get(limited, p, clientv3.WithPrefix(), clientv3.WithRev(revision))
		cancel()
		if err != nil {
			return err
		}
		revision = r.Header.Revision
		for _, kv := range r.Kvs {
			if f.follows(string(kv.Key)) {
				now[string(kv.Key)] = string(kv.Value)
			}
		}
	}
	heard()
	tell(now)
	changes := make(chan clientv3.WatchResponse)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	for _, p := range f.Prefixes {
		watch := c.Watch(clientv3.WithRequireLeader(ctx), p, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
		watching.Go(func() {
			for r := range watch { // which ends with ctx
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
			for _, e := range r.Events {
				switch key := string(e.Kv.Key); {
				case !f.follows(key):
				case e.Type == clientv3.EventTypeDelete:
					delete(now, key)
				default:
					now[key] = string(e.Kv.Value)
				}
			}
			tell(now)
		}
	}
}

// follows says whether a key is one of those: /a is above /a/b and not above /ab.
func (f Few) follows(key string) bool {
	for _, p := range f.Prefixes {
		if key == p || strings.HasPrefix(key, strings.TrimSuffix(p, "/")+"/") {
			return true
		}
	}
	return false
}
