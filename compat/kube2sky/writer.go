package kube2sky

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/internal/etcdclient"
	"github.com/seamark/seamark/metrics"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// batch is how many places are read at once: two ranges each.
	batch = 32
	// resync is how often everything is compared, as in the original: somebody may
	// have deleted a key of ours, or one that ours has waited for.
	resync = 30 * time.Minute
	// hopeless is how long writing may fail before it begins anew: what has changed
	// need not be remembered for longer.
	hopeless = 30 * time.Second
	// maxWrong is how many ways to fail are told of until things are fine again.
	maxWrong = 16
	// maxTold is how many keys of others are told of one by one.
	maxTold = 100
)

// A writer brings etcd to what the state wants, while it leads.
type writer struct {
	layout   layout
	state    *state
	limit    time.Duration // of one request
	election bool
	lease    time.Duration
	log      *slog.Logger
	ready    atomic.Bool // the tree has been whole once; whoever has seen that stays ready

	leads   atomic.Bool
	keys    atomic.Int64  // ours, as far as is known
	taken   atomic.Int64  // the sum of foreign
	foreign map[place]int // how many paths there are somebody else's
	told    map[string]struct{}
	wrong   map[string]struct{} // what has been logged since things were fine: members fail in turn

	puts, deletes, transactions, failures *metrics.Counter
}

func newWriter(o Options, l layout, s *state, reg *metrics.Registry) *writer {
	w := &writer{
		layout: l, state: s, limit: o.MutationTimeout, election: o.LeaderElection, lease: o.Lease, log: o.Log,
		foreign: map[place]int{}, told: map[string]struct{}{}, wrong: map[string]struct{}{},
	}
	const writes, help = "seamark_kube2sky_writes_total", "Keys of names that were written or deleted in etcd."
	w.puts = reg.Counter(writes, help, "operation", "put")
	w.deletes = reg.Counter(writes, help, "operation", "delete")
	w.transactions = reg.Counter("seamark_kube2sky_transactions_total", "Transactions that changed something in etcd.")
	w.failures = reg.Counter("seamark_kube2sky_failures_total", "Requests to etcd that failed and were tried again.")
	reg.Gauge("seamark_kube2sky_leader", "1 if this replica writes.", func() float64 {
		if w.leads.Load() {
			return 1
		}
		return 0
	})
	reg.Gauge("seamark_kube2sky_pending", "Services, addresses of pods and reverse names that have changed and wait to be written.",
		func() float64 { return float64(s.pending()) })
	reg.Gauge("seamark_kube2sky_keys", "Keys of names that are ours in etcd, as the replica that writes knows them.",
		func() float64 { return float64(w.keys.Load()) })
	reg.Gauge("seamark_kube2sky_foreign_keys", "Keys that are somebody else's where ours would be: they are left alone.",
		func() float64 { return float64(w.taken.Load()) })
	return w
}

// run writes until ctx ends, whenever it leads.
func (w *writer) run(ctx context.Context, at etcdclient.Options) {
	select { // who does not know what is wanted must not lead
	case <-ctx.Done():
		return
	case <-w.state.whole:
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
			w.log.Warn("this replica writes no more: it does not lead")
			delay = firstWait
		case err != nil:
			w.failed(err)
		}
		sleep(ctx, delay)
	}
}

// lead waits to be elected, and writes until that is over.
func (w *writer) lead(ctx context.Context, s *session) error {
	if !w.election {
		return w.term(ctx, s)
	}
	if err := w.campaign(ctx, s); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer s.resign(ctx)
	defer cancel(nil)
	alive, err := s.client.KeepAlive(clientv3.WithRequireLeader(ctx), s.lease)
	if err != nil {
		return err
	}
	keeping.Go(func() {
		for range alive { // it is closed when the lease has ended
		}
		cancel(errLost)
	})
	if err := w.term(ctx, s); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// term writes until ctx ends, which is no error.
func (w *writer) term(ctx context.Context, s *session) error {
	w.log.Info("this replica writes now", "tree", w.layout.tree+w.layout.path)
	w.leads.Store(true)
	w.state.follow()
	defer w.leave()
	var due, since time.Time // of the next comparison; of the first failure
	delay, announced := firstWait, false
	for ctx.Err() == nil {
		n, err := 0, error(nil)
		if !time.Now().Before(due) {
			if err = w.sweep(ctx, s); err == nil {
				due, n = time.Now().Add(resync), 1
			}
		} else if n, err = w.settle(ctx, s); err == nil && n == 0 && !announced {
			if err = s.announce(ctx); err == nil {
				announced = true
				w.ready.Store(true)
				w.log.Info("everything is written", "keys", w.keys.Load())
			}
		}
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errLost):
			return err
		case err != nil:
			if w.failed(err); since.IsZero() {
				since = time.Now()
			} else if time.Since(since) > hopeless {
				return err
			}
			sleep(ctx, delay)
			delay = min(2*delay, lastWait)
		default:
			w.fine()
			since, delay = time.Time{}, firstWait
			if n == 0 {
				w.wait(ctx, due)
			}
		}
	}
	return nil
}

