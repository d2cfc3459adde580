package kubetest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/kubetest/gate"
	"github.com/seamark/seamark/test/chaintest"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func startEtcdCluster(t *testing.T, o EtcdOptions) *EtcdCluster {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts an etcd cluster")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c, err := StartEtcdCluster(ctx, t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// etcdClient returns a client of these endpoints.
func etcdClient(t *testing.T, k clientv3.Config, endpoints ...string) *clientv3.Client {
	t.Helper()
	k.Endpoints = endpoints
	client, err := clientv3.New(k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// etcdPut writes a key as soon as the cluster accepts it.
func etcdPut(t *testing.T, k *clientv3.Client, key, value string) {
	t.Helper()
	chaintest.Eventually(t, "putting "+key, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := k.Put(ctx, key, value)
		return err == nil
	})
}

// etcdOwn returns the value that a client's member has, by a serializable read.
func etcdOwn(t *testing.T, k *clientv3.Client, key string) (value string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r, err := k.Get(ctx, key, clientv3.WithSerializable())
	if err != nil || len(r.Kvs) == 0 {
		return "", err
	}
	return string(r.Kvs[0].Value), nil
}

// awaitEtcdKey waits until a client's member has a value.
func awaitEtcdKey(t *testing.T, k *clientv3.Client, key, value string) {
	t.Helper()
	chaintest.Eventually(t, key+" is not "+value, func() bool {
		got, err := etcdOwn(t, k, key)
		return err == nil && got == value
	})
}

func etcdLeader(t *testing.T, c *EtcdCluster, except ...int) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	i, err := c.Leader(ctx, except...)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// checkEtcdFails checks that an operation fails.
func checkEtcdFails(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if do(ctx) == nil {
		t.Error("the operation succeeded, want an error")
	}
}

// The leader crashes: another is elected, writes and watches continue. It returns
// with its data, at its address, and catches up.
func TestEtcdClusterLeaderCrashes(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{})
	k := etcdClient(t, c.Config(), c.Endpoints()...)
	etcdPut(t, k, "a", "1")
	events := k.Watch(t.Context(), "a")
	for round := range 2 {
		first := etcdLeader(t, c)
		c.Kill(first)
		c.Kill(first)
		if conn, err := net.Dial("tcp", strings.TrimPrefix(c.Endpoints()[first], "http://")); err == nil {
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("bytes read from a stopped member: got %d, want none", n)
			}
			conn.Close()
		}
		if second := etcdLeader(t, c); second == first {
			t.Fatalf("leader after it was stopped: got %d, want another", first)
		}
		value := string(rune('2' + round))
		etcdPut(t, k, "a", value)
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		if err := c.Restart(ctx, first); err != nil {
			t.Fatal(err)
		}
		if err := c.Restart(ctx, first); err != nil {
			t.Fatal(err)
		}
		cancel()
		awaitEtcdKey(t, etcdClient(t, c.Config(), c.Endpoints()[first]), "a", value)
	}
	late := time.After(patience)
	for last := ""; last != "3"; {
		select {
		case r := <-events:
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
			for _, e := range r.Events {
				last = string(e.Kv.Value)
			}
		case <-late:
			t.Fatalf("last event: got %q, want that of the last change", last)
		}
	}
}

// A leader that is partitioned from the others loses leadership, and cannot be
// written to. After the partition it gets the writes that it missed.
func TestEtcdClusterPartition(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{})
	for _, fault := range []gate.Fault{gate.Silent, gate.Refused} {
		first := etcdLeader(t, c)
		alone := etcdClient(t, c.Config(), c.Endpoints()[first])
		etcdPut(t, alone, "a", "before")
		c.Peers(first, fault)
		second := etcdLeader(t, c, first)
		most := etcdClient(t, c.Config(), c.Endpoints()[second])
		etcdPut(t, most, "a", "after")
		checkEtcdFails(t, func(ctx context.Context) error { _, err := alone.Put(ctx, "a", "lost"); return err })
		if value, err := etcdOwn(t, alone, "a"); err != nil || value != "before" {
			t.Errorf("cut off by %d it has %s, %v", fault, value, err)
		}
		c.Heal()
		awaitEtcdKey(t, alone, "a", "after")
		etcdPut(t, alone, "a", "healed")
		awaitEtcdKey(t, most, "a", "healed")
	}
}

// Two members cannot reach each other, and both reach the third: the one that is
// not the leader falls behind, and catches up.
func TestEtcdClusterLink(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{})
	for round := range 10 {
		value := strconv.Itoa(round)
		first := etcdLeader(t, c)
		behind := (first + 1) % EtcdMembers
		alone := etcdClient(t, c.Config(), c.Endpoints()[behind])
		etcdPut(t, etcdClient(t, c.Config(), c.Endpoints()[first]), "a", value)
		awaitEtcdKey(t, alone, "a", value)
		c.Link(first, behind, gate.Silent)
		etcdPut(t, etcdClient(t, c.Config(), c.Endpoints()[first]), "a", value+" later")
		got, err := etcdOwn(t, alone, "a")
		still := etcdLeader(t, c) == first
		c.Link(first, behind, gate.Open)
		awaitEtcdKey(t, alone, "a", value+" later")
		if !still {
			continue // the third member, which both reach, has become leader
		}
		if err != nil || got != value {
			t.Errorf("value in the member behind the fault: got %q and error %v, want %q", got, err, value)
		}
		return
	}
	t.Error("the leader changed in every attempt, want one that stays")
}

