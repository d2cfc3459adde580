package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kubeDNS is a running kubedns.Source and the configurations that it has
// delivered.
type kubeDNS struct {
	*testing.T
	metrics metrics.Registry
	mu      sync.Mutex
	log     bytes.Buffer
	configs []string // the upstream servers of each delivered Config
}

func (k *kubeDNS) Write(line []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.Write(line)
}

// calls returns the deliveries so far.
func (k *kubeDNS) calls() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.configs)
}

// await waits for these deliveries.
func (k *kubeDNS) await(want ...string) {
	k.Helper()
	chaintest.Within(k.T, patience, func() string {
		if got := k.calls(); !slices.Equal(got, want) {
			return fmt.Sprintf("got the configurations %q, want %q\n%s", got, want, k.logged())
		}
		return ""
	})
}

func (k *kubeDNS) logged() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.String()
}

// logs counts the log lines with these words.
func (k *kubeDNS) logs(words string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Count(k.log.String(), words)
}

// awaitUpdates waits until the metrics have this number of updates with a result.
func (k *kubeDNS) awaitUpdates(result string, n int) {
	k.Helper()
	line := fmt.Sprintf("seamark_kubedns_config_updates_total{source=\"kube-system/kube-dns\",result=%q} %d\n", result, n)
	chaintest.Eventually(k.T, line, func() bool { return k.hasMetric(line) })
}

func (k *kubeDNS) hasMetric(line string) bool {
	var text strings.Builder
	if err := k.metrics.WriteText(&text); err != nil {
		k.Fatal(err)
	}
	return strings.Contains(text.String(), line)
}

// The ConfigMap is followed by its name: invalid data are reported and change
// nothing, nor does an outage of the API server, and its deletion restores the
// defaults.
func TestKubeDNSConfigMap(t *testing.T) {
	t.Parallel()
	srv := start(t)
	maps := writer(t, srv).CoreV1().ConfigMaps("kube-system")
	write := func(name string, create bool, server string) {
		t.Helper()
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"stubDomains": `{"acme.local": ["` + server + `"]}`}}
		if create {
			must(maps.Create(t.Context(), c, metav1.CreateOptions{}))(t)
		} else {
			must(maps.Update(t.Context(), c, metav1.UpdateOptions{}))(t)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	write("another", true, "10.9.9.9")

	o := endpoint(srv)
	o.ConfigMap = "kube-system/kube-dns"
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	k := &kubeDNS{T: t}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		kubedns.Source{Object: o}.Run(ctx, slog.New(slog.NewTextHandler(k, nil)), &k.metrics, nil, func(c kubednsconfig.Config) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.configs = append(k.configs, fmt.Sprint(c))
		})
	}()
	defer func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Errorf("Run did not return within %v of the end of its context", patience)
		}
	}()
	const none = ""
	stub := func(server string) string { return "acme.local=[" + server + ":53]" }

	k.await(none)
	write("kube-dns", true, "10.0.0.1")
	want := []string{none, stub("10.0.0.1")}
	k.await(want...)

	// Valid and invalid data alternate, and other objects come and go.
	for i := range 5 {
		write("kube-dns", false, "1.1.1.1:123456789")
		k.awaitUpdates("invalid", i+1)
		write("another", false, fmt.Sprintf("10.9.9.%d", i))
		write("kube-dns", false, "10.0.0.1")
		k.awaitUpdates("applied", i+3)
	}
	remove("another")
	write("kube-dns", false, "10.0.0.2")
	want = append(want, stub("10.0.0.2"))
	k.await(want...)
	if n := k.logs("Refused kube-dns's ConfigMap"); n != 5 {
		t.Errorf("log lines about a refused ConfigMap: got %d, want 5", n)
	}
	write("kube-dns", false, "$$$$")
	k.awaitUpdates("invalid", 6)
	if !k.hasMetric("seamark_kubedns_config_valid{source=\"kube-system/kube-dns\"} 0\n") {
		t.Error("seamark_kubedns_config_valid while the ConfigMap is invalid: want 0")
	}

	// The ConfigMap is deleted while it is invalid, and created again.
	remove("kube-dns")
	want = append(want, none)
	k.await(want...)
	write("kube-dns", true, "10.0.0.3")
	want = append(want, stub("10.0.0.3"))
	k.await(want...)

	// The API server stops, and returns with the same ConfigMap, and with
	// another.
	srv.StopAPI()
	chaintest.Eventually(t, "a warning about the API server", func() bool { return k.logs("level=WARN") > 6 })
	k.await(want...)
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	write("kube-dns", false, "10.0.0.4")
	want = append(want, stub("10.0.0.4"))
	k.await(want...)
	srv.StopAPI()
	if err := srv.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	remove("kube-dns")
	k.await(append(want, none)...)
}
