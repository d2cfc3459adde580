package kubetest

import (
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
)

// EtcdMembers is how many members an [EtcdCluster] has: one may be lost.
const EtcdMembers = 3

// Three members on two busy cores lose leaders for nothing when their patience is
// as short as etcd allows; a lost one is followed in about a second.
const etcdTick, etcdElection = 50 * time.Millisecond, 500 * time.Millisecond

// askTime bounds what a cluster's own methods ask its members.
const askTime = 20 * time.Second

// EtcdOptions are what an [EtcdCluster] asks of its clients. The zero value is
// nothing.
type EtcdOptions struct {
	// TLS is for clients with a certificate: see ClientTLS.
	TLS bool
	// Username and Password are those of a user who may read and write every key.
	// If there is a name, the cluster lets nobody in without them. root has the
	// same password.
	Username, Password string
	// Quota is how many bytes of data a member may have; 0 is etcd's default, 2 GB.
	Quota int64
}

// An EtcdCluster is three members of etcd in this process, numbered from 0, with
// proxies before each of their ports: so that one can die and come back, be cut
// off from others or from clients, or lead. Call [StartEtcdCluster] with a fresh
// directory and t.Cleanup(c.Stop). Its methods may be called from several
// goroutines; those that start or stop members wait for each other.
type EtcdCluster struct {
	dir     string
	options EtcdOptions
	certs   *certs
	quiet   clientv3.Config // with a log that says nothing
	members [EtcdMembers]*etcdMember

	turn sync.Mutex // of those who start and stop members
}

// An etcdMember is one of them, with its gates. Those are there as long as the
// cluster.
type etcdMember struct {
	name           string
	clients, peers *etcdGate

	mu      sync.Mutex
	running *embed.Etcd // nil while it does not run
}

