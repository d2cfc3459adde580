package machinery

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/seamark/seamark/kubetest/certs"
	"github.com/seamark/seamark/kubetest/control"
	"github.com/seamark/seamark/kubetest/gate"
	"github.com/seamark/seamark/sys/clock"
)

// With etcd's shortest election timeout, three members on two busy cores elect
// leaders without cause. These, in milliseconds, replace a lost leader in about a
// second.
const etcdTick, etcdElection = 50, 500

// adminTimeout bounds a request of a cluster's own methods to its members.
const adminTimeout = 20 * time.Second

// An EtcdCluster runs members of etcd in this process, numbered from 0, with a
// proxy in front of each of their ports. A member can crash and restart, be
// partitioned from other members or from clients, and be made the leader. Its
// methods may be called from several goroutines; methods that start or stop members
// wait for each other. Those with a reply are the commands of [control.EtcdName].
type EtcdCluster struct {
	dir     string
	options control.EtcdOptions
	certs   *certs.Authority
	members []*etcdMember

	changing sync.Mutex // held while members start or stop
}

// An etcdMember is a member and its gates, which exist as long as the cluster.
type etcdMember struct {
	name           string
	clients, peers *gate.Gate

	mu      sync.Mutex
	running *embed.Etcd // nil while it does not run
}

func (m *etcdMember) etcd() *embed.Etcd {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// StartEtcdCluster runs the members with their data in dir, which must exist and
// be empty, and returns when they serve and one of them is the leader. The context bounds
// the start alone; the cluster runs until Stop.
func StartEtcdCluster(ctx context.Context, dir string, options control.EtcdOptions) (*EtcdCluster, error) {
	c := &EtcdCluster{dir: dir, members: make([]*etcdMember, cmp.Or(options.Members, 3))}
	if err := c.prepare(); err != nil {
		c.Stop()
		return nil, fmt.Errorf("preparing an etcd cluster: %w", err)
	}
	c.options = control.EtcdOptions{TLS: options.TLS, Quota: options.Quota}
	if err := c.startAll(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("starting an etcd cluster: %w", err)
	}
	if options.Username != "" {
		if err := c.admin(ctx, func(ctx context.Context,
			k *clientv3.Client) error {
			return enableAuth(ctx, k, options)
		}); err != nil {
			c.Stop()
			return nil, fmt.Errorf("adding users to an etcd cluster: %w", err)
		}
	}
	c.options = options
	return c, nil
}

// prepare writes the certificates and opens the gates.
func (c *EtcdCluster) prepare() error {
	var err error
	if c.certs, err = certs.New(); err != nil {
		return err
	}
	if err := os.WriteFile(c.file("ca.crt"), c.certs.CA, 0o600); err != nil {
		return err
	}
	if err := c.certify("client", x509.ExtKeyUsageClientAuth); err != nil {
		return err
	}

	for i := range c.members {
		m := &etcdMember{name: fmt.Sprintf("m%d", i)}
		c.members[i] = m

		// A member is a server to its clients and a client of the other members.
		if err := c.certify(m.name, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth); err != nil {
			return err
		}

		own, err := tls.LoadX509KeyPair(c.file(m.name+".crt"), c.file(m.name+".key"))
		if err != nil {
			return err
		}
		if m.clients, err = gate.New(nil); err != nil {
			return err
		}

		// All members use one list of addresses, so only the certificate of a
		// connection identifies its member.
		m.peers, err = gate.New(&tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: c.certs.Pool(),
			ClientAuth: tls.RequireAndVerifyClientCert})
		if err != nil {
			return err
		}
	}

	return nil
}

func (c *EtcdCluster) file(name string) string { return filepath.Join(c.dir, name) }

// certify writes name.crt and name.key.
func (c *EtcdCluster) certify(name string, usages ...x509.ExtKeyUsage) error {
	cert, key, err := c.certs.Sign(name, usages...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file(name+".crt"), cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.file(name+".key"), key, 0o600)
}

// config returns the configuration of a member, the same for each of its runs.
func (c *EtcdCluster) config(m *etcdMember) *embed.Config {
	e := etcdConfig(c.file(m.name))
	e.Name = m.name
	e.ListenClientUrls = []url.URL{{Scheme: c.scheme(), Host: "127.0.0.1:0"}}
	e.AdvertiseClientUrls = []url.URL{{Scheme: c.scheme(), Host: m.clients.Addr()}}

	// The gate terminates TLS.
	e.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	e.AdvertisePeerUrls = []url.URL{{Scheme: "https", Host: m.peers.Addr()}}
	e.PeerTLSInfo.CertFile, e.PeerTLSInfo.KeyFile = c.file(m.name+".crt"), c.file(m.name+".key")
	e.PeerTLSInfo.TrustedCAFile, e.PeerTLSInfo.ClientCertAuth = c.file("ca.crt"), true
	if c.options.TLS {
		e.ClientTLSInfo = e.PeerTLSInfo
	}

	var all []string
	for _, other := range c.members {
		all = append(all, other.name+"=https://"+other.peers.Addr())
	}

	e.InitialCluster = strings.Join(all, ",")
	e.QuotaBackendBytes = c.options.Quota
	e.BcryptCost = 4 // the least
	if len(c.members) > 1 {
		e.TickMs, e.ElectionMs = etcdTick, etcdElection
	}
	return e
}