// leave ends a term. What there is in etcd is somebody else's to know then.
func (w *writer) leave() {
	w.state.leave()
	w.leads.Store(false)
	w.keys.Store(0)
	w.taken.Store(0)
	clear(w.foreign)
}

// wait waits for work.
func (w *writer) wait(ctx context.Context, due time.Time) {
	t := time.NewTimer(time.Until(due))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-w.state.work.news:
	}
}

// settle mends a few places, and says how many. After an error they are work again.
func (w *writer) settle(ctx context.Context, s *session) (n int, err error) {
	places := w.state.take(batch)
	if len(places) == 0 {
		return 0, nil
	}
	done := false
	defer func() {
		if !done {
			w.state.add(places...)
		}
	}()
	var gets []clientv3.Op
	for _, p := range places {
		gets = append(gets, w.layout.get(w.layout.tree, p), w.layout.get(w.layout.marks, p))
	}
	answer, err := s.read(ctx, gets...)
	if err != nil {
		return 0, err
	}
	var changes []change
	for i, p := range places {
		tree, marks := map[string]found{}, map[string]string{}
		for _, kv := range answer.Responses[2*i].GetResponseRange().Kvs {
			tree[string(kv.Key[len(w.layout.tree):])] = found{string(kv.Value), kv.ModRevision}
		}
		for _, kv := range answer.Responses[2*i+1].GetResponseRange().Kvs {
			marks[string(kv.Key[len(w.layout.marks):])] = string(kv.Value)
		}
		c := plan(w.state.wanted(p), tree, marks)
		w.tell(p, c.foreign)
		changes = append(changes, c)
	}
	for _, edits := range transactions(changes) {
		ok, err := s.write(ctx, edits)
		if err != nil {
			return 0, err
		}
		if !ok { // somebody was between: look again, but not at once
			sleep(ctx, firstWait)
			return len(places), nil
		}
		w.count(edits)
	}
	done = true
	return len(places), nil
}

// get asks for what there is at a place, below a prefix.
func (l layout) get(prefix string, p place) clientv3.Op {
	root, only := l.root(p)
	if only {
		return clientv3.OpGet(prefix + root)
	}
	return clientv3.OpGet(prefix+root, clientv3.WithPrefix())
}

func (w *writer) count(edits []edit) {
	w.transactions.Add(1)
	for _, e := range edits {
		switch e.what {
		case put:
			w.puts.Add(1)
		case remove:
			w.deletes.Add(1)
		}
		switch {
		case e.what == remove || e.what == forget:
			w.keys.Add(-1)
		case !e.counted:
			w.keys.Add(1)
		}
	}
}

// tell reports keys of others where ours would be, each once.
func (w *writer) tell(p place, paths []string) {
	w.taken.Add(int64(len(paths) - w.foreign[p]))
	if len(paths) == 0 {
		delete(w.foreign, p)
		return
	}
	w.foreign[p] = len(paths)
	for _, path := range paths {
		if _, ok := w.told[path]; ok || len(w.told) == maxTold {
			continue
		}
		w.told[path] = struct{}{}
		w.log.Warn("a key is not written: somebody else's is there", "key", w.layout.tree+path)
		if len(w.told) == maxTold {
			w.log.Warn("no more of such keys are shown: seamark_kube2sky_foreign_keys counts them")
		}
	}
}

// failed counts a failure, and logs it if it is news.
func (w *writer) failed(err error) {
	w.failures.Add(1)
	what := err.Error()
	if _, ok := w.wrong[what]; !ok && len(w.wrong) < maxWrong {
		w.wrong[what] = struct{}{}
		w.log.Warn("etcd does not do what it is asked; trying again", "error", err)
	}
}

func (w *writer) fine() {
	if len(w.wrong) > 0 {
		clear(w.wrong)
		w.log.Info("etcd does what it is asked again")
	}
}
