package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/sys/memory"
)

const (
	// readTimeout is the time limit of one attempt to read the keys of a query.
	// The next attempt uses another member of etcd.
	readTimeout  = 1500 * time.Millisecond
	readAttempts = 3
	// readMaxKeys is the largest number of keys at and below a query name, and readMaxBytes
	// their largest size. All of them are read, since any one may hold the record.
	readMaxKeys  = 100000
	readMaxBytes = 64 << 20
	// readFactor is the memory that a reading needs for each byte of keys and values: while a
	// page is parsed, it exists as etcd's message, and as the entries of the index.
	readFactor = 3
)

// A reading is the keys at a path and below it. Queries that need the same keys while these are being
// read share one reading: a client may ask for a name with many keys as often as it likes.
type reading struct {
	done  chan struct{}
	index *index // nil if err is set; both are valid once done is closed
	err   error
	claim *memory.Claim
	users int // the queries, and fill; guarded by the mutex of readings
}

// readings are the readings that have not ended.
type readings struct {
	mu     sync.Mutex
	byPath map[string]*reading
}

// join returns the reading of a path, and whether it is a new one, which the caller must fill. The
// caller leaves it in the end.
func (rs *readings) join(path string, budget *memory.Budget) (r *reading, created bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r = rs.byPath[path]; r != nil {
		r.users++
		return r, false
	}

	if rs.byPath == nil {
		rs.byPath = map[string]*reading{}
	}
	r = &reading{done: make(chan struct{}), claim: budget.Claim(memory.Transfers), users: 2}
	rs.byPath[path] = r
	return r, true
}

// end ends a reading: a later query sees what has changed since it began.
func (rs *readings) end(path string, r *reading) {
	rs.mu.Lock()
	delete(rs.byPath, path)
	rs.mu.Unlock()
	close(r.done)
}

// leave ends the use of a reading.
func (rs *readings) leave(r *reading) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.users--; r.users == 0 {
		r.claim.Release()
	}
}

// read returns the keys at a path and below it. The caller calls release, unless there is an error,
// once it does not use them any more.
func (s *source) read(ctx context.Context, path string) (x *index, release func(), err error) {
	r, created := s.readings.join(path, s.memory)
	if created {
		s.background.Go(func() {
			defer s.readings.leave(r)
			defer s.readings.end(path, r)
			r.index, r.err = s.readIndex(path, r.claim)
		})
	}

	select {
	case <-r.done:
		err = r.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.readings.leave(r)
		return nil, nil, err
	}
	return r.index, func() { s.readings.leave(r) }, nil
}

// readIndex reads the keys at a path and below it.
func (s *source) readIndex(path string, claim *memory.Claim) (*index, error) {
	key := keyOf(s.prefix, []byte(path))
	ctx, cancel := context.WithTimeout(s.task.Context(), readAttempts*readTimeout)
	defer cancel()

	for attempts := 1; ; attempts++ {
		c, err := s.connect(ctx)
		if err != nil {
			return nil, fmt.Errorf("connecting to etcd: %w", etcdclient.Describe(err))
		}

		t := subtree{source: s, index: s.index.newQueryIndex(), claim: claim}
		attempt, cancel := context.WithTimeout(ctx, readTimeout)
		err = t.read(attempt, c, key)
		cancel()
		if err == nil {
			waits, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			s.leases.refreshAll(waits, c, t.leases)
			return t.index, nil
		}

		if t.refused || attempts == readAttempts || ctx.Err() != nil {
			return nil, fmt.Errorf("reading %s from etcd: %w", key, etcdclient.Describe(err))
		}
		s.failures.Add(1)
	}
}

// A subtree is one attempt to read a key and the keys below it.
type subtree struct {
	*source
	index   *index
	leases  []clientv3.LeaseID
	claim   *memory.Claim
	keys    int
	bytes   int64
	refused bool // the keys are too many, or too large
}

// read reads all pages, at one revision.
func (t *subtree) read(ctx context.Context, c *clientv3.Client, key string) error {
	below, size := key+"/", pageSize(firstPageKeys)
	first, err := c.Txn(ctx).Then(
		clientv3.OpGet(key),
		clientv3.OpGet(below, clientv3.WithPrefix(), clientv3.WithLimit(int64(size))),
	).Commit()
	if err != nil {
		return err
	}
	if err := t.add(first.Responses[0].GetResponseRange().Kvs); err != nil {
		return err
	}

	page := (*clientv3.GetResponse)(first.Responses[1].GetResponseRange())
	for end := clientv3.GetPrefixRangeEnd(below); ; {
		if err := t.add(page.Kvs); err != nil {
			return err
		}
		if !page.More || len(page.Kvs) == 0 {
			t.index.endList()
			return nil
		}

		page, err = c.Get(ctx, size.next(page.Kvs), clientv3.WithRange(end), clientv3.WithLimit(int64(size)),
			clientv3.WithRev(first.Header.Revision))
		if err != nil {
			return err
		}
	}
}

// add adds a page to the index.
func (t *subtree) add(kvs []*mvccpb.KeyValue) error {
	t.keys += len(kvs)
	t.bytes += sizeOf(kvs)
	t.refused = true
	if t.keys > readMaxKeys || t.bytes > readMaxBytes {
		return fmt.Errorf("the name has more than %d keys, or more than %d MB", readMaxKeys, readMaxBytes>>20)
	}
	if err := t.claim.Grow(readFactor * t.bytes); err != nil {
		return err
	}
	t.refused = false

	for _, kv := range kvs {
		t.leases = append(t.leases, clientv3.LeaseID(kv.Lease))
	}
	t.index.put(t.messages(kvs)...)
	return nil
}

// A pageSize is how many keys the next page of a list has.
type pageSize int64

// next returns where the page after kvs begins, and sets its size: as many keys as have about
// pageBytes, if they are like these.
func (p *pageSize) next(kvs []*mvccpb.KeyValue) (from string) {
	n := int64(len(kvs))
	*p = max(1, min(pageSize(n*pageBytes/max(1, sizeOf(kvs))), 2**p, maxPageKeys))
	return string(kvs[n-1].Key) + "\x00"
}

// sizeOf returns the bytes of keys and their values.
func sizeOf(kvs []*mvccpb.KeyValue) (bytes int64) {
	for _, kv := range kvs {
		bytes += int64(len(kv.Key) + len(kv.Value))
	}
	return bytes
}
