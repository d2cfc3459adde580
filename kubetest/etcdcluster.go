package kubetest

import (
	"context"
	"crypto/tls"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seamark/seamark/kubetest/control"
	"github.com/seamark/seamark/kubetest/gate"
	"github.com/seamark/seamark/sys/certpool"
)

// EtcdMembers is the number of members of an [EtcdCluster], unless
// EtcdOptions.Members is set: it survives the loss of one.
const EtcdMembers = 3

// EtcdOptions describe an [EtcdCluster].
type EtcdOptions = control.EtcdOptions

// An EtcdCluster is some members of etcd, numbered from 0, with a proxy in front
// of each of their ports. A member can crash and restart, be partitioned from other
// members or from clients, and be made the leader. Call [StartEtcdCluster] with a
// fresh directory and t.Cleanup(c.Stop). Its methods may be called from several
// goroutines.
type EtcdCluster struct {
	*child
	options EtcdOptions
	info    control.Etcd
	tls     *tls.Config // nil without EtcdOptions.TLS
}

// StartEtcdCluster runs the members with their data in dir, which must exist and
// be empty, and returns when they serve and one of them is the leader. The context
// bounds the start alone; the cluster runs until Stop.
func StartEtcdCluster(ctx context.Context, dir string, options EtcdOptions) (*EtcdCluster, error) {
	p, err := startChild(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting an etcd cluster: %w", err)
	}
	c := &EtcdCluster{child: p, options: options}
	args := control.StartEtcdArgs{Wait: wait(ctx), Dir: dir, Options: options}
	if err = p.call(ctx, control.Machinery, "StartEtcd", args, &c.info); err == nil && options.TLS {
		c.tls, err = c.clientTLS()
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("starting an etcd cluster: %w", err)
	}
	return c, nil
}

func (c *EtcdCluster) call(ctx context.Context, command string, args, reply any) error {
	return c.child.call(ctx, control.EtcdName, command, args, reply)
}

// clientTLS reads the certificate of clients.
func (c *EtcdCluster) clientTLS() (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(c.info.Cert, c.info.Key)
	if err != nil {
		return nil, err
	}
	ca, err := certpool.Read(c.info.CA)
	return &tls.Config{RootCAs: ca, Certificates: []tls.Certificate{own}}, err
}

// Endpoints returns the URLs of the members for clients, through the proxies, by
// member. They stay the same for the life of the cluster.
func (c *EtcdCluster) Endpoints() []string { return c.info.Endpoints }

// Direct returns the URLs of the running members themselves, which no fault
// affects.
func (c *EtcdCluster) Direct() (urls []string) {
	_ = c.call(context.Background(), "Direct", control.None{}, &urls) // none if the process has ended
	return urls
}

// ClientTLS returns the paths of PEM files: a certificate that the cluster accepts,
// its key, and the authority of the members' certificates.
func (c *EtcdCluster) ClientTLS() (cert, key, ca string) { return c.info.Cert, c.info.Key, c.info.CA }

// Config returns a new configuration of a client that may read and write every key,
// with all endpoints and without a log.
func (c *EtcdCluster) Config() clientv3.Config {
	return clientv3.Config{
		Endpoints: c.Endpoints(), Logger: zap.NewNop(), TLS: c.tls.Clone(),
		Username: c.options.Username, Password: c.options.Password,
	}
}

// Kill stops a member as a crash would: its connections are cut without a close
// notification, and leadership is not transferred. Its data stay. New connections
// are closed at once. Kill does nothing if the member does not run.
func (c *EtcdCluster) Kill(member int) {
	_ = c.call(context.Background(), "Kill", member, &control.None{})
}

// Restart starts a member after Kill, with its data and on the same addresses, and
// returns when it serves; for that it must reach the other members. It does nothing
// if the member runs. The context bounds the start alone. Restarts of several
// members may run at once.
func (c *EtcdCluster) Restart(ctx context.Context, member int) error {
	return c.call(ctx, "Restart", control.MemberArgs{Wait: wait(ctx), Member: member}, &control.None{})
}

// Clients sets the fault between a member and its clients. It applies to open
// connections, too.
func (c *EtcdCluster) Clients(member int, f gate.Fault) {
	_ = c.call(context.Background(), "Clients", control.FaultArgs{Member: member, Fault: f}, &control.None{})
}

// Link sets the fault between two members, in both directions.
func (c *EtcdCluster) Link(one, other int, f gate.Fault) {
	_ = c.call(context.Background(), "Link", control.FaultArgs{Member: one, Other: other, Fault: f}, &control.None{})
}

// Peers sets the fault between a member and all others: a partition of the cluster.
func (c *EtcdCluster) Peers(member int, f gate.Fault) {
	for other := range EtcdMembers {
		if other != member {
			c.Link(member, other, f)
		}
	}
}

// Heal removes every fault set by Clients, Link and Peers.
func (c *EtcdCluster) Heal() {
	for member := range EtcdMembers {
		c.Clients(member, gate.Open)
		c.Peers(member, gate.Open)
	}
}

// Leader waits until a majority of members agrees on a leader and returns its
// number. Members in except do not count: a test that has partitioned the leader
// waits for another one.
func (c *EtcdCluster) Leader(ctx context.Context, except ...int) (member int, err error) {
	err = c.call(ctx, "Leader", control.LeaderArgs{Wait: wait(ctx), Except: except}, &member)
	return member, err
}

// Lead transfers leadership to a member and returns when a majority agrees.
func (c *EtcdCluster) Lead(ctx context.Context, member int) error {
	return c.call(ctx, "Lead", control.MemberArgs{Wait: wait(ctx), Member: member}, &control.None{})
}

// Compact drops the history before the current revision and returns that revision:
// a watch from an older one fails with ErrCompacted.
func (c *EtcdCluster) Compact(ctx context.Context) (revision int64, err error) {
	err = c.call(ctx, "Compact", wait(ctx), &revision)
	return revision, err
}

// Fill writes until the quota is exceeded: afterwards puts fail with ErrNoSpace.
// Use it with a small Quota.
func (c *EtcdCluster) Fill(ctx context.Context) error {
	return c.call(ctx, "Fill", wait(ctx), &control.None{})
}

// Free makes room after Fill, as an operator does: it deletes, compacts,
// defragments the running members until each has at most half of its quota, and
// disarms the alarm.
func (c *EtcdCluster) Free(ctx context.Context) error {
	return c.call(ctx, "Free", wait(ctx), &control.None{})
}
