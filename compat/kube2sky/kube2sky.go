// Package kube2sky writes a cluster's names into etcd, in SkyDNS's layout:
// Services, the endpoints of headless Services, pods and reverse names. Package
// cmd calls it for the subcommand kube2sky; flags, keys and metrics are in
// docs/reference/kube2sky.md. It answers no queries.
//
// Data flows one way. The state receives the cluster's objects and computes the
// wanted records of each group of keys: a Service, the address of a pod, a reverse
// name. The writer takes the groups that have changed, reads their keys in etcd,
// and writes the differences. It keeps no copy of the keys, which could become
// stale.
//
// The writer never deletes the last key of a name that is still wanted before it
// has written another, and never changes a key that it has not written itself.
package kube2sky

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/status"
)

// Options are the values of the flags.
type Options struct {
	Domain     string // of the cluster, with or without the final dot
	PathPrefix string // of SkyDNS's tree in etcd, without slashes at its ends
	Kubeconfig string // file
	Master     string // URL of the API server; if both are empty, the cluster of the pod

	Etcd            etcdclient.Options
	MutationTimeout time.Duration // time limit of one request to etcd

	LeaderElection bool
	Lease          time.Duration // time to live of the leader's key; whole seconds

	Listen string // HOST:PORT of the status pages
	Log    *slog.Logger
}

// Check returns all errors in the options, in terms of the flags.
func (o *Options) Check() error {
	var errs flags.Errors
	errs.If(!isName(strings.TrimSuffix(o.Domain, ".")), "--domain: want a name such as cluster.local, got %q", o.Domain)
	errs.If(!isPrefix(o.PathPrefix),
		"--path-prefix: want words separated by slashes, such as skydns, and not %s as the first, got %q",
		reservedPrefix, o.PathPrefix)
	errs.If(o.Kubeconfig != "" && o.Master != "",
		"--kubecfg-file and --kube-master-url: set only one; the file can contain the server's URL")
	err := o.cluster().Check()
	errs.If(err != nil, "--kubecfg-file, --kube-master-url: %w", err)
	err = o.Etcd.Check()
	errs.If(err != nil, "--etcd-servers and other etcd flags: %w", err)

	errs.If(o.MutationTimeout < time.Millisecond,
		"--etcd-mutation-timeout: want a duration such as 10s, got %v", o.MutationTimeout)
	errs.If(o.Lease < 2*time.Second || o.Lease > time.Hour, "--lease-duration: want 2s to 1h, got %v", o.Lease)
	errs.If(o.Lease%time.Second != 0, "--lease-duration: want whole seconds, got %v", o.Lease)
	return errs.Join()
}

func isPrefix(prefix string) bool {
	words := strings.Split(prefix, "/")
	for _, w := range words {
		if w == "" || w == "." || w == ".." {
			return false
		}
	}
	return words[0] != reservedPrefix
}

// cluster returns the options of the source of objects.
func (o *Options) cluster() cluster.Options {
	c := cluster.Options{Kubeconfig: o.Kubeconfig, Endpoint: o.Master, Pods: true}
	if c.Kubeconfig != "" {
		c.Endpoint = "" // Check has reported that both are set
	}
	return c
}

// Run writes until ctx ends, which is not an error, and waits for its goroutines.
// The options have passed Check. Neither etcd nor the API server needs to be
// reachable.
func Run(ctx context.Context, o Options) error {
	registry := new(metrics.Registry)
	layout := newLayout(o.PathPrefix, o.Domain)
	state := newState(layout.zone, o.cluster().Kinds())
	w := newWriter(o, layout, state, registry)

	site := http.NewServeMux()
	site.Handle("/metrics", status.Metrics(registry))
	site.HandleFunc("/readiness", func(rw http.ResponseWriter, _ *http.Request) {
		if !w.ready.Load() {
			http.Error(rw, "not all keys are written yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ok")
	})
	return status.Run(ctx, o.Listen, "choose another port with --healthz-port", o.Log, site,
		func(ctx context.Context) { sources.Run(ctx, o.cluster(), state, o.Log, registry, nil, nil) },
		func(ctx context.Context) { w.run(ctx, o.Etcd) })
}
