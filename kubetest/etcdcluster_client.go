package kubetest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Endpoints returns the URLs of the members for clients, through the proxies, in
// the order of their numbers. They stay the same as long as the cluster.
func (c *EtcdCluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, c.scheme()+"://"+m.clients.addr())
	}
	return all
}

// ClientTLS returns the paths of PEM files: a certificate that the cluster lets
// in, its key, and the authority of the members' certificates.
func (c *EtcdCluster) ClientTLS() (cert, key, ca string) {
	return c.file("client.crt"), c.file("client.key"), c.file("ca.crt")
}

// Config returns a new configuration of a client that may do everything, with all
// endpoints, and a log that says nothing.
func (c *EtcdCluster) Config() clientv3.Config {
	k := c.quiet
	k.Endpoints = c.Endpoints()
	k.Username, k.Password = c.options.Username, c.options.Password
	if c.options.TLS {
		cert, key, _ := c.ClientTLS()
		own, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			panic(err) // who has removed the files that prepare read?
		}
		k.TLS = &tls.Config{RootCAs: c.certs.pool(), Certificates: []tls.Certificate{own}}
	}
	return k
}

// ask calls do with a client whom no fault of the gates concerns. The context of
// do ends after askTime.
func (c *EtcdCluster) ask(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	k := c.Config()
	k.Context, k.Endpoints = ctx, nil
	for _, m := range c.members {
		if e := m.etcd(); e != nil {
			k.Endpoints = append(k.Endpoints, c.scheme()+"://"+e.Clients[0].Addr().String())
		}
	}
	if k.Username != "" {
		k.Username = "root"
	}
	client, err := clientv3.New(k)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}

// enableAuth makes the users, and lets nobody else in from then on.
func enableAuth(ctx context.Context, k *clientv3.Client, o EtcdOptions) error {
	const everyKey, andAllBehind = "\x00", "\x00"
	var errs []error
	try := func(_ any, err error) { errs = append(errs, err) }
	try(k.UserAdd(ctx, "root", o.Password))
	try(k.UserGrantRole(ctx, "root", "root"))
	if o.Username != "root" {
		try(k.RoleAdd(ctx, "everything"))
		try(k.RoleGrantPermission(ctx, "everything", everyKey, andAllBehind, clientv3.PermissionType(clientv3.PermReadWrite)))
		try(k.UserAdd(ctx, o.Username, o.Password))
		try(k.UserGrantRole(ctx, o.Username, "everything"))
	}
	try(k.AuthEnable(ctx))
	return errors.Join(errs...)
}

// Compact drops the history up to now, and returns the revision of now: a watch
// from an older one fails with ErrCompacted.
func (c *EtcdCluster) Compact(ctx context.Context) (revision int64, err error) {
	err = c.ask(ctx, func(ctx context.Context, k *clientv3.Client) error {
		now, err := k.Get(ctx, "\x00")
		if err != nil {
			return err
		}
		revision = now.Header.Revision
		_, err = k.Compact(ctx, revision, clientv3.WithCompactPhysical())
		if errors.Is(err, rpctypes.ErrCompacted) { // nothing has been written since the last time
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("compacting an etcd cluster: %w", err)
	}
	return revision, nil
}

// filling is what Fill's keys begin with.
const filling = "/kubetest-fills-etcd/"

// shrink defragments a member until it has so many bytes at most: what a compaction
// drops is not gone from each member when the call for it returns.
func shrink(ctx context.Context, k *clientv3.Client, member string, size int64) error {
	for {
		if _, err := k.Defragment(ctx, member); err != nil {
			return err
		}
		now, err := k.Status(ctx, member)
		if err != nil || now.DbSize <= size {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s still has %d bytes: %w", member, now.DbSize, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Fill writes until the quota is exceeded: from then on puts fail with ErrNoSpace.
// It is for clusters with a small Quota.
func (c *EtcdCluster) Fill(ctx context.Context) error {
	err := c.ask(ctx, func(ctx context.Context, k *clientv3.Client) error {
		value := string(make([]byte, 256<<10))
		for i := 0; ; i++ {
			_, err := k.Put(ctx, fmt.Sprintf("%s%d", filling, i), value)
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
// defragments the members that run until each has half of its quota at most, and
// takes the alarm back.
func (c *EtcdCluster) Free(ctx context.Context) error {
	err := c.ask(ctx, func(ctx context.Context, k *clientv3.Client) error {
		_, err := k.Delete(ctx, filling, clientv3.WithPrefix())
		return err
	})
	if err == nil {
		_, err = c.Compact(ctx)
	}
	if err == nil {
		err = c.ask(ctx, func(ctx context.Context, k *clientv3.Client) error {
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