func TestEtcdClusterClients(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{})
	const member = 1
	one := etcdClient(t, c.Config(), c.Endpoints()[member])
	all := etcdClient(t, c.Config(), c.Endpoints()...)
	etcdPut(t, one, "a", "1")
	for _, fault := range []gate.Fault{gate.Silent, gate.Refused} {
		c.Clients(member, fault)
		if value, err := etcdOwn(t, one, "a"); err == nil {
			t.Errorf("read from a member with fault %d: got %s, want an error", fault, value)
		}
		etcdPut(t, all, "a", "2")
		c.Clients(member, gate.Open)
		awaitEtcdKey(t, one, "a", "2")
	}
}

func TestEtcdClusterLead(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, member := range []int{2, 0, 0, 1} {
		if err := c.Lead(ctx, member); err != nil {
			t.Fatal(err)
		}
		if now := etcdLeader(t, c); now != member {
			t.Errorf("leader: got %d, want %d", now, member)
		}
	}
	c.Kill(2)
	if err := c.Lead(ctx, 2); err == nil {
		t.Error("moving leadership to a killed member succeeded, want an error")
	}
}

func TestEtcdClusterCompacts(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{})
	k := etcdClient(t, c.Config(), c.Endpoints()...)
	etcdPut(t, k, "a", "1")
	etcdPut(t, k, "a", "2")
	for range 2 {
		revision, err := c.Compact(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		r, ok := <-k.Watch(ctx, "a", clientv3.WithRev(1))
		if cancel(); !ok || !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision != revision {
			t.Errorf("%v, %v at %d, want %d", ok, r.Err(), r.CompactRevision, revision)
		}
	}
}

func TestEtcdClusterQuota(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{Quota: 4 << 20})
	k := etcdClient(t, c.Config(), c.Endpoints()...)
	etcdPut(t, k, "a", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := c.Fill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Put(ctx, "a", "2"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("put: %v", err)
	}
	if r, err := k.Get(ctx, "a"); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "1" {
		t.Errorf("get: %v, %v", r, err)
	}
	if err := c.Free(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Put(ctx, "a", "2"); err != nil {
		t.Errorf("put afterwards: %v", err)
	}
}

func TestEtcdClusterTLS(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{TLS: true})
	k := etcdClient(t, c.Config(), c.Endpoints()...)
	etcdPut(t, k, "a", "1")
	stranger := c.Config()
	stranger.TLS = &tls.Config{RootCAs: stranger.TLS.RootCAs}
	plain := c.Config()
	plain.TLS = nil
	for _, wrong := range []*clientv3.Client{
		etcdClient(t, stranger, c.Endpoints()...),
		etcdClient(t, plain, strings.ReplaceAll(c.Endpoints()[0], "https:", "http:")),
	} {
		if value, err := etcdOwn(t, wrong, "a"); err == nil {
			t.Errorf("read with wrong credentials: got %s, want an error", value)
		}
	}
	cert, key, _ := c.ClientTLS()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	stranger.TLS.Certificates = []tls.Certificate{pair}
	awaitEtcdKey(t, etcdClient(t, stranger, c.Endpoints()[0]), "a", "1")
	c.Kill(etcdLeader(t, c))
	etcdPut(t, k, "a", "2")
}

func TestEtcdClusterPassword(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dns", "root"} {
		c := startEtcdCluster(t, EtcdOptions{Username: name, Password: "secret"})
		k := etcdClient(t, c.Config(), c.Endpoints()...)
		etcdPut(t, k, "a", "1")
		wrong := c.Config()
		wrong.Password, wrong.Endpoints = "guess", c.Endpoints()
		if client, err := clientv3.New(wrong); !errors.Is(err, rpctypes.ErrAuthFailed) {
			t.Errorf("%v", err)
			client.Close()
		}
		nobody := c.Config()
		nobody.Username, nobody.Password = "", ""
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := etcdClient(t, nobody, c.Endpoints()...).Get(ctx, "a"); !errors.Is(err, rpctypes.ErrUserEmpty) {
			t.Errorf("%v", err)
		}
		if _, err := c.Compact(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		c.Stop()
	}
}

// Stop also ends connections that wait at faults, and may be called twice.
func TestEtcdClusterStops(t *testing.T) {
	t.Parallel()
	c := startEtcdCluster(t, EtcdOptions{})
	k := etcdClient(t, c.Config(), c.Endpoints()...)
	etcdPut(t, k, "a", "1")
	events := k.Watch(t.Context(), "a")
	c.Kill(0)
	c.Clients(1, gate.Silent)
	c.Peers(2, gate.Silent)
	c.Stop()
	c.Stop()
	for _, endpoint := range c.Endpoints() {
		if conn, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "http://")); err == nil {
			conn.Close()
			t.Errorf("%s: got a connection after Stop, want none", endpoint)
		}
	}
	_ = k.Close()
	for range events {
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := StartEtcdCluster(ctx, t.TempDir(), EtcdOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with no time to start: %v", err)
	}
}
