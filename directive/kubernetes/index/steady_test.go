package index

import (
	"net/netip"
	"testing"

	"github.com/seamark/seamark/cluster"
)

// An object that is put again unchanged, or is in a list again, is in every
// answer meanwhile.
func TestPodVisibleWhilePutAgain(t *testing.T) {
	ip := netip.MustParseAddr("10.2.0.1")
	ix := New(Settings{}, []cluster.Kind{cluster.Pods}, discardLog())
	pod := func(name string) *cluster.Pod {
		return &cluster.Pod{Namespace: "shop", Name: name, IPs: []netip.Addr{ip}}
	}
	ix.Put(cluster.Pods, pod("web-0"))
	serial := ix.serial.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20000 {
			if i%2 == 0 {
				ix.Put(cluster.Pods, pod("web-0"))
			} else {
				relist(ix, cluster.Pods, []cluster.Object{pod("web-0")})
			}
		}
	}()
	key := PodKey(nil, []byte("\x04shop"), ip)
	for asked := 0; ; asked++ {
		if ix.pods.Get(key) == nil {
			t.Fatalf("read %d: got no pod, want one", asked)
		}
		select {
		case <-done:
			if ix.serial.Load() != serial || ix.pods.Get(key).pods != 1 {
				t.Errorf("got serial %d and %d pods, want %d and 1", ix.serial.Load(), ix.pods.Get(key).pods, serial)
			}
			// A node's address is deleted with its last pod.
			ix.Put(cluster.Pods, pod("web-1"))
			ix.Delete(cluster.Pods, cluster.Key{Namespace: "shop", Name: "web-0"})
			if ix.pods.Get(key) == nil {
				t.Error("after the deletion of one of two Pods with an address: got none, want one")
			}
			ix.Delete(cluster.Pods, cluster.Key{Namespace: "shop", Name: "web-1"})
			if ix.pods.Get(key) != nil {
				t.Error("after the deletion of both Pods with an address: got one, want none")
			}
			return
		default:
		}
	}
}
