package kubetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/chaintest"
)

// The API server omits the unused fields of Nodes from lists and watches: a
// node's status has thousands of bytes and changes all the time.
func TestClusterNodes(t *testing.T) {
	t.Parallel()
	srv := start(t)
	w := writer(t, srv)
	const image = "registry.example/in-the-status-of-a-node"
	create := func(name string, labels map[string]string) {
		t.Helper()
		must(w.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Status:     corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{image}}}},
		}, metav1.CreateOptions{}))(t)
	}
	create("b", map[string]string{corev1.LabelTopologyZone: "z-b", corev1.LabelTopologyRegion: "R"})

	p, err := NewProxy(srv) // without TLS
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	target, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	var seen, images atomic.Int64
	relay := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Accept-Encoding", "identity") // so that the text can be found
	}}
	relay.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Path != "/api/v1/nodes" || !strings.Contains(r.Header.Get("Content-Type"), "application/vnd.kubernetes.protobuf") {
			t.Errorf("response to %s: got content type %s, want protobuf", r.Request.URL, r.Header.Get("Content-Type"))
		}
		r.Body = &countingBody{r.Body, &seen, &images, image}
		return nil
	}
	front := httptest.NewServer(relay)
	t.Cleanup(front.Close)

	f := follow(t, cluster.Options{Endpoint: front.URL, Nodes: true})
	f.has(t, cluster.Nodes, "b")
	is := func(name string, want cluster.Node) {
		t.Helper()
		chaintest.Eventually(t, name, func() bool {
			n, ok := f.get(cluster.Nodes, "", name).(*cluster.Node)
			return ok && *n == want
		})
	}
	is("b", cluster.Node{Name: "b", Zone: "z-b", Region: "r", OwnZone: "z-b"})
	create("a", nil)
	is("a", cluster.Node{Name: "a"})
	n := must(w.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{}))(t)
	n.Labels = map[string]string{corev1.LabelFailureDomainBetaZone: "z-a", corev1.LabelFailureDomainBetaRegion: "r"}
	must(w.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
	is("a", cluster.Node{Name: "a", Zone: "z-a", Region: "r", OwnZone: "z-a"})
	if err := w.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.has(t, cluster.Nodes, "a")
	f.stop()
	if seen.Load() == 0 || images.Load() > 0 {
		t.Errorf("got %d bytes with the status of nodes %d times, want some bytes and no status", seen.Load(), images.Load())
	}
}

// A countingBody counts the bytes of a body, and the occurrences of a text in it.
type countingBody struct {
	io.ReadCloser
	bytes, found *atomic.Int64
	text         string
}

func (s *countingBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.bytes.Add(int64(n))
	if strings.Contains(string(p[:n]), s.text) {
		s.found.Add(1)
	}
	return n, err
}
