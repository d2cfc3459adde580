package kube2sky

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// batch is the number of groups that one transaction reads, two ranges each.
	batch = 32
	// resync is the time between two comparisons of all keys, as in the original:
	// another program may have deleted an owned key, or a foreign key at the path of
	// a record.
	resync = 30 * time.Minute
	// giveUpAfter is how long writes may fail before the replica gives up
	// leadership. It discards its queue then and later compares all keys.
	giveUpAfter = 30 * time.Second
	// maxLoggedKeys is how many foreign keys are logged.
	maxLoggedKeys = 100
)

// A writer writes the records of the state to etcd while it is the leader.
type writer struct {
	layout   layout
	state    *state
	limit    time.Duration // of one request
	election bool
	lease    time.Duration
	log      *slog.Logger
	ready    atomic.Bool // every key has been written once; never reset

	leads        atomic.Bool
	keys         atomic.Int64     // number of owned keys
	foreignTotal atomic.Int64     // the sum of foreign
	foreign      map[keyGroup]int // number of paths with values of other programs
	reported     map[string]struct{}
	problems     etcdclient.Problems

	puts, deletes, transactions, failures *metrics.Counter
}

func newWriter(o Options, l layout, s *state, reg *metrics.Registry) *writer {
	w := &writer{
		layout: l, state: s, limit: o.MutationTimeout, election: o.LeaderElection, lease: o.Lease, log: o.Log,
		foreign: map[keyGroup]int{}, reported: map[string]struct{}{},
	}

	const writes, help = "seamark_kube2sky_writes_total", "Keys of records written to or deleted from etcd."
	w.puts = reg.Counter(writes, help, "operation", "put")
	w.deletes = reg.Counter(writes, help, "operation", "delete")
	w.transactions = reg.Counter("seamark_kube2sky_transactions_total", "Transactions that changed something in etcd.")
	w.failures = reg.Counter("seamark_kube2sky_failures_total", "Failed requests to etcd, which are retried.")

	reg.Gauge("seamark_kube2sky_leader", "1 if this replica is the leader.", func() float64 {
		if w.leads.Load() {
			return 1
		}
		return 0
	})
	reg.Gauge("seamark_kube2sky_pending",
		"Services, addresses of pods and reverse names that have changed and are not written yet.",
		func() float64 { return float64(s.queue.pending()) })
	reg.Gauge("seamark_kube2sky_keys", "Keys in etcd that kube2sky owns, as known to the leader.",
		func() float64 { return float64(w.keys.Load()) })
	reg.Gauge("seamark_kube2sky_foreign_keys",
		"Keys of other programs at paths of records; kube2sky does not overwrite them.",
		func() float64 { return float64(w.foreignTotal.Load()) })
	return w
}

// run writes whenever this replica is the leader, until ctx ends.
func (w *writer) run(ctx context.Context, at etcdclient.Options) {
	select { // a replica that lacks objects must not lead
	case <-ctx.Done():
		return
	case <-w.state.complete:
	}
	client := w.connect(ctx, at)
	if client == nil {
		return
	}
	defer client.Close()

	for delay := firstWait; ctx.Err() == nil; delay = min(2*delay, lastWait) {
		s := &session{client: client, layout: w.layout, limit: w.limit}
		err := w.lead(ctx, s)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errLost):
			w.log.Warn("Lost leadership, stopped writing")
			delay = firstWait
		case errors.Is(err, errGaveUp): // whose cause has been counted
			w.log.Warn("Gave up leadership, as requests to etcd fail", "duration", giveUpAfter)
		case err != nil:
			w.failed(err)
		}
		clock.Sleep(ctx, delay)
	}
}

// term writes until ctx ends, which is not an error.
func (w *writer) term(ctx context.Context, s *session) error {
	w.log.Info("Elected leader, writing", "path", w.layout.tree+w.layout.path)
	w.leads.Store(true)
	w.state.queue.start()
	defer w.leave()

	var due, since time.Time // time of the next comparison; of the first failure
	delay, announced := firstWait, false
	for ctx.Err() == nil {
		n, err := 0, error(nil)
		if !time.Now().Before(due) {
			if err = w.sweep(ctx, s); err == nil {
				due, n = time.Now().Add(resync), 1
			}
		} else if n, err = w.writeBatch(ctx, s); err == nil && n == 0 && !announced {
			if err = s.announce(ctx); err == nil {
				announced = true
				w.ready.Store(true)
				w.log.Info("Wrote all keys", "count", w.keys.Load())
			}
		}

		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errLost):
			return err
		case err != nil:
			if w.failed(err); since.IsZero() {
				since = time.Now()
			} else if time.Since(since) > giveUpAfter {
				return errGaveUp
			}
			clock.Sleep(ctx, delay)
			delay = min(2*delay, lastWait)
		default:
			w.succeeded()
			since, delay = time.Time{}, firstWait
			if n == 0 {
				w.wait(ctx, due)
			}
		}
	}
	return nil
}

