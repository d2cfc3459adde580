package cmd

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/operate/servers"
)

// podLists returns a kubeconfig for an API server whose lists of pods have the pods of these names, one after the
// other, "" for a list that fails; and the number of lists so far. The last name stays.
func podLists(t *testing.T, names ...string) (kubeconfig string, lists *atomic.Int64) {
	t.Helper()
	lists = new(atomic.Int64)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Query().Get("labelSelector"), servers.CanaryLabel) {
			fmt.Fprint(w, `{"items":[]}`)
			return
		}
		name := names[min(int(lists.Add(1)), len(names))-1]
		if name == "" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintf(w, `{"items":[{"metadata":{"namespace":"kube-system","name":%q},"status":{"phase":"Running","podIPs":[{"ip":"192.0.2.1"}]}}]}`, name)
	}))
	t.Cleanup(api.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\n"+
		"contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", api.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, lists
}

// With --watch the servers are found anew after one did not answer, until all answer; not after each state.
func TestWatchAfterSilenceFindsNewServers(t *testing.T) {
	kubeconfig, lists := podLists(t, "old", "old", "", "new")
	a := adminFlags{
		namespace: servers.Namespace, cluster: sourceFlags{kubeconfig: kubeconfig}, timeout: time.Minute,
		changed: func(flag string) bool { return flag == "kubeconfig" },
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	var got []string
	p := &program{out: &out}
	err := p.watchServers(ctx, &a, screen{watch: true, every: time.Millisecond}, func(found []*servers.Server) (all bool, err error) {
		for _, s := range found {
			got = append(got, s.Pod.Name)
		}
		if len(got) == 5 {
			cancel()
		}
		return found[0].Pod.Name == "new", nil
	})
	want := []string{"old", "old", "new", "new", "new"}
	if err != nil || !slices.Equal(got, want) || lists.Load() != 4 || !strings.Contains(out.String(), "500") {
		t.Errorf("got states of %q, %d lists, error %v and output %q, want states of %q, 4 lists and the error of one", got, lists.Load(), err, &out, want)
	}
}

// The pods of clients are listed once a minute, however often they are shown.
func TestPodTableListsOnceAMinute(t *testing.T) {
	kubeconfig, lists := podLists(t, "a", "b")
	table := &podTable{flags: podFlags{show: true, source: &sourceFlags{kubeconfig: kubeconfig}}, timeout: time.Minute}
	for i, want := range []string{"a", "a", "a", "b", "b"} {
		if i == 3 {
			table.listed = table.listed.Add(-podsAgain)
		}
		pods, err := table.all(t.Context())
		if got := pods["192.0.2.1"].Name; err != nil || got != want {
			t.Errorf("call %d: got pod %q and error %v, want %q", i, got, err, want)
		}
	}
	if n := lists.Load(); n != 2 {
		t.Errorf("got %d lists of the pods, want 2", n)
	}

	hidden := &podTable{flags: podFlags{source: table.flags.source}}
	if pods, err := hidden.all(t.Context()); pods != nil || err != nil || lists.Load() != 2 {
		t.Errorf("without --pods: got %v, error %v and %d lists, want none more", pods, err, lists.Load()-2)
	}
}
