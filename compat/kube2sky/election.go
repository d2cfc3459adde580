package kube2sky

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A leader is the value of the election's key, for replicas and people to read.
type leader struct {
	Leader string `json:"leader"`
	Whole  bool   `json:"whole"` // it has written everything
}

func (s *session) value(whole bool) string {
	name, err := os.Hostname()
	if err != nil {
		name = "?"
	}
	text, err := json.Marshal(leader{name, whole})
	if err != nil {
		panic(err) // a struct of a string and a truth
	}
	return string(text)
}

// campaign waits until nobody leads, and leads: the key of the election is ours
// then, for as long as its lease lives, and each write asks for that.
func (w *writer) campaign(ctx context.Context, s *session) error {
	for {
		free, err := w.free(ctx, s)
		if err != nil {
			return err
		}
		if !free {
			sleep(ctx, firstWait)
			continue
		}
		won, err := s.stand(ctx, w.lease)
		if err != nil || won {
			return err
		}
	}
}

// stand makes the key, if there is none.
func (s *session) stand(ctx context.Context, ttl time.Duration) (won bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	lease, err := s.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return false, fmt.Errorf("asking etcd for a lease: %w", err)
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
		return false, fmt.Errorf("standing for election in etcd: %w", err)
	}
	return false, nil
}

// free waits until nobody leads, or until it is worth another look: a watch may hang.
func (w *writer) free(ctx context.Context, s *session) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, max(w.lease, s.limit))
	defer cancel()
	answer, err := s.client.Get(ctx, s.layout.leader)
	if err != nil {
		return false, fmt.Errorf("asking etcd who leads: %w", err)
	}
	w.fine()
	if len(answer.Kvs) == 0 {
		return true, nil
	}
	w.follow(answer.Kvs[0].Value)
	news := s.client.Watch(clientv3.WithRequireLeader(ctx), s.layout.leader, clientv3.WithRev(answer.Header.Revision+1))
	<-news // whatever it is
	return false, nil
}

// follow takes note of what the leader says: where it has written everything, this
// replica is ready too.
func (w *writer) follow(value []byte) {
	var now leader
	if json.Unmarshal(value, &now) == nil && now.Whole && !w.ready.Swap(true) {
		w.log.Info("another replica writes", "leader", now.Leader)
	}
}

// announce says that everything has been written once.
func (s *session) announce(ctx context.Context) error {
	if len(s.guard) == 0 {
		return nil
	}
	_, err := s.commit(ctx, s.guard, []clientv3.Op{clientv3.OpPut(s.layout.leader, s.value(true), clientv3.WithLease(s.lease))})
	return err
}

// resign gives the lease back, so that nobody has to wait for its end. ctx may have
// ended.
func (s *session) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(s.limit, 2*time.Second))
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.lease) // or it ends by itself
}
