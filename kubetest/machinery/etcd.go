package machinery

import (
	"context"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// A single member elects itself, so its election may be as short as etcd allows:
// the default delays each start by a second. The unit is a millisecond.
const shortTick, shortElection = 10, 100

// etcdConfig returns the configuration that all members share.
func etcdConfig(dir string) *embed.Config {
	c := embed.NewConfig()
	c.Dir = dir
	c.LogLevel = "fatal"
	c.EnableGRPCGateway = false
	c.UnsafeNoFsync = true // a test's data need not outlive the machine
	c.TickMs, c.ElectionMs = shortTick, shortElection
	// The API server's bookmarks are as fresh as etcd's progress reports.
	c.WatchProgressNotifyInterval = 5 * time.Second
	return c
}

// startEtcd runs a cluster of one member in dir, on ports chosen by the
// kernel, and waits until it serves.
func startEtcd(ctx context.Context, dir string) (*embed.Etcd, error) {
	local := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := etcdConfig(dir)
	c.ListenClientUrls, c.AdvertiseClientUrls = local, local
	c.ListenPeerUrls, c.AdvertisePeerUrls = local, local
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	if err := awaitServing(ctx, e); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// awaitServing blocks until e serves.
func awaitServing(ctx context.Context, e *embed.Etcd) error {
	select {
	case <-e.Server.ReadyNotify():
		return nil
	case err := <-e.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// clientURL returns the URL for clients.
func clientURL(e *embed.Etcd) string { return "http://" + e.Clients[0].Addr().String() }

// compact drops the history before the current revision as API servers do, so that
// ours notices: API servers keep the compacted revision in a key and guard it by
// that key's version. The first call reads version and revision, the second
// compacts, and another follows if an API server came in between.
func compact(ctx context.Context, e *embed.Etcd) error {
	client := v3client.New(e.Server)
	defer client.Close()
	var version, rev, done int64
	for ctx.Err() == nil {
		want := rev
		var err error
		version, rev, done, err = etcd3.Compact(ctx, client, version, rev)
		if err != nil {
			return err
		}
		if want != 0 && done == want {
			return nil
		}
	}
	return ctx.Err()
}
