package admin

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

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
	api *connection
	log *slog.Logger

	mu   sync.Mutex
	pods map[string]foundPod
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
	if !f.mu.TryLock() {
		return nil
	}
	defer f.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	var failed error
	for i := range entries[:min(len(entries), maxPodsShown)] {
		e := &entries[i]
		pod, ok := f.pods[e.Key]
		unknown := !ok || time.Now().After(pod.until)
		if address, err := netip.ParseAddr(e.Key); failed == nil && err == nil && unknown {
			if pod, failed = f.find(ctx, address); failed != nil {
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

	if len(f.pods) >= maxPodsKept {
		clear(f.pods)
	}
	pod = foundPod{pods[address.String()], time.Now().Add(podLifetime)}
	f.pods[address.String()] = pod
	return pod, nil
}
