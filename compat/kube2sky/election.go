package kube2sky

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/seamark/seamark/sys/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// A leader is the value of a replica's key in the election. Other replicas and
// operators read it.
type leader struct {
	Leader string `json:"leader"`
	Whole  bool   `json:"whole"` // it has written every key
}

func leaderValue(whole bool) string {
	name, err := os.Hostname()
	if err != nil {
		name = "?"
	}
	text, err := json.Marshal(leader{name, whole})
	if err != nil {
		panic(err) // not possible for these types
	}
	return string(text)
}

var errExpired = errors.New("the lease of the election has expired")

// lead waits to be elected, and writes until it loses leadership.
func (w *writer) lead(ctx context.Context, s *session) error {
	if !w.election {
		return w.term(ctx, s)
	}

	limited, cancel := context.WithTimeout(ctx, s.limit)
	lease, err := s.client.Grant(limited, int64(w.lease/time.Second))
	cancel()
	if err != nil {
		return fmt.Errorf("granting a lease in etcd: %w", err)
	}
	w.succeeded()

	// The lease must outlive ctx: it is revoked at the end, so that other replicas
	// need not wait for it to expire.
	background := context.WithoutCancel(ctx)
	defer func() {
		ctx, cancel := context.WithTimeout(background, min(s.limit, 2*time.Second))
		defer cancel()
		_, _ = s.client.Revoke(ctx, lease.ID) // on failure it expires
	}()

	alive, err := concurrency.NewSession(s.client,
		concurrency.WithLease(lease.ID), concurrency.WithContext(clientv3.WithRequireLeader(background)))
	if err != nil {
		return fmt.Errorf("keeping a lease in etcd: %w", err)
	}
	defer alive.Orphan()
	ctx, expire := context.WithCancelCause(ctx)
	defer expire(nil)
	defer context.AfterFunc(alive.Ctx(), func() { expire(errExpired) })()

	s.election = concurrency.NewElection(alive, w.layout.election)
	if err := w.campaign(ctx, s.election); err != nil {
		return fmt.Errorf("campaigning for leadership in etcd: %w", err)
	}
	s.guard = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.election.Key()), "=", s.election.Rev())}
	if err := w.term(ctx, s); err != nil {
		return err
	}
	if errors.Is(context.Cause(ctx), errExpired) {
		return errLost
	}
	return nil
}

// campaign blocks until this replica is the leader. This replica becomes ready
// earlier if the leader has written every key.
func (w *writer) campaign(ctx context.Context, e *concurrency.Election) error {
	waiting, elected := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer elected()

	following.Go(func() {
		for !w.ready.Load() && waiting.Err() == nil {
			var now leader
			r, err := e.Leader(waiting)
			if err == nil && json.Unmarshal(r.Kvs[0].Value, &now) == nil && now.Whole {
				w.ready.Store(true)
				w.log.Info("Another replica is the leader", "leader", now.Leader)
			}
			clock.Sleep(waiting, lastWait)
		}
	})

	if err := e.Campaign(clientv3.WithRequireLeader(ctx), leaderValue(false)); ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// announce records in the election that every key has been written.
func (s *session) announce(ctx context.Context) error {
	if s.election == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	err := s.election.Proclaim(ctx, leaderValue(true))
	if errors.Is(err, concurrency.ErrElectionNotLeader) {
		return errLost
	}
	return err
}
