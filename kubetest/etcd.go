package kubetest

import (
	"context"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// startEtcd runs a cluster of one member in dir, on ports of the kernel's
// choice, and waits until it serves.
func startEtcd(ctx context.Context, dir string) (*embed.Etcd, error) {
	local := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir = dir
	c.ListenClientUrls, c.AdvertiseClientUrls = local, local
	c.ListenPeerUrls, c.AdvertisePeerUrls = local, local
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.LogLevel = "fatal"
	c.EnableGRPCGateway = false
	c.UnsafeNoFsync = true // a test's data need not outlive the machine
	// Nobody else votes, so the election may be as short as etcd allows: the
	// default makes each start wait a second.
	c.TickMs, c.ElectionMs = 10, 100
	// The API server's bookmarks are as fresh as etcd's progress reports.
	c.WatchProgressNotifyInterval = 5 * time.Second
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	e.Close()
	return nil, err
}

// clientURL is where etcd's clients connect.
func clientURL(e *embed.Etcd) string { return "http://" + e.Clients[0].Addr().String() }

// compact drops all history before now in the way API servers do it among each
// other, so that ours learns of it: the revision goes into a key of theirs,
// guarded by that key's version. A first call learns the version and the
// revision, the next compacts; another is needed if a server came between.
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
