package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seamark/seamark/internal/etcdclient"
)

const (
	// askTime is how long one attempt to ask for one question may take, and attempts
	// how many there are: the next one goes to another member.
	askTime  = 1500 * time.Millisecond
	attempts = 3
	// askedPage is how many keys one request for a question brings, and askedMost how
	// many a question can have: each has to be looked at, since the one with the record
	// that is asked for may be the last.
	askedPage = 5000
	askedMost = 100000
)

var errTooMany = fmt.Errorf("more than %d keys are below the name", askedMost)

// subtree reads a key and those below it, as they are at one time.
func subtree(ctx context.Context, c *clientv3.Client, key string) (parts []*clientv3.GetResponse, err error) {
	r, err := c.Txn(ctx).Then(
		clientv3.OpGet(key),
		clientv3.OpGet(key+"/", clientv3.WithPrefix(), clientv3.WithLimit(askedPage)),
	).Commit()
	if err != nil {
		return nil, err
	}
	for _, part := range r.Responses {
		parts = append(parts, (*clientv3.GetResponse)(part.GetResponseRange()))
	}
	end := clientv3.GetPrefixRangeEnd(key + "/")
	for last := parts[len(parts)-1]; last.More && len(last.Kvs) > 0; {
		if last.Count > askedMost && len(parts) == 2 || len(parts) > askedMost/askedPage+1 {
			return nil, errTooMany
		}
		from := string(last.Kvs[len(last.Kvs)-1].Key) + "\x00"
		if last, err = c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(askedPage), clientv3.WithRev(r.Header.Revision)); err != nil {
			return nil, err
		}
		parts = append(parts, last)
	}
	return parts, nil
}

// ask reads what etcd has at a key and below it, for one question.
func (s *source) ask(ctx context.Context, key string) (all []keyValue, err error) {
	var parts []*clientv3.GetResponse
	var c *clientv3.Client
	for range attempts {
		if c, err = s.connect(ctx); err != nil {
			return nil, fmt.Errorf("asking etcd: %w", etcdclient.Trouble(err))
		}
		limited, cancel := context.WithTimeout(ctx, askTime)
		parts, err = subtree(limited, c, key)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, errTooMany) {
			break
		}
		s.failures.Add(1)
	}
	if err != nil {
		return nil, fmt.Errorf("asking etcd for %s: %w", key, etcdclient.Trouble(err))
	}
	var ids []clientv3.LeaseID
	for _, part := range parts {
		for _, kv := range part.Kvs {
			id := clientv3.LeaseID(kv.Lease)
			ids = append(ids, id)
			all = append(all, keyValue{key: kv.Key, value: kv.Value, lease: s.leases.of(id)})
		}
	}
	s.leases.learnAll(ctx, c, ids)
	return all, nil
}
