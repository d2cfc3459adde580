package machinery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seamark/seamark/kubetest/control"
	"github.com/seamark/seamark/sys/clock"
)

// Endpoints returns the URLs of the members for clients, through the proxies, by
// member. They stay the same as long as the cluster.
func (c *EtcdCluster) Endpoints() []string {
	var urls []string
	for _, m := range c.members {
		urls = append(urls, c.scheme()+"://"+m.clients.Addr())
	}
	return urls
}

// Direct returns the URLs of the running members themselves, which no fault
// affects.
func (c *EtcdCluster) Direct(_ control.None, urls *[]string) error {
	for _, m := range c.members {
		if e := m.etcd(); e != nil {
			*urls = append(*urls, c.scheme()+"://"+e.Clients[0].Addr().String())
		}
	}
	return nil
}

// ClientTLS returns the paths of PEM files: a certificate that the cluster accepts,
// its key, and the authority of the members' certificates.
func (c *EtcdCluster) ClientTLS() (cert, key, ca string) {
	return c.file("client.crt"), c.file("client.key"), c.file("ca.crt")
}

// admin calls do with a client of the running members that no fault affects. The
// context of do ends after adminTimeout.
func (c *EtcdCluster) admin(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	config := clientv3.Config{
		Context: ctx, Logger: zap.NewNop(),
		Username: c.options.Username, Password: c.options.Password,
	}
	if err := c.Direct(control.None{}, &config.Endpoints); err != nil {
		return err
	}
	if config.Username != "" {
		config.Username = "root"
	}
	if c.options.TLS {
		own, err := tls.LoadX509KeyPair(c.file("client.crt"), c.file("client.key"))
		if err != nil {
			return err
		}
		config.TLS = &tls.Config{RootCAs: c.certs.Pool(), Certificates: []tls.Certificate{own}}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}

// enableAuth adds the users and turns authentication on.
func enableAuth(ctx context.Context, k *clientv3.Client, o control.EtcdOptions) error {
	const firstKey, noEnd = "\x00", "\x00"
	var errs []error
	try := func(_ any, err error) { errs = append(errs, err) }
	try(k.UserAdd(ctx, "root", o.Password))
	try(k.UserGrantRole(ctx, "root", "root"))
	if o.Username != "root" {
		try(k.RoleAdd(ctx, "everything"))
		try(k.RoleGrantPermission(ctx, "everything", firstKey, noEnd, clientv3.PermissionType(clientv3.PermReadWrite)))
		try(k.UserAdd(ctx, o.Username, o.Password))
		try(k.UserGrantRole(ctx, o.Username, "everything"))
	}
	try(k.AuthEnable(ctx))
	return errors.Join(errs...)
}

// Compact drops the history before the current revision and returns that revision:
// a watch from an older one fails with ErrCompacted.
func (c *EtcdCluster) Compact(w control.Wait, revision *int64) error {
	ctx, cancel := w.Context()
	defer cancel()
	err := c.admin(ctx, func(ctx context.Context, k *clientv3.Client) error {
		now, err := k.Get(ctx, "\x00")
		if err != nil {
			return err
		}
		*revision = now.Header.Revision
		_, err = k.Compact(ctx, *revision, clientv3.WithCompactPhysical())
		if errors.Is(err, rpctypes.ErrCompacted) { // nothing was written since the last compaction
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("compacting an etcd cluster: %w", err)
	}
	return nil
}

// fillPrefix is the prefix of the keys that Fill writes.
const fillPrefix = "/kubetest-fills-etcd/"

// shrink defragments a member until it has at most size bytes: a compaction may
// return before every member has dropped the data.
func shrink(ctx context.Context, k *clientv3.Client, member string, size int64) error {
	for {
		if _, err := k.Defragment(ctx, member); err != nil {
			return err
		}
		now, err := k.Status(ctx, member)
		if err != nil || now.DbSize <= size {
			return err
		}
		if !clock.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s still has %d bytes: %w", member, now.DbSize, ctx.Err())
		}
	}
}

// Fill writes until the quota is exceeded: afterwards puts fail with ErrNoSpace.
// Use it with a small Quota.
func (c *EtcdCluster) Fill(w control.Wait, _ *control.None) error {
	ctx, cancel := w.Context()
	defer cancel()
	err := c.admin(ctx, func(ctx context.Context, k *clientv3.Client) error {
		value := string(make([]byte, 256<<10))
		for i := 0; ; i++ {
			_, err := k.Put(ctx, fmt.Sprintf("%s%d", fillPrefix, i), value)
			if errors.Is(err, rpctypes.ErrNoSpace) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("filling an etcd cluster: %w", err)
	}
	return nil
}

// Free makes room after Fill, as an operator does: it deletes, compacts,
// defragments the running members until each has at most half of its quota, and
// disarms the alarm.
func (c *EtcdCluster) Free(w control.Wait, _ *control.None) error {
	ctx, cancel := w.Context()
	defer cancel()
	err := c.admin(ctx, func(ctx context.Context, k *clientv3.Client) error {
		_, err := k.Delete(ctx, fillPrefix, clientv3.WithPrefix())
		return err
	})
	if err == nil {
		err = c.Compact(w, new(int64))
	}
	if err == nil {
		err = c.admin(ctx, func(ctx context.Context, k *clientv3.Client) error {
			for _, member := range k.Endpoints() {
				if err := shrink(ctx, k, member, c.options.Quota/2); err != nil {
					return err
				}
			}
			_, err := k.AlarmDisarm(ctx, &clientv3.AlarmMember{})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("freeing an etcd cluster: %w", err)
	}
	return nil
}
