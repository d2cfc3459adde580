package cmd

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/spf13/cobra"
)

// podFlags are the flags of commands that show the pods of clients.
type podFlags struct {
	show   bool
	source *sourceFlags // that of adminFlags
}

func (f *podFlags) flags(c *cobra.Command, source *sourceFlags) {
	c.Flags().BoolVar(&f.show, "pods", false, "show the pods of the clients: list the pods of the cluster")
	f.source = source
}

// podsByAddress are the pods of a cluster.
type podsByAddress map[string]apiserver.ClientPod

// keep removes the pods that no entry names.
func (p podsByAddress) keep(entries []traffic.Entry) {
	named := map[string]bool{}
	for _, e := range entries {
		named[e.Key], named[e.Example] = true, true
	}
	for address := range p {
		if !named[address] {
			delete(p, address)
		}
	}
}

// read returns the cluster's pods by address, nil without the flag.
func (f *podFlags) read(ctx context.Context, timeout time.Duration) (podsByAddress, error) {
	if !f.show {
		return nil, nil
	}
	session, err := f.source.session()
	if err != nil {
		return nil, err
	}
	defer session.Close()
	return session.ClientPods(ctx, netip.Addr{}, timeout)
}

// podsAgain is the least time between two lists of the pods.
const podsAgain = time.Minute

// A podTable finds the pods of clients while pods come and go. A nil table has none.
type podTable struct {
	flags   podFlags
	timeout time.Duration
	tasks   sync.WaitGroup

	mu      sync.Mutex
	pods    podsByAddress
	listed  time.Time
	listing bool
}

// table lists the pods, nil without the flag.
func (f *podFlags) table(ctx context.Context, timeout time.Duration) (*podTable, error) {
	if !f.show {
		return nil, nil
	}
	pods, err := f.read(ctx, timeout)
	return &podTable{flags: *f, timeout: timeout, pods: pods, listed: time.Now()}, err
}

// find returns the pod of a client. For an unknown one it lists the pods again in the
// background, once a minute at most.
func (t *podTable) find(ctx context.Context, client netip.Addr) (pod apiserver.ClientPod, ok bool) {
	if t == nil {
		return pod, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pod, ok = t.pods[client.String()]
	if !ok && !t.listing && time.Since(t.listed) >= podsAgain {
		t.listing = true
		t.tasks.Go(func() { t.list(ctx) })
	}
	return pod, ok
}

// all returns the pods, as they were at most a minute ago.
func (t *podTable) all(ctx context.Context) (podsByAddress, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listed.IsZero() || time.Since(t.listed) >= podsAgain {
		pods, err := t.flags.read(ctx, t.timeout)
		if err != nil {
			return nil, err
		}
		t.pods, t.listed = pods, time.Now()
	}
	return t.pods, nil
}

func (t *podTable) list(ctx context.Context) {
	pods, err := t.flags.read(ctx, t.timeout)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listing, t.listed = false, time.Now()
	if err == nil { // else the known ones are shown
		t.pods = pods
	}
}

// wait blocks until no list is under way. The context of find must have ended.
func (t *podTable) wait() {
	if t != nil {
		t.tasks.Wait()
	}
}
