package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seamark/seamark/internal/etcdclient"
	"github.com/seamark/seamark/metrics"
)

const (
	// requestTime is how long one request may take.
	requestTime = 5 * time.Second
	// silence is how long a watch may tell nothing before etcd is asked for a sign of
	// life, and how long that may take: it costs etcd nothing.
	silence = 3 * time.Second
	// waitLeast and waitMost bound the time between two attempts to reach etcd.
	waitLeast = 50 * time.Millisecond
	waitMost  = 5 * time.Second
	// countEvery is how often the keys of a prefix that is too large are counted.
	countEvery = 10 * time.Second
	// pageBytes is how much one request of a list is to bring, and pageFirst and
	// pageMost how many keys: etcd counts all keys behind it for each request, and
	// nobody knows beforehand how large they are.
	pageBytes = 1 << 19
	pageFirst = 200
	pageMost  = 10000
	// manyListed keys leave enough garbage to do something about it, and a list that
	// replaces another collects it every so many bytes: else it would lie on top of
	// what is served. The first one does not, since all wait for it.
	manyListed   = 1000
	collectEvery = 2 << 20
)

// A source keeps an index up to date with the keys under a prefix: it lists them
// once, at one revision, and watches from there. While etcd is away the index
// stays as it is; if the watch's revision has been compacted meanwhile, the keys
// are listed anew. One goroutine runs it; any may ask.
type source struct {
	etcdclient.Options
	life   context.Context // the client's
	prefix string          // "/skydns/": the first bytes of every key
	most   int64           // more keys than this are not held
	index  *index
	log    *slog.Logger
	series

	mu       sync.Mutex
	client   *clientv3.Client
	making   *making // of the client; nil if nobody does
	makers   sync.WaitGroup
	tooLarge atomic.Bool // there are more keys: each question is asked of etcd
	leases   leases
	revision int64  // the index has everything up to here; 0 is nothing yet
	cluster  uint64 // whose revision that is
	well     bool   // something has gone well since the last trouble
	trouble  bool   // and it has been said
}

// series count what a source does.
type series struct {
	lists, events, failures *metrics.Counter
	heardAt                 atomic.Int64 // when etcd said last how things are, in Unix nanoseconds; 0 is never
}

func (s *series) register(reg *metrics.Registry, prefix string) {
	s.lists = reg.Counter("seamark_etcd_lists_total", "Lists of all keys under the prefix.", "path", prefix)
	s.events = reg.Counter("seamark_etcd_events_total", "Changes of keys that the watch has brought.", "path", prefix)
	s.failures = reg.Counter("seamark_etcd_failures_total", "Requests to etcd, and watches, that failed.", "path", prefix)
}

