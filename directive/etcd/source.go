package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seamark/seamark/internal/clock"
	"github.com/seamark/seamark/internal/etcdclient"
	"github.com/seamark/seamark/metrics"
)

const (
	// requestTime is the time limit of one request.
	requestTime = 5 * time.Second
	// progressTimeout is how long a watch may be silent before the source
	// requests a progress notification, and how long that may take. The request
	// is cheap for etcd.
	progressTimeout = 3 * time.Second
	// minBackoff and maxBackoff bound the time between two attempts to reach
	// etcd.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// countInterval is the time between two counts of the keys of a prefix that
	// is too large.
	countInterval = 10 * time.Second
	// pageBytes is the intended size of one page of a list. The number of keys
	// per page starts at firstPageKeys and never exceeds maxPageKeys; larger
	// pages mean fewer requests, each of which makes etcd count the remaining
	// keys.
	pageBytes     = 1 << 19
	firstPageKeys = 200
	maxPageKeys   = 10000
)

// A source keeps an index up to date with the keys under a prefix. It lists the
// keys at one revision and watches from there. While etcd is unreachable the
// index stays as it is; if the revision has been compacted meanwhile, the source
// lists again. One goroutine calls run; other goroutines may call readKeys.
type source struct {
	etcdclient.Options
	lifetime context.Context // of the client
	prefix   string          // "/skydns/": the first bytes of every key
	maxKeys  int64           // the index holds no more keys than this
	index    *index
	log      *slog.Logger
	series

	mu        sync.Mutex
	client    *clientv3.Client
	dialing   *dial // nil if no client is being created
	dials     sync.WaitGroup
	ready     chan struct{} // closed when queries can be answered
	tooLarge  atomic.Bool   // there are more than maxKeys keys: each query reads etcd
	leases    leases
	revision  int64  // the index is complete up to this revision; 0 before the first list
	cluster   uint64 // the ID of the cluster that revision belongs to
	succeeded bool   // a request has succeeded since the last failure
	problems  etcdclient.Problems
}

// series are the metrics of a source.
type series struct {
	lists, events, failures *metrics.Counter
	contactedAt             atomic.Int64 // when etcd last confirmed the state, a clock.Now; 0 is never
}

func (s *series) register(reg *metrics.Registry, prefix string) {
	s.lists = reg.Counter("seamark_etcd_lists_total", "Lists of all keys under the prefix.", "path", prefix)
	s.events = reg.Counter("seamark_etcd_events_total", "Changes of keys that the watch has reported.", "path", prefix)
	s.failures = reg.Counter("seamark_etcd_failures_total", "Requests to etcd, and watches, that failed.", "path", prefix)
}

