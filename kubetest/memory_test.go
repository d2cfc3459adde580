package kubetest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/memorygroup"
)

// A server with 10,000 Services and 150,000 endpoints stays within the memory of its control group
// while its objects change as fast as the API server accepts it, and while all of them are listed
// again and again, some lists being cut: the kernel kills no process, answers go on, and the last
// change is served.
func TestMemoryOfAPIClient(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 20,000 objects")
	}
	bound.Only(t) // the collector needs processors to keep the heap within its limit
	binary := buildSeamark(t)
	s := &soak{T: t, api: start(t)}
	s.writer = writer(t, s.api)
	s.writer.shop()
	s.writer.largeCluster()
	s.proxy = must(NewProxy(s.api))(t)
	t.Cleanup(s.proxy.Close)

	for i, limit := range []int{64 << 20, 170 << 20} {
		t.Run(fmt.Sprint(limit>>20), func(t *testing.T) {
			group, port := memorygroup.New(t, limit), freeport.Reserve(t)
			s := &soak{T: t, api: s.api, proxy: s.proxy, writer: clusterWriter{t, s.writer.Interface, s.writer.imports}}
			s.corefile = filepath.Join(t.TempDir(), "Corefile")
			s.writeCorefile(fmt.Sprintf(".:%s {\n bind 127.0.0.1\n kubernetes cluster.local in-addr.arpa {\n  endpoint %s\n }\n}\n", port, s.proxy.URL()))
			s.server = runInGroup(t, group, "127.0.0.1:"+port, binary, "serve", "--conf", s.corefile)
			s.server.await(shopNames()...)
			t.Logf("with %d Services: %s", largeServices, group)

			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			var tasks sync.WaitGroup
			var changes, lists atomic.Int64
			tasks.Go(func() { s.changeSlices(ctx, &changes) })
			tasks.Go(func() { s.relist(ctx, &lists) })
			took, lost := s.largeNames(ctx)
			tasks.Wait()

			if n := group.Kills(); n > 0 {
				t.Fatalf("the kernel killed %d processes: %s", n, group)
			}
			if len(took) == 0 {
				t.Fatalf("none of %d queries was answered: %s", lost, group)
			}
			slices.Sort(took)
			t.Logf("%s; %d changes, %d times listed; %d answers, %d queries without one, p50 %v, p99 %v",
				group, changes.Load(), lists.Load(), len(took), lost, took[len(took)/2], took[len(took)*99/100])
			bound.AtMost(t, "the 99th percentile of the answers", took[len(took)*99/100], 20*time.Millisecond)

			last := fmt.Sprintf("last%d", i)
			add(t, s.writer.CoreV1().Services("shop"), service(last, "10.0.0."+fmt.Sprint(77+i)))
			s.server.await(append(shopNames(), lookupA(last+".shop.svc.cluster.local", "NOERROR 10.0.0."+fmt.Sprint(77+i)))...)
			s.server.terminate()
		})
	}
}

// changeSlices changes EndpointSlices until ctx ends: their endpoints are ready and not ready in turn.
func (s *soak) changeSlices(ctx context.Context, changes *atomic.Int64) {
	var writers sync.WaitGroup
	defer writers.Wait()
	for first := range 4 {
		writers.Go(func() {
			for i := first; ctx.Err() == nil; i += 4 {
				n := i%largeServices + 1
				patch := fmt.Sprintf(`[{"op":"add","path":"/endpoints/0/conditions/ready","value":%t}]`, i/largeServices%2 == 1)
				_, err := s.writer.DiscoveryV1().EndpointSlices(fmt.Sprintf("ns%d", n%50)).Patch(
					ctx, fmt.Sprintf("svc%d-1", n), types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
				if err == nil {
					changes.Add(1)
				} else if ctx.Err() == nil {
					s.Error(err)
					return
				}
			}
		})
	}
}

// relist makes the server list all objects again, each second until ctx ends: the API server
// forgets its history, and watches end. Every other list is cut.
func (s *soak) relist(ctx context.Context, lists *atomic.Int64) {
	for i := 0; ctx.Err() == nil; i++ {
		if err := s.api.Compact(ctx); err != nil && ctx.Err() == nil {
			s.Error(err)
			return
		}
		s.proxy.Set(Faults{CutAfter: i % 2 * (1 << 20)})
		s.proxy.Cut()
		lists.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	s.proxy.Set(Faults{})
}

// largeNames asks for names of the large cluster until ctx ends, and returns how long each answer
// took, and how many queries had none.
func (s *soak) largeNames(ctx context.Context) (took []time.Duration, lost int) {
	client := &dns.Client{Timeout: 2 * time.Second}
	for i := 0; ctx.Err() == nil; i++ {
		n := i*7919%largeServices + 1
		if n%10 == 0 {
			continue // headless ones are large answers
		}
		q := lookupA(fmt.Sprintf("svc%d.ns%d.svc.cluster.local", n, n%50), fmt.Sprintf("NOERROR 10.64.%d.%d", n/250, n%250))
		reply, d, err := client.Exchange(q.message(), s.server.at)
		if err != nil {
			lost++
		} else if got := answer(reply, nil); got != q.want {
			s.Errorf("%s: got %s, want %s", q, got, q.want)
			return took, lost
		} else {
			took = append(took, d)
		}
		time.Sleep(time.Millisecond)
	}
	return took, lost
}