// run follows the prefix until ctx ends.
func (s *source) run(ctx context.Context) {
	for wait := waitLeast; ctx.Err() == nil; wait = min(2*wait, waitMost) {
		s.well = false
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.well {
			wait = waitLeast
		}
		if !s.well || errors.Is(err, errSilent) {
			// From the beginning: a client shows the password and reads the authority when
			// it is made, and takes no member that says nothing.
			s.disconnect()
		}
		s.failed(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// failed says once that there is trouble.
func (s *source) failed(ctx context.Context, err error) {
	s.failures.Add(1)
	if s.trouble {
		return
	}
	s.trouble = true
	meanwhile := "names are answered SERVFAIL until it answers"
	switch {
	case s.tooLarge.Load():
		meanwhile = "each question is asked of it"
	case s.index.synced():
		meanwhile = "the last state is served"
	}
	s.log.Warn(fmt.Sprintf("etcd %s: %v: trying again, %s", s.name(), s.Why(ctx, err), meanwhile))
}

// heard says that the trouble is over.
func (s *source) heard() {
	s.heardAt.Store(time.Now().UnixNano())
	s.well = true
	if s.trouble {
		s.trouble = false
		s.log.Info(fmt.Sprintf("etcd %s: it answers again", s.name()))
	}
}

// age is how old what is known is, in seconds: etcd may have changed since.
func (s *source) age() float64 {
	at := s.heardAt.Load()
	if at == 0 {
		return -1
	}
	return time.Since(time.Unix(0, at)).Seconds()
}

func (s *source) name() string {
	if s.Endpoints == "" {
		return etcdclient.Local
	}
	return s.Endpoints
}

// A making is a client that is being made, which takes as long as it takes to show a
// password. Who needs it meanwhile waits for that, and gets the same; so do those who
// come within a moment of a failure.
type making struct {
	done chan struct{}
	err  error // when done
}

// moment is how long a failure counts for others.
const moment = time.Second

// connect gives the client. It makes one if there is none, and waits for it until ctx
// ends.
func (s *source) connect(ctx context.Context) (*clientv3.Client, error) {
	s.mu.Lock()
	if s.client != nil || s.life.Err() != nil {
		defer s.mu.Unlock()
		return s.client, s.life.Err()
	}
	m := s.making
	if m == nil {
		m = &making{done: make(chan struct{})}
		s.making = m
		s.makers.Go(func() { s.make(m) })
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

// make makes the client.
func (s *source) make(m *making) {
	c, err := s.Client(s.life)
	s.mu.Lock()
	s.client, m.err = c, err
	if err == nil {
		s.making = nil
	}
	s.mu.Unlock()
	close(m.done)
	if err == nil {
		return
	}
	select {
	case <-s.life.Done():
	case <-time.After(moment):
	}
	s.mu.Lock()
	s.making = nil
	s.mu.Unlock()
}

// disconnect ends the client.
func (s *source) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		_ = s.client.Close()
		s.client = nil
	}
}

var (
	errSilent = errors.New("the watch tells nothing, not even that there is nothing")
	errEnded  = errors.New("the watch has ended")
	errBehind = errors.New("a member knows less than others have told")
	// errAnew is no trouble: what is known cannot be gone on from.
	errAnew = errors.New("the keys have to be listed anew")
)

// follow lists, if there is no state yet or it cannot be gone on from, and
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
		if err != errAnew {
			return err
		}
		s.revision = 0
	}
}

// resume asks most of the members where they are. A cluster that is another one, or
// has been set back to an earlier state, would not tell by a watch.
func (s *source) resume(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	r, err := c.Get(ctx, s.prefix, clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	if r.Header.ClusterId != s.cluster || r.Header.Revision < s.revision {
		s.log.Warn(fmt.Sprintf("etcd %s: it is not the one that it was, or has been set back: listing anew", s.name()))
		s.revision = 0
	}
	return nil
}

// watch takes in changes until the watch fails. Asked for a sign of life, etcd
// tells the revision up to which there is nothing new.
func (s *source) watch(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	late := time.AfterFunc(requestTime, cancel) // the watch is there when Watch returns
	// From the revision that is known, and not from the next: of one that is in the
	// future a member gives no sign of life.
	changes := c.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(s.revision), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	if !late.Stop() {
		return errSilent
	}
	s.leases.begin(ctx, c)
	defer s.leases.end()
	timer := time.NewTimer(silence)
	defer timer.Stop()
	asked := false
	for {
		select {
		case <-timer.C:
			if asked {
				return errSilent
			}
			asked = true
			timer.Reset(silence)
			limited, cancel := context.WithTimeout(ctx, silence)
			err := c.RequestProgress(limited)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				return errSilent // the client is looking for a member
			}
			if err != nil {
				return err
			}
		case r, ok := <-changes:
			if !ok {
				return errEnded
			}
			asked = false
			timer.Reset(silence)
			if err := s.take(r); err != nil {
				return err
			}
		}
	}
}

// take brings what the watch tells into the index, each run of puts at once.
func (s *source) take(r clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		if errors.Is(err, rpctypes.ErrCompacted) || r.CompactRevision > 0 {
			s.log.Info(fmt.Sprintf("etcd %s: the history since the last change is gone: listing anew", s.name()))
			return errAnew
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
	for _, e := range r.Events {
		if e.Type == clientv3.EventTypeDelete {
			s.put(puts)
			puts = puts[:0]
			s.index.delete(e.Kv.Key)
			continue
		}
		puts = append(puts, e.Kv)
	}
	s.put(puts)
	if n := len(r.Events); n > 0 {
		// Not the header's revision: there may be more changes up to that.
		s.revision = r.Events[n-1].Kv.ModRevision
	}
	s.heard()
	if int64(s.index.count()) > s.most {
		return errAnew
	}
	return nil
}

func (s *source) put(kvs []*mvccpb.KeyValue) {
	if len(kvs) == 0 {
		return
	}
	all := make([]keyValue, 0, len(kvs))
	for _, kv := range kvs {
		if string(kv.Key[len(s.prefix):]) != "config" { // SkyDNS's configuration, which is no message
			all = append(all, keyValue{key: kv.Key, value: kv.Value, lease: s.leases.of(clientv3.LeaseID(kv.Lease))})
		}
	}
	s.index.put(all...)
}

// list reads all keys as they are at one revision, page by page.
func (s *source) list(ctx context.Context, c *clientv3.Client) error {
	end := clientv3.GetPrefixRangeEnd(s.prefix)
	from, limit := s.prefix, int64(pageFirst)
	revision, total := int64(0), int64(0)
	garbage := 0
	s.lists.Add(1)
	s.index.begin()
	for {
		r, err := s.page(ctx, c, from, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(revision))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return errAnew // it has taken so long
		}
		if err != nil {
			return err
		}
		if revision == 0 {
			revision, total, s.cluster = r.Header.Revision, r.Count, r.Header.ClusterId
			if total > s.most {
				return s.wait(ctx, c, total)
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
		if garbage += bytes; garbage > collectEvery && s.index.synced() {
			runtime.GC()
			garbage = 0
		}
		from, limit = string(r.Kvs[len(r.Kvs)-1].Key)+"\x00", max(1, min(int64(len(r.Kvs)*pageBytes/bytes), 2*limit, pageMost))
	}
	s.index.end()
	s.tooLarge.Store(false)
	s.revision = revision
	s.heard()
	s.log.Info(fmt.Sprintf("etcd %s: %d keys below %s", s.name(), total, s.prefix))
	if total >= manyListed {
		debug.FreeOSMemory() // what has been received is much more than what is kept of it
	}
	return nil
}

// page asks for a part of a list. If a member says nothing in the middle of one, it asks
// again, which goes to another.
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

// wait has each question asked of etcd, until there are fewer keys: then it says
// errAnew.
func (s *source) wait(ctx context.Context, c *clientv3.Client, total int64) error {
	if !s.tooLarge.Swap(true) {
		s.log.Warn(fmt.Sprintf("etcd %s: %d keys below %s are more than the %d that are held: each question is asked of etcd", s.name(), total, s.prefix, s.most))
	}
	s.index.clear()
	s.heard()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(countEvery):
		}
		r, err := s.page(ctx, c, s.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		s.heard()
		if r.Count <= s.most*9/10 {
			return errAnew
		}
	}
}
