package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
)

const (
	// requestTimeout is the time limit of one request.
	requestTimeout = 5 * time.Second
	// progressTimeout is how long a watch may be silent before the source
	// requests a progress notification, which is cheap for etcd, and how long the
	// notification may take.
	progressTimeout = 3 * time.Second
	// minBackoff and maxBackoff bound the time between two attempts to reach
	// etcd.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// countInterval is the time between two counts of the keys of a prefix that
	// is too large.
	countInterval = 10 * time.Second
	// pageBytes is the intended size of one page of a list. The number of keys
	// per page starts at firstPageKeys and never exceeds maxPageKeys. Large pages
	// mean few requests; for each one etcd counts the remaining keys.
	pageBytes     = 1 << 19
	firstPageKeys = 200
	maxPageKeys   = 10000
)

// A source keeps an index up to date with the keys under a prefix. It lists the
// keys at one revision and watches from there. While etcd is unreachable the
// index does not change. If etcd has compacted the revision meanwhile, the source
// lists the keys again. One goroutine calls run; any goroutine may call read. A source
// survives reloads that do not change its options.
type source struct {
	etcdclient.Options
	task    follow.Task // run, and the client
	prefix  string      // "/skydns/": the first bytes of every key
	maxKeys int64       // the index holds no more keys than this
	index   *index
	log     *slog.Logger
	health  *health.Board
	memory  *memory.Budget // of readings

	lists, events, failures *metrics.Counter
	unregister              []func()     // of the gauges
	contactedAt             atomic.Int64 // when etcd last confirmed the state, a clock.Now; 0 is never

	mu         sync.Mutex
	client     *clientv3.Client
	dialing    *dial          // nil if no client is being created
	background sync.WaitGroup // the creation of a client, and readings
	ready      chan struct{}  // closed when queries can be answered
	tooLarge   atomic.Bool    // there are more than maxKeys keys: each query reads etcd
	readings   readings
	leases     leases
	revision   int64  // the index is complete up to this revision; 0 before the first list
	cluster    uint64 // the ID of the cluster that revision belongs to
	succeeded  bool   // a request has succeeded since the last failure
	problems   etcdclient.Problems
}

// Stop disconnects from etcd and waits for the source's goroutines.
func (s *source) Stop() {
	s.task.Stop()
	s.background.Wait()
	s.disconnect()
	for _, unregister := range s.unregister {
		unregister()
	}
	s.health.Forget(s)
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
			// A new client authenticates again, rereads the CA, and may connect to
			// another member than the unresponsive one.
			s.disconnect()
		}
		s.reportFailure(ctx, err)

		clock.Sleep(ctx, wait)
	}
}

// reportFailure counts a failure. It logs the failure unless etcd has been
// unreachable for the same reason since the last one was logged.
func (s *source) reportFailure(ctx context.Context, err error) {
	s.failures.Add(1)
	err = s.Diagnose(ctx, err)
	if ctx.Err() != nil {
		return
	}
	answers := "SERVFAIL"
	switch {
	case s.tooLarge.Load():
		answers = "from etcd"
	case s.index.synced():
		answers = "from the last state"
	}
	s.health.Set(s, "etcd", health.Condition{
		Severity: health.Warning, Object: s.prefix,
		Text: fmt.Sprintf("etcd fails (%s): %v; answers are %s", s.prefix, err, answers),
		Next: "seamark top servfail, and the log",
	})
	if !s.problems.Add(err) {
		return
	}
	s.log.Warn("etcd failed, retrying", "endpoints", s.endpoints(), "error", err, "answers", answers)
}

