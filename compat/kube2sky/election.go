package kube2sky

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A leader is the value of the election's key. Other replicas and operators read
// it.
type leader struct {
	Leader string `json:"leader"`
	Whole  bool   `json:"whole"` // it has written every key
}

func (s *session) value(whole bool) string {
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

// campaign blocks until this replica is the leader. It owns the key of the
// election while its lease lives, and each write checks that.
func (w *writer) campaign(ctx context.Context, s *session) error {
	for {
		free, err := w.awaitVacancy(ctx, s)
		if err != nil {
			return err
		}
		if !free {
			sleep(ctx, firstWait)
			continue
		}
		won, err := s.acquire(ctx, w.lease)
		if err != nil || won {
			return err
		}
	}
}

// acquire creates the key of the election if it does not exist.
func (s *session) acquire(ctx context.Context, ttl time.Duration) (won bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	lease, err := s.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return false, fmt.Errorf("granting a lease in etcd: %w", err)
	}
	s.lease = lease.ID
	answer, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(s.layout.leader), "=", 0)).
		Then(clientv3.OpPut(s.layout.leader, s.value(false), clientv3.WithLease(s.lease))).Commit()
	if err == nil && answer.Succeeded {
		s.guard = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.layout.leader), "=", answer.Header.Revision)}
		return true, nil
	}
	s.resign(ctx)
	if err != nil {
		return false, fmt.Errorf("campaigning for leadership in etcd: %w", err)
	}
	return false, nil
}

// awaitVacancy reports whether the key of the election is absent. If it is
// present, awaitVacancy first blocks until the key changes or a timeout has
// passed: a watch may stall.
func (w *writer) awaitVacancy(ctx context.Context, s *session) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, max(w.lease, s.limit))
	defer cancel()
	answer, err := s.client.Get(ctx, s.layout.leader)
	if err != nil {
		return false, fmt.Errorf("reading the leader from etcd: %w", err)
	}
	w.succeeded()
	if len(answer.Kvs) == 0 {
		return true, nil
	}
	w.observe(answer.Kvs[0].Value)
	wake := s.client.Watch(clientv3.WithRequireLeader(ctx), s.layout.leader, clientv3.WithRev(answer.Header.Revision+1))
	<-wake // any change, or the timeout
	return false, nil
}

// observe reads the leader's value. This replica becomes ready when the leader
// has written every key.
func (w *writer) observe(value []byte) {
	var now leader
	if json.Unmarshal(value, &now) == nil && now.Whole && !w.ready.Swap(true) {
		w.log.Info("Another replica is the leader", "leader", now.Leader)
	}
}

// announce records in the election's key that every key has been written.
func (s *session) announce(ctx context.Context) error {
	if len(s.guard) == 0 {
		return nil
	}
	_, err := s.commit(ctx, s.guard, []clientv3.Op{clientv3.OpPut(s.layout.leader, s.value(true), clientv3.WithLease(s.lease))})
	return err
}

// resign revokes the lease, so that other replicas need not wait for it to
// expire. ctx may have ended.
func (s *session) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(s.limit, 2*time.Second))
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.lease) // on failure the lease expires
}