// leave ends a term. The keys in etcd are unknown from then on.
func (w *writer) leave() {
	w.state.queue.stop()
	w.leads.Store(false)
	w.keys.Store(0)
	w.foreignTotal.Store(0)
	clear(w.foreign)
}

// wait blocks until a group is queued or a comparison is due.
func (w *writer) wait(ctx context.Context, due time.Time) {
	t := time.NewTimer(time.Until(due))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-w.state.queue.wake:
	}
}

// writeBatch writes some groups and returns their number. After an error it
// queues them again.
func (w *writer) writeBatch(ctx context.Context, s *session) (n int, err error) {
	groups := w.state.queue.take(batch)
	if len(groups) == 0 {
		return 0, nil
	}

	done := false
	defer func() {
		if !done {
			w.state.queue.add(groups...)
		}
	}()

	var gets []clientv3.Op
	for _, p := range groups {
		gets = append(gets, w.layout.get(w.layout.tree, p), w.layout.get(w.layout.marks, p))
	}
	answer, err := s.read(ctx, gets...)
	if err != nil {
		return 0, err
	}

	for _, edits := range transactions(w.changes(groups, answer)) {
		ok, err := s.write(ctx, edits)
		if err != nil {
			return 0, err
		}
		if !ok { // another program has changed a key: read again, after a pause
			clock.Sleep(ctx, firstWait)
			return len(groups), nil
		}
		w.count(edits)
	}
	done = true
	return len(groups), nil
}

// changes returns the changes of groups. The answer has the keys of each, and their marks.
func (w *writer) changes(groups []keyGroup, answer *clientv3.TxnResponse) (all []change) {
	for i, p := range groups {
		tree, marks := map[string]found{}, map[string]string{}
		for _, kv := range answer.Responses[2*i].GetResponseRange().Kvs {
			tree[string(kv.Key[len(w.layout.tree):])] = found{string(kv.Value), kv.ModRevision}
		}
		for _, kv := range answer.Responses[2*i+1].GetResponseRange().Kvs {
			marks[string(kv.Key[len(w.layout.marks):])] = string(kv.Value)
		}

		c := plan(w.state.wanted(p), tree, marks)
		w.reportForeign(p, c.foreign)
		all = append(all, c)
	}
	return all
}

// get returns the operation that reads the keys of a group below a prefix.
func (l layout) get(prefix string, p keyGroup) clientv3.Op {
	root, only := l.root(p)
	if only {
		return clientv3.OpGet(prefix + root)
	}
	return clientv3.OpGet(prefix+root, clientv3.WithPrefix())
}

func (w *writer) count(edits []edit) {
	w.transactions.Add(1)
	for _, e := range edits {
		switch e.operation {
		case put:
			w.puts.Add(1)
		case remove:
			w.deletes.Add(1)
		}
		switch {
		case e.operation == remove || e.operation == forget:
			w.keys.Add(-1)
		case !e.hasMark:
			w.keys.Add(1)
		}
	}
}

// reportForeign counts and logs the keys of other programs in a group, each once.
func (w *writer) reportForeign(p keyGroup, paths []string) {
	w.foreignTotal.Add(int64(len(paths) - w.foreign[p]))
	if len(paths) == 0 {
		delete(w.foreign, p)
		return
	}
	w.foreign[p] = len(paths)
	for _, path := range paths {
		if _, ok := w.reported[path]; ok || len(w.reported) == maxLoggedKeys {
			continue
		}
		w.reported[path] = struct{}{}
		w.log.Warn("Key belongs to another program, not overwriting it", "key", w.layout.tree+path)
		if len(w.reported) == maxLoggedKeys {
			w.log.Warn("Not logging further keys of other programs: see the metric seamark_kube2sky_foreign_keys")
		}
	}
}

// failed counts a failure, and logs it unless it has been logged since the last
// success.
func (w *writer) failed(err error) {
	w.failures.Add(1)
	if w.problems.Add(err) {
		w.log.Warn("etcd failed, retrying", "error", err)
	}
}

func (w *writer) succeeded() {
	if w.problems.Clear() {
		w.log.Info("etcd recovered")
	}
}