// contacted records that etcd has responded: the index is complete, or each query
// reads etcd. It logs the recovery if a failure was logged.
func (s *source) contacted() {
	if s.contactedAt.Swap(int64(clock.Now())) == 0 {
		close(s.ready)
	}
	s.succeeded = true
	s.health.Clear(s, "etcd")
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

// A dial is the creation of a client, which takes time if the client has to
// authenticate. Concurrent callers of connect wait for the same dial, and callers
// within failureHold after it get its error.
type dial struct {
	done chan struct{}
	err  error // valid once done is closed
}

// failureHold is the time after a failed dial before the next one.
const failureHold = time.Second

// connect returns the client. If there is none, connect creates one, and blocks until
// it exists or ctx ends.
func (s *source) connect(ctx context.Context) (*clientv3.Client, error) {
	s.mu.Lock()
	if ended := s.task.Context().Err(); s.client != nil || ended != nil {
		defer s.mu.Unlock()
		return s.client, ended
	}

	d := s.dialing
	if d == nil {
		d = &dial{done: make(chan struct{})}
		s.dialing = d
		s.background.Go(func() { s.dial(d) })
	}
	s.mu.Unlock()

	select {
	case <-d.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d.err != nil {
		return nil, d.err
	}
	return s.connect(ctx)
}

// dial creates the client for d.
func (s *source) dial(d *dial) {
	c, err := s.Client(s.task.Context())
	s.mu.Lock()
	s.client, d.err = c, err
	if err == nil {
		s.dialing = nil
	}
	s.mu.Unlock()
	close(d.done)
	if err == nil {
		return
	}

	clock.Sleep(s.task.Context(), failureHold)
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
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
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

// watch applies changes until the watch fails. If the watch is silent, it requests a
// progress notification, which has the revision that the watch has reached.
func (s *source) watch(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	timeout := time.AfterFunc(requestTimeout, cancel) // Watch blocks until the watch is created

	// Watch from the current revision, not the next: members send no progress
	// notifications for a watch from a future revision.
	changes := c.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(s.revision),
		clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	if !timeout.Stop() {
		return errStalled
	}

	defer s.leases.start(ctx, c)()

	timer := time.NewTimer(progressTimeout)
	defer timer.Stop()
	progressRequested := false

	for {
		select {
		case <-timer.C:
			if progressRequested {
				return errStalled
			}
			progressRequested = true
			timer.Reset(progressTimeout)
			if err := requestProgress(ctx, c); err != nil {
				return err
			}
		case r, ok := <-changes:
			if !ok {
				return errWatchClosed
			}
			progressRequested = false
			timer.Reset(progressTimeout)
			if err := s.applyEvents(r); err != nil {
				return err
			}
		}
	}
}

// requestProgress requests a progress notification.
func requestProgress(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	err := c.RequestProgress(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return errStalled // the client is looking for another member
	}
	return err
}

// applyEvents applies a response of a watch.
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

	s.applyChanges(r.Events)
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

// applyChanges applies events to the index. It applies consecutive puts at once, and
// consecutive deletions, so that readers do not see a name with only some of its keys deleted.
func (s *source) applyChanges(events []*clientv3.Event) {
	s.events.Add(uint64(len(events)))
	var puts []*mvccpb.KeyValue
	var deletions [][]byte
	for _, e := range events {
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
	s.index.delete(deletions...) // deletions or puts is empty
	s.put(puts)
}

func (s *source) put(kvs []*mvccpb.KeyValue) {
	if len(kvs) > 0 {
		s.index.put(s.messages(kvs)...)
	}
}

// messages returns the keys that an index has.
func (s *source) messages(kvs []*mvccpb.KeyValue) []keyValue {
	messages := make([]keyValue, 0, len(kvs))
	for _, kv := range kvs {
		if string(kv.Key) != s.prefix+"config" { // SkyDNS's configuration is not a message
			lease := s.leases.get(clientv3.LeaseID(kv.Lease))
			messages = append(messages, keyValue{key: kv.Key, value: kv.Value, lease: lease})
		}
	}
	return messages
}

// list reads all keys at one revision, page by page.
func (s *source) list(ctx context.Context, c *clientv3.Client) error {
	end := clientv3.GetPrefixRangeEnd(s.prefix)
	from, size := s.prefix, pageSize(firstPageKeys)
	revision, total := int64(0), int64(0)

	s.lists.Add(1)
	s.index.beginList()
	for {
		r, err := s.page(ctx, c, from,
			clientv3.WithRange(end), clientv3.WithLimit(int64(size)), clientv3.WithRev(revision))
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
		from = size.next(r.Kvs)
	}

	s.index.endList()
	s.tooLarge.Store(false)
	s.revision = revision
	s.contacted()
	s.log.Info("Listed the keys in etcd", "endpoints", s.endpoints(), "path", s.prefix, "count", total)
	return nil
}

// page reads one page of a list. It repeats a request that times out, except for the
// first page; the client then uses another member.
func (s *source) page(
	ctx context.Context, c *clientv3.Client, from string, options ...clientv3.OpOption,
) (r *clientv3.GetResponse, err error) {
	for range 3 {
		request, cancel := context.WithTimeout(ctx, requestTimeout)
		r, err = c.Get(request, from, options...)
		cancel()
		if from == s.prefix || !errors.Is(err, context.DeadlineExceeded) {
			break
		}
		s.failures.Add(1)
	}
	return r, err
}

// serveDirect clears the index, so that each query reads etcd. It returns errRelist
// when the number of keys has dropped below the limit.
func (s *source) serveDirect(ctx context.Context, c *clientv3.Client, total int64) error {
	if !s.tooLarge.Swap(true) {
		s.log.Warn("Too many keys in etcd, reading them for each query",
			"endpoints", s.endpoints(), "path", s.prefix, "count", total, "limit", s.maxKeys)
	}
	s.index.clear()
	s.contacted()
	for {
		if !clock.Sleep(ctx, countInterval) {
			return ctx.Err()
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
