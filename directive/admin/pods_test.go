package admin

import (
	"slices"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/test/chaintest"
)

// The pods of clients that are known are shown while another request looks up pods, and a pod that is known for long
// while the API server is away. Only the latter is an error.
func TestKnownPods(t *testing.T) {
	for _, looking := range []bool{false, true} {
		for _, age := range []time.Duration{0, 2 * podLifetime} {
			f := &podFinder{knownPods: newKnownPods(), api: &connection{cluster: cluster.Options{Endpoint: "http://127.0.0.1:1"}}, log: chaintest.QuietLog()}
			f.put("10.0.0.1", foundPod{apiserver.ClientPod{Namespace: "shop", Name: "web-0"}, time.Now().Add(podLifetime - age)})
			if looking {
				f.looking.Lock()
			}
			entries := []traffic.Entry{{Key: "10.0.0.1"}}
			if err := f.add(t.Context(), entries); (err != nil) != (!looking && age > 0) || entries[0].Pod != "shop/web-0" {
				t.Errorf("another request looks: %v, known for %v: got pod %q and error %v, want shop/web-0", looking, age, entries[0].Pod, err)
			}
		}
	}
}

// notReady is a directive with a reason why it is not ready.
type notReady struct{}

func (notReady) Ready() bool     { return false }
func (notReady) Unready() string { return "a reason" }

// The alert about a directive that has never been ready is that of kubernetes: no other has it.
func TestAlertOfUnready(t *testing.T) {
	s := &service{}
	for _, name := range []string{"etcd", "kubernetes", "secondary"} {
		b, err := chaintest.Setup(". {\n"+name+"\n}", chaintest.QuietLog(), config.Directive{Name: name, Setup: func(b *config.Block, _ []corefile.Directive) error {
			b.Offer(notReady{})
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		s.blocks = append(s.blocks, &Admin{block: b, ready: config.Find[interface{ Ready() bool }](b)})
	}
	var alerts []string
	for _, c := range s.unready() {
		alerts = append(alerts, c.Object+" "+c.Alert)
	}
	if want := []string{"etcd ", "kubernetes SeamarkNotSynced", "secondary "}; !slices.Equal(alerts, want) {
		t.Errorf("got the alerts %q, want %q", alerts, want)
	}
}