func (c *EtcdCluster) scheme() string {
	if c.options.TLS {
		return "https"
	}
	return "http"
}

// startAll starts the members concurrently: a new cluster serves when a majority
// runs.
func (c *EtcdCluster) startAll(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(c.members))
	for i := range c.members {
		all.Go(func() { errs[i] = c.start(ctx, c.members[i]) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := c.leader(ctx)
	return err
}

// start starts a stopped member and waits until it serves.
func (c *EtcdCluster) start(ctx context.Context, m *etcdMember) error {
	e, err := embed.StartEtcd(c.config(m))
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.running = e
	m.mu.Unlock()
	m.peers.SetTarget(e.Peers[0].Addr().String())
	m.clients.SetTarget(e.Clients[0].Addr().String())
	if err := awaitServing(ctx, e); err != nil {
		m.crash()
		return fmt.Errorf("%s does not serve: %w", m.name, err)
	}
	return nil
}

// crash stops a member, if it runs, as a crash would.
func (m *etcdMember) crash() {
	for _, g := range []*gate.Gate{m.clients, m.peers} {
		if g != nil {
			g.SetTarget("")
		}
	}
	m.mu.Lock()
	e := m.running
	m.running = nil
	m.mu.Unlock()
	if e != nil {
		e.Server.HardStop() // without transferring leadership
		e.Close()
	}
}

// Kill stops a member as a crash would: its connections are cut without a close
// notification, and leadership is not transferred. Its data is kept. New connections
// are closed at once. Kill does nothing if the member is not running.
func (c *EtcdCluster) Kill(member int, _ *control.None) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.members[member].crash()
	return nil
}

// Restart starts a member after Kill, with its data and on the same addresses, and
// returns when it serves; for that it must reach the other members. It does
// nothing if the member runs. The context bounds the start alone. Restarts of
// several members may run at once.
func (c *EtcdCluster) Restart(a control.MemberArgs, _ *control.None) error {
	ctx, cancel := a.Context()
	defer cancel()
	m := c.members[a.Member]
	if m.etcd() != nil {
		return nil
	}
	if err := c.start(ctx, m); err != nil {
		return fmt.Errorf("restarting an etcd member: %w", err)
	}
	return nil
}

// Stop ends all members and proxies and returns when they have ended. The caller
// removes the directory. A second Stop does nothing.
func (c *EtcdCluster) Stop() {
	c.changing.Lock()
	defer c.changing.Unlock()
	var all sync.WaitGroup
	for _, m := range c.members {
		if m == nil {
			continue
		}
		all.Go(func() {
			m.crash()
			for _, g := range []*gate.Gate{m.clients, m.peers} {
				if g != nil {
					g.Close()
				}
			}
		})
	}
	all.Wait()
}

// Clients sets the fault between a member and its clients. It applies to open
// connections, too.
func (c *EtcdCluster) Clients(a control.FaultArgs, _ *control.None) error {
	c.members[a.Member].clients.SetFault("", a.Fault)
	return nil
}

// Link sets the fault between two members, in both directions.
func (c *EtcdCluster) Link(a control.FaultArgs, _ *control.None) error {
	one, other := c.members[a.Member], c.members[a.Other]
	one.peers.SetFault(other.name, a.Fault)
	other.peers.SetFault(one.name, a.Fault)
	return nil
}

// Leader waits until a majority of members agrees on a leader and returns its
// number. Members in except do not count: a test that has partitioned the leader
// waits for another one.
func (c *EtcdCluster) Leader(a control.LeaderArgs, reply *int) (err error) {
	ctx, cancel := a.Context()
	defer cancel()
	*reply, err = c.leader(ctx, a.Except...)
	return err
}

func (c *EtcdCluster) leader(ctx context.Context, except ...int) (int, error) {
	for {
		votes := map[string]int{} // leader and term → number of members
		for _, m := range c.members {
			e := m.etcd()
			if e == nil {
				continue
			}
			vote := fmt.Sprintf("%v in %d", e.Server.Leader(), e.Server.Term())
			votes[vote]++
		}

		for i, m := range c.members {
			e := m.etcd()
			if e == nil || slices.Contains(except, i) {
				continue
			}
			if votes[fmt.Sprintf("%v in %d", e.Server.MemberID(), e.Server.Term())] > len(c.members)/2 {
				return i, nil
			}
		}

		if !clock.Sleep(ctx, 5*time.Millisecond) {
			return 0, fmt.Errorf("no leader: %w", ctx.Err())
		}
	}
}

// Lead transfers leadership to a member and returns when a majority agrees.
func (c *EtcdCluster) Lead(a control.MemberArgs, _ *control.None) error {
	ctx, cancel := a.Context()
	defer cancel()
	for {
		now, err := c.leader(ctx)
		if err != nil || now == a.Member {
			return err
		}
		from, to := c.members[now].etcd(), c.members[a.Member].etcd()
		if from == nil || to == nil {
			return fmt.Errorf("making %s the leader: it or the present leader does not run", c.members[a.Member].name)
		}
		// Another member may have won an election in between: try again.
		if err := from.Server.MoveLeader(ctx, uint64(from.Server.MemberID()),
			uint64(to.Server.MemberID())); err != nil && ctx.Err() != nil {
			return fmt.Errorf("making %s the leader: %w", c.members[a.Member].name, err)
		}
	}
}