func (m *etcdMember) etcd() *embed.Etcd {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// StartEtcdCluster runs three members with their data in dir, which must exist and
// be empty, and returns when they serve and one of them leads. The context bounds
// the start alone; the cluster runs until Stop.
func StartEtcdCluster(ctx context.Context, dir string, options EtcdOptions) (*EtcdCluster, error) {
	c := &EtcdCluster{dir: dir}
	if err := c.prepare(); err != nil {
		c.Stop()
		return nil, fmt.Errorf("preparing an etcd cluster: %w", err)
	}
	c.options = EtcdOptions{TLS: options.TLS, Quota: options.Quota}
	if err := c.startAll(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("starting an etcd cluster: %w", err)
	}
	if options.Username != "" {
		if err := c.ask(ctx, func(ctx context.Context, k *clientv3.Client) error { return enableAuth(ctx, k, options) }); err != nil {
			c.Stop()
			return nil, fmt.Errorf("giving an etcd cluster users: %w", err)
		}
	}
	c.options = options
	return c, nil
}

// prepare writes the certificates and opens the gates.
func (c *EtcdCluster) prepare() error {
	var err error
	if c.certs, err = newCerts(); err != nil {
		return err
	}
	if err := os.WriteFile(c.file("ca.crt"), c.certs.ca, 0o600); err != nil {
		return err
	}
	if err := c.certify("client", x509.ExtKeyUsageClientAuth); err != nil {
		return err
	}
	for i := range c.members {
		m := &etcdMember{name: fmt.Sprintf("m%d", i)}
		c.members[i] = m
		// A member is a server to its clients, and a client to the others.
		if err := c.certify(m.name, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth); err != nil {
			return err
		}
		own, err := tls.LoadX509KeyPair(c.file(m.name+".crt"), c.file(m.name+".key"))
		if err != nil {
			return err
		}
		if m.clients, err = newEtcdGate(nil); err != nil {
			return err
		}
		// All members have one list of addresses, so who comes shows by his
		// certificate alone.
		m.peers, err = newEtcdGate(&tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: c.certs.pool(), ClientAuth: tls.RequireAndVerifyClientCert})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *EtcdCluster) file(name string) string { return filepath.Join(c.dir, name) }

// certify writes name.crt and name.key.
func (c *EtcdCluster) certify(name string, usages ...x509.ExtKeyUsage) error {
	cert, key, err := c.certs.sign(name, usages...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file(name+".crt"), cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.file(name+".key"), key, 0o600)
}

// config is that of a member. It is the same for each of its runs.
func (c *EtcdCluster) config(m *etcdMember) *embed.Config {
	e := embed.NewConfig()
	e.Name, e.Dir = m.name, c.file(m.name)
	e.ListenClientUrls = []url.URL{{Scheme: c.scheme(), Host: "127.0.0.1:0"}}
	e.AdvertiseClientUrls = []url.URL{{Scheme: c.scheme(), Host: m.clients.addr()}}
	// The gate takes the TLS off.
	e.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	e.AdvertisePeerUrls = []url.URL{{Scheme: "https", Host: m.peers.addr()}}
	e.PeerTLSInfo.CertFile, e.PeerTLSInfo.KeyFile = c.file(m.name+".crt"), c.file(m.name+".key")
	e.PeerTLSInfo.TrustedCAFile, e.PeerTLSInfo.ClientCertAuth = c.file("ca.crt"), true
	if c.options.TLS {
		e.ClientTLSInfo = e.PeerTLSInfo
	}
	var all []string
	for _, other := range c.members {
		all = append(all, other.name+"=https://"+other.peers.addr())
	}
	e.InitialCluster = strings.Join(all, ",")
	e.QuotaBackendBytes = c.options.Quota
	e.BcryptCost = 4 // the least
	e.LogLevel = "fatal"
	e.EnableGRPCGateway = false
	e.UnsafeNoFsync = true // a test's data need not outlive the machine
	e.TickMs, e.ElectionMs = uint(etcdTick.Milliseconds()), uint(etcdElection.Milliseconds())
	e.WatchProgressNotifyInterval = 5 * time.Second
	return e
}

func (c *EtcdCluster) scheme() string {
	if c.options.TLS {
		return "https"
	}
	return "http"
}

// startAll starts the members at once: a new cluster serves when most are there.
func (c *EtcdCluster) startAll(ctx context.Context) error {
	var all sync.WaitGroup
	var errs [EtcdMembers]error
	for i := range c.members {
		all.Go(func() { errs[i] = c.begin(ctx, c.members[i]) })
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	c.quiet.Logger = c.members[0].etcd().GetLogger()
	_, err := c.Leader(ctx)
	return err
}

// begin starts a member that does not run, and waits until it serves.
func (c *EtcdCluster) begin(ctx context.Context, m *etcdMember) error {
	e, err := embed.StartEtcd(c.config(m))
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.running = e
	m.mu.Unlock()
	m.peers.lead(e.Peers[0].Addr().String())
	m.clients.lead(e.Clients[0].Addr().String())
	select {
	case <-e.Server.ReadyNotify():
		return nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.end()
	return fmt.Errorf("%s does not serve: %w", m.name, err)
}

// end stops a member as a crash would, if it runs.
func (m *etcdMember) end() {
	for _, g := range []*etcdGate{m.clients, m.peers} {
		if g != nil {
			g.lead("")
		}
	}
	m.mu.Lock()
	e := m.running
	m.running = nil
	m.mu.Unlock()
	if e != nil {
		e.Server.HardStop() // without handing the lead over
		e.Close()
	}
}

// Kill ends a member as a crash would: its connections are cut, it says goodbye to
// nobody and hands no lead over. Its data stay. New connections are closed as soon
// as they are there. It does nothing if the member does not run.
func (c *EtcdCluster) Kill(member int) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.members[member].end()
}

// Restart starts a member after Kill, with its data and on the same addresses, and
// returns when it serves, for which it must find the others. It does nothing if it
// runs. The context bounds the start alone.
func (c *EtcdCluster) Restart(ctx context.Context, member int) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	m := c.members[member]
	if m.etcd() != nil {
		return nil
	}
	if err := c.begin(ctx, m); err != nil {
		return fmt.Errorf("starting an etcd member again: %w", err)
	}
	return nil
}

// Stop ends all members and proxies and returns when they are gone. The directory
// is left to the caller. After it, and after a second Stop, which does nothing,
// the cluster is of no use.
func (c *EtcdCluster) Stop() {
	c.turn.Lock()
	defer c.turn.Unlock()
	var all sync.WaitGroup
	for _, m := range c.members {
		if m == nil {
			continue
		}
		all.Go(func() {
			m.end()
			for _, g := range []*etcdGate{m.clients, m.peers} {
				if g != nil {
					g.close()
				}
			}
		})
	}
	all.Wait()
}

// Clients puts a fault between a member and its clients, in the place of the one
// before. Connections that stand are concerned, too.
func (c *EtcdCluster) Clients(member int, f EtcdFault) { c.members[member].clients.set("", f) }

// Link puts a fault between two members, in both directions.
func (c *EtcdCluster) Link(one, other int, f EtcdFault) {
	c.members[one].peers.set(c.members[other].name, f)
	c.members[other].peers.set(c.members[one].name, f)
}

// Peers puts a fault between a member and all others: a partition of the cluster.
func (c *EtcdCluster) Peers(member int, f EtcdFault) {
	for other := range c.members {
		if other != member {
			c.Link(member, other, f)
		}
	}
}

// Heal takes away what Clients, Link and Peers have put anywhere.
func (c *EtcdCluster) Heal() {
	for member := range c.members {
		c.Clients(member, EtcdOpen)
		c.Peers(member, EtcdOpen)
	}
}

// Leader waits until most members say that one of them leads, and returns its
// number. The members in except do not count: who has cut the leader off waits for
// another than that.
func (c *EtcdCluster) Leader(ctx context.Context, except ...int) (int, error) {
	for {
		votes := map[string]int{} // leader and term → how many say so
		for _, m := range c.members {
			e := m.etcd()
			if e == nil {
				continue
			}
			said := fmt.Sprintf("%v in %d", e.Server.Leader(), e.Server.Term())
			votes[said]++
		}
		for i, m := range c.members {
			e := m.etcd()
			if e == nil || slices.Contains(except, i) {
				continue
			}
			if votes[fmt.Sprintf("%v in %d", e.Server.MemberID(), e.Server.Term())] > EtcdMembers/2 {
				return i, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no member leads: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Lead makes a member the leader, by the one who is, and returns when most say so.
func (c *EtcdCluster) Lead(ctx context.Context, member int) error {
	for {
		now, err := c.Leader(ctx)
		if err != nil || now == member {
			return err
		}
		from, to := c.members[now].etcd(), c.members[member].etcd()
		if from == nil || to == nil {
			return fmt.Errorf("making %s the leader: it or the one before does not run", c.members[member].name)
		}
		// Somebody else may have won meanwhile: then it is asked once more.
		if err := from.Server.MoveLeader(ctx, uint64(from.Server.MemberID()), uint64(to.Server.MemberID())); err != nil && ctx.Err() != nil {
			return fmt.Errorf("making %s the leader: %w", c.members[member].name, err)
		}
	}
}
