package kube2sky

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/sys/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// connect creates the client, and tries again until ctx ends: files may not be
// mounted yet, and etcd must be reachable if the client authenticates.
func (w *writer) connect(ctx context.Context, o etcdclient.Options) *clientv3.Client {
	for delay := firstWait; ctx.Err() == nil; delay = min(2*delay, lastWait) {
		client, err := o.Client(ctx)
		if err == nil {
			return client
		}
		if ctx.Err() == nil {
			w.failed(fmt.Errorf("connecting to etcd: %w", err))
		}
		clock.Sleep(ctx, delay)
	}
	return nil
}

// The backoff doubles from firstWait to lastWait.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = time.Second
)

// The errors of a term.
var (
	errLost   = errors.New("leadership is lost")    // another replica is the leader, or may be
	errGaveUp = errors.New("requests to etcd fail") // for giveUpAfter
)

// A session is the time between two elections.
type session struct {
	client   *clientv3.Client
	layout   layout
	limit    time.Duration         // of one request
	election *concurrency.Election // nil without one
	guard    []clientv3.Cmp        // this replica is the leader
}

// read reads several ranges in one transaction.
func (s *session) read(ctx context.Context, gets ...clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	answer, err := s.client.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, fmt.Errorf("reading from etcd: %w", err)
	}
	return answer, nil
}

// write applies edits unless their keys have changed since they were read. done
// is false if they have. The error is errLost if another replica leads.
func (s *session) write(ctx context.Context, edits []edit) (done bool, err error) {
	cmps := slices.Clone(s.guard)
	var ops, otherwise []clientv3.Op
	for _, e := range edits {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(s.layout.tree+e.path), "=", e.revision))
		ops = e.ops(ops, s.layout)
	}
	if s.election != nil {
		otherwise = []clientv3.Op{clientv3.OpGet(s.election.Key())}
	}

	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	answer, err := s.client.Txn(ctx).If(cmps...).Then(ops...).Else(otherwise...).Commit()
	switch {
	case err != nil:
		return false, fmt.Errorf("writing to etcd: %w", err)
	case !answer.Succeeded && s.election != nil && len(answer.Responses[0].GetResponseRange().Kvs) == 0:
		return false, errLost
	}
	return answer.Succeeded, nil
}

// ops appends the operations of an edit, at most two.
func (e *edit) ops(ops []clientv3.Op, l layout) []clientv3.Op {
	switch e.operation {
	case put:
		ops = append(ops, clientv3.OpPut(l.tree+e.path, e.value))
	case remove:
		ops = append(ops, clientv3.OpDelete(l.tree+e.path))
	}
	if e.operation == put || e.operation == adopt {
		return append(ops, clientv3.OpPut(l.marks+e.path, sum(e.value)))
	}
	return append(ops, clientv3.OpDelete(l.marks+e.path))
}