// run follows the prefix until ctx ends.
func (s *source) run(ctx context.Context) {
	for wait := minBackoff; ctx.Err() == nil; wait = min(2*wait, maxBackoff) {
		s.succeeded = false
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.succeeded {
			wait = minBackoff
		}
		if !s.succeeded || errors.Is(err, errStalled) {
			// A new client authenticates again, rereads the CA, and does not stay
			// with a member that does not respond.
			s.disconnect()
		}
		s.reportFailure(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// reportFailure counts a failure, and logs it unless the last one that was logged
// since etcd was reachable has the same reason.
func (s *source) reportFailure(ctx context.Context, err error) {
	s.failures.Add(1)
	err = s.Diagnose(ctx, err)
	if ctx.Err() != nil || !s.problems.Add(err) {
		return
	}
	answers := "SERVFAIL"
	switch {
	case s.tooLarge.Load():
		answers = "from etcd"
	case s.index.synced():
		answers = "from the last state"
	}
	s.log.Warn("etcd failed, retrying", "endpoints", s.endpoints(), "error", err, "answers", answers)
}

// contacted records that etcd has responded: the index is complete, or each query
// reads etcd. It logs that if a failure was logged.
func (s *source) contacted() {
	if s.contactedAt.Swap(int64(clock.Now())) == 0 {
		close(s.ready)
	}
	s.succeeded = true
	if s.problems.Clear() {
		s.log.Info("etcd recovered", "endpoints", s.endpoints())
	}
}

// age returns the seconds since etcd last confirmed the state, or -1.
func (s *source) age() float64 {
	at := s.contactedAt.Load()
	if at == 0 {
		return -1
	}
	return (clock.Now() - time.Duration(at)).Seconds()
}

func (s *source) endpoints() string {
	if s.Endpoints == "" {
		return etcdclient.DefaultEndpoint
	}
	return s.Endpoints
}

// A dial is the creation of a client, which takes time if it has to authenticate.
// Callers that need the client meanwhile wait for the same dial, and share its
// error for failureHold.
type dial struct {
	done chan struct{}
	err  error // valid once done is closed
}

// failureHold is how long callers get the error of a failed dial.
const failureHold = time.Second

// connect returns the client. It creates one if there is none, and waits for it
// until ctx ends.
func (s *source) connect(ctx context.Context) (*clientv3.Client, error) {
	s.mu.Lock()
	if s.client != nil || s.lifetime.Err() != nil {
		defer s.mu.Unlock()
		return s.client, s.lifetime.Err()
	}
	m := s.dialing
	if m == nil {
		m = &dial{done: make(chan struct{})}
		s.dialing = m
		s.dials.Go(func() { s.dial(m) })
	}
	s.mu.Unlock()
	select {
	case <-m.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m.err != nil {
		return nil, m.err
	}
	return s.connect(ctx)
}

// dial creates the client.
func (s *source) dial(m *dial) {
	c, err := s.Client(s.lifetime)
	s.mu.Lock()
	s.client, m.err = c, err
	if err == nil {
		s.dialing = nil
	}
	s.mu.Unlock()
	close(m.done)
	if err == nil {
		return
	}
	select {
	case <-s.lifetime.Done():
	case <-time.After(failureHold):
	}
	s.mu.Lock()
	s.dialing = nil
	s.mu.Unlock()
}

// disconnect closes the client.
func (s *source) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		_ = s.client.Close()
		s.client = nil
	}
}

var (
	errStalled     = errors.New("watch stalled: no progress notification")
	errWatchClosed = errors.New("watch closed")
	errBehind      = errors.New("a member is behind the others")
	// errRelist is not a failure: the source has to list the keys again.
	errRelist = errors.New("the keys have to be listed again")
)

// follow lists the keys unless the source can resume from its revision, and
// watches until that fails.
func (s *source) follow(ctx context.Context) error {
	for {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		if s.revision != 0 {
			err = s.resume(ctx, c)
		}
		if s.revision == 0 && err == nil {
			err = s.list(ctx, c)
		}
		if err == nil {
			err = s.watch(ctx, c)
		}
		if err != errRelist {
			return err
		}
		s.revision = 0
	}
}

// resume checks with a quorum read that the cluster is the same and has not been
// restored to an earlier revision. A watch does not report either.
func (s *source) resume(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	r, err := c.Get(ctx, s.prefix, clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	if r.Header.ClusterId != s.cluster || r.Header.Revision < s.revision {
		s.log.Warn("etcd cluster ID changed or revision went backwards, listing all keys", "endpoints", s.endpoints())
		s.revision = 0
	}
	return nil
}

// watch applies changes until the watch fails. When it is silent, watch requests
// a progress notification, which has the revision that the watch has reached.
func (s *source) watch(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	late := time.AfterFunc(requestTime, cancel) // Watch returns when the watch is created
	// Watch from the current revision, not the next: members do not notify
	// progress of a watch whose revision is in the future.
	changes := c.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(s.revision), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	if !late.Stop() {
		return errStalled
	}
	s.leases.start(ctx, c)
	defer s.leases.halt()
	timer := time.NewTimer(progressTimeout)
	defer timer.Stop()
	asked := false
	for {
		select {
		case <-timer.C:
			if asked {
				return errStalled
			}
			asked = true
			timer.Reset(progressTimeout)
			limited, cancel := context.WithTimeout(ctx, progressTimeout)
			err := c.RequestProgress(limited)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				return errStalled // the client is looking for another member
			}
			if err != nil {
				return err
			}
		case r, ok := <-changes:
			if !ok {
				return errWatchClosed
			}
			asked = false
			timer.Reset(progressTimeout)
			if err := s.applyEvents(r); err != nil {
				return err
			}
		}
	}
}

// applyEvents applies the events of a watch to the index, consecutive puts and
// consecutive deletions at once: a reader does not see a part of the keys of a name
// deleted.
func (s *source) applyEvents(r clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		if errors.Is(err, rpctypes.ErrCompacted) || r.CompactRevision > 0 {
			s.log.Info("etcd compacted the revision of the watch, listing all keys", "endpoints", s.endpoints())
			return errRelist
		}
		return err
	}
	if r.IsProgressNotify() {
		if r.Header.Revision < s.revision {
			return errBehind
		}
		s.revision = r.Header.Revision
	}
	s.events.Add(uint64(len(r.Events)))
	var puts []*mvccpb.KeyValue
	var deletions [][]byte
	for _, e := range r.Events {
		if e.Type == clientv3.EventTypeDelete {
			s.put(puts)
			puts = puts[:0]
			deletions = append(deletions, e.Kv.Key)
			continue
		}
		s.index.delete(deletions...)
		deletions = deletions[:0]
		puts = append(puts, e.Kv)
	}
	s.index.delete(deletions...) // one of the two is empty
	s.put(puts)
	if n := len(r.Events); n > 0 {
		// The revision in the header may be ahead of the events.
		s.revision = r.Events[n-1].Kv.ModRevision
	}
	s.contacted()
	if int64(s.index.count()) > s.maxKeys {
		return errRelist
	}
	return nil
}

func (s *source) put(kvs []*mvccpb.KeyValue) {
	if len(kvs) == 0 {
		return
	}
	all := make([]keyValue, 0, len(kvs))
	for _, kv := range kvs {
		if string(kv.Key[len(s.prefix):]) != "config" { // SkyDNS's configuration is not a message
			all = append(all, keyValue{key: kv.Key, value: kv.Value, lease: s.leases.get(clientv3.LeaseID(kv.Lease))})
		}
	}
	s.index.put(all...)
}

// list reads all keys at one revision, page by page.
func (s *source) list(ctx context.Context, c *clientv3.Client) error {
	end := clientv3.GetPrefixRangeEnd(s.prefix)
	from, limit := s.prefix, int64(firstPageKeys)
	revision, total := int64(0), int64(0)
	s.lists.Add(1)
	s.index.beginList()
	for {
		r, err := s.page(ctx, c, from, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(revision))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return errRelist // compacted during the list
		}
		if err != nil {
			return err
		}
		if revision == 0 {
			revision, total, s.cluster = r.Header.Revision, r.Count, r.Header.ClusterId
			if total > s.maxKeys {
				return s.serveDirect(ctx, c, total)
			}
		}
		s.put(r.Kvs)
		if !r.More || len(r.Kvs) == 0 {
			break
		}
		bytes := 1
		for _, kv := range r.Kvs {
			bytes += len(kv.Key) + len(kv.Value)
		}
		from, limit = string(r.Kvs[len(r.Kvs)-1].Key)+"\x00", max(1, min(int64(len(r.Kvs)*pageBytes/bytes), 2*limit, maxPageKeys))
	}
	s.index.endList()
	s.tooLarge.Store(false)
	s.revision = revision
	s.contacted()
	s.log.Info("Listed the keys in etcd", "endpoints", s.endpoints(), "path", s.prefix, "count", total)
	return nil
}

// page reads one page of a list. It repeats a request that times out, which goes
// to another member, unless it is the first of a list.
func (s *source) page(ctx context.Context, c *clientv3.Client, from string, options ...clientv3.OpOption) (r *clientv3.GetResponse, err error) {
	for range 3 {
		limited, cancel := context.WithTimeout(ctx, requestTime)
		r, err = c.Get(limited, from, options...)
		cancel()
		if from == s.prefix || !errors.Is(err, context.DeadlineExceeded) {
			break
		}
		s.failures.Add(1)
	}
	return r, err
}

// serveDirect clears the index and has each query read etcd until the number of
// keys has dropped below the limit. It returns errRelist then.
func (s *source) serveDirect(ctx context.Context, c *clientv3.Client, total int64) error {
	if !s.tooLarge.Swap(true) {
		s.log.Warn("Too many keys in etcd, reading them for each query", "endpoints", s.endpoints(), "path", s.prefix, "count", total, "limit", s.maxKeys)
	}
	s.index.clear()
	s.contacted()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(countInterval):
		}
		r, err := s.page(ctx, c, s.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		s.contacted()
		if r.Count <= s.maxKeys*9/10 {
			return errRelist
		}
	}
}
