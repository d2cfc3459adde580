package admin

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/observe/traffic"
)

const (
	podsTimeout  = 2 * time.Second // for the pods of one list
	podLifetime  = time.Minute     // after which a client's pod is looked up again
	maxPodsShown = 20              // clients of a list whose pods are looked up
	maxPodsKept  = 1000
)

// A podFinder finds the pods of clients, one by one: a list of all would be large.
type podFinder struct {
	*knownPods
	api     *connection
	log     *slog.Logger
	looking sync.Mutex
}

// A podsKey identifies the known pods of an API server's cluster.
type podsKey struct {
	addr    string
	cluster cluster.Options
}

// KnownPods are the pods that were found, which survive reloads.
type knownPods struct {
	mu   sync.Mutex
	pods map[string]foundPod
}

func newKnownPods() *knownPods { return &knownPods{pods: map[string]foundPod{}} }

// Stop implements config.Stopper. There is nothing to stop.
func (*knownPods) Stop() {}

func (k *knownPods) get(address string) (pod foundPod, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pod, ok = k.pods[address]
	return pod, ok
}

func (k *knownPods) put(address string, pod foundPod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.pods) >= maxPodsKept {
		clear(k.pods)
	}
	k.pods[address] = pod
}

// A foundPod is the pod of a client. Its name is empty if there is none.
type foundPod struct {
	apiserver.ClientPod
	until time.Time
}

// add adds the pods of clients to the first entries of a list whose keys are addresses. The
// error is the reason why some are missing. While another request looks up pods, only known
// ones are added.
func (f *podFinder) add(ctx context.Context, entries []traffic.Entry) error {
	looks := f.looking.TryLock()
	if looks {
		defer f.looking.Unlock()
	}

	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	var failed error
	for i := range entries[:min(len(entries), maxPodsShown)] {
		e := &entries[i]
		pod, ok := f.get(e.Key)
		unknown := !ok || time.Now().After(pod.until)
		if address, err := netip.ParseAddr(e.Key); looks && failed == nil && err == nil && unknown {
			// After a failure the pod of before is the best that is known.
			var found foundPod
			if found, failed = f.find(ctx, address); failed == nil {
				pod = found
			} else {
				f.log.Error("admin: Looking up the pod of a client failed", "client", address, "error", failed)
			}
		}
		if pod.Name != "" {
			e.Pod, e.Owner = pod.Namespace+"/"+pod.Name, pod.Owner
		}
	}
	return failed
}

func (f *podFinder) find(ctx context.Context, address netip.Addr) (pod foundPod, err error) {
	session, err := f.api.open()
	if err != nil {
		return pod, err
	}
	pods, err := session.ClientPods(ctx, address, podsTimeout)
	if err != nil {
		return pod, err
	}

	pod = foundPod{pods[address.String()], time.Now().Add(podLifetime)}
	f.put(address.String(), pod)
	return pod, nil
}
