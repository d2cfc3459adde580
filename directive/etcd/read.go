package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seamark/seamark/cluster/etcdclient"
)

const (
	// readTimeout is the time limit of one attempt to read the keys of a query.
	// The next attempt uses another member of etcd.
	readTimeout  = 1500 * time.Millisecond
	readAttempts = 3
	// readPageKeys is the largest number of keys that one request returns, and
	// readMaxKeys the largest number of keys at and below a query name. All of
	// them are read, since any one may hold the record.
	readPageKeys = 5000
	readMaxKeys  = 100000
)

var errTooMany = fmt.Errorf("the name has more than %d keys", readMaxKeys)

// readSubtree reads a key and the keys below it at one revision.
func readSubtree(ctx context.Context, c *clientv3.Client, key string) (responses []*clientv3.GetResponse, err error) {
	r, err := c.Txn(ctx).Then(
		clientv3.OpGet(key),
		clientv3.OpGet(key+"/", clientv3.WithPrefix(), clientv3.WithLimit(readPageKeys)),
	).Commit()
	if err != nil {
		return nil, err
	}

	for _, op := range r.Responses {
		responses = append(responses, (*clientv3.GetResponse)(op.GetResponseRange()))
	}

	end := clientv3.GetPrefixRangeEnd(key + "/")
	for last := responses[len(responses)-1]; last.More && len(last.Kvs) > 0; {
		if last.Count > readMaxKeys && len(responses) == 2 || len(responses) > readMaxKeys/readPageKeys+1 {
			return nil, errTooMany
		}
		from := string(last.Kvs[len(last.Kvs)-1].Key) + "\x00"
		last, err = c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(readPageKeys),
			clientv3.WithRev(r.Header.Revision))
		if err != nil {
			return nil, err
		}
		responses = append(responses, last)
	}
	return responses, nil
}

// readKeys reads key and the keys below it, for one query.
func (s *source) readKeys(ctx context.Context, key string) (kvs []keyValue, err error) {
	var responses []*clientv3.GetResponse
	var c *clientv3.Client
	for range readAttempts {
		if c, err = s.connect(ctx); err != nil {
			return nil, fmt.Errorf("connecting to etcd: %w", etcdclient.Describe(err))
		}

		attempt, cancel := context.WithTimeout(ctx, readTimeout)
		responses, err = readSubtree(attempt, c, key)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, errTooMany) {
			break
		}
		s.failures.Add(1)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s from etcd: %w", key, etcdclient.Describe(err))
	}

	var ids []clientv3.LeaseID
	for _, r := range responses {
		for _, kv := range r.Kvs {
			id := clientv3.LeaseID(kv.Lease)
			ids = append(ids, id)
			kvs = append(kvs, keyValue{key: kv.Key, value: kv.Value, lease: s.leases.get(id)})
		}
	}
	s.leases.refreshAll(ctx, c, ids)
	return kvs, nil
}
