package kubetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/seamark/seamark/test/chaintest"
)

// The API server is replaced by one that has lost its data. Names are answered
// until another list confirms the loss; if that list has the data again, they
// stay.
func TestServerLostData(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{true, false} {
		t.Run(fmt.Sprintf("restored %v", restored), func(t *testing.T) {
			t.Parallel()
			full, empty := start(t), start(t)
			w := writer(t, full)
			w.shop()
			names := shopNames()
			for i := range 10 {
				name, ip := fmt.Sprintf("more-%d", i), fmt.Sprintf("10.0.7.%d", i)
				add(t, w.CoreV1().Services("shop"), service(name, ip))
				add(t, w.DiscoveryV1().EndpointSlices("shop"), slice(name+"-1", name, fmt.Sprintf("10.1.7.%d", i)))
				names = append(names, lookupA(name+".shop.svc.cluster.local", "NOERROR "+ip))
			}
			proxy := must(NewProxy(full))(t)
			t.Cleanup(proxy.Close)
			d := serve(t, corefileOf("endpoint "+proxy.URL()))
			d.await(names...)
			load := d.startLoad(names...)

			const held = "List lacks most of the known objects"
			if err := proxy.SetServer(empty); err != nil {
				t.Fatal(err)
			}
			lost := time.Now()
			proxy.Cut()
			chaintest.Eventually(t, "a warning", func() bool { return d.logs("[WARNING]", held, "kind=Service") == 1 })
			d.check(names...)
			if restored {
				if err := proxy.SetServer(full); err != nil {
					t.Fatal(err)
				}
				proxy.Cut()
				chaintest.Eventually(t, "a log line", func() bool { return d.logs("Another list has most of the known objects", "kind=Service") == 1 })
				d.check(names...)
				add(t, w.CoreV1().Services("shop"), service("late", "10.0.6.1"))
				d.await(lookupA("late.shop.svc.cluster.local", "NOERROR 10.0.6.1"))
				load.stop()
				return
			}
			load.stop()
			d.await(lookupA("web.shop.svc.cluster.local", "NXDOMAIN"), lookupA("more-3.shop.svc.cluster.local", "NXDOMAIN"))
			took := time.Since(lost)
			t.Logf("the deletion was applied after %v", took)
			if took < 2*time.Second {
				t.Errorf("the deletion was applied after %v, want at least 2s", took)
			}
			chaintest.Eventually(t, "a warning", func() bool {
				return d.logs("[WARNING]", "Another list lacks most of the known objects", "kind=Service") == 1
			})
		})
	}
}
