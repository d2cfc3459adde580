package kubetest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	signals "github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/test/chaintest"
)

// A dnsCluster is an API server with the parts of a cluster that a canary needs: the
// controllers of Deployments and EndpointSlices, kubelets, and pages of pods. Clients
// reach it through an HTTP server with faults.
type dnsCluster struct {
	*testing.T
	k    kubernetes.Interface
	url  string
	file string // a kubeconfig

	labels map[string]string // of the pods of CoreDNS and its Service's selector, if not kubeadm's

	mu       sync.Mutex
	reviewed []string          // access reviews of the user: verb, group, resource
	denied   string            // a resource that the user may not access
	servfail map[string]int    // of 1000 queries, by the label app of a pod
	slow     map[string]bool   // p99 of 1 s instead of 2 ms
	scrapes  map[string]int    // by pod
	writes   int               // since arm
	allowed  int               // writes before the API server is unreachable; negative is no limit
	applied  bool              // the next write is applied, but its response is lost
	away     bool              // the API server is unreachable
	forwards map[string]string // where connections to port 53 of pods go, by Deployment
	lost     func()            // called when it becomes unreachable
}

// newDNSCluster starts the parts.
func newDNSCluster(t *testing.T) *dnsCluster {
	t.Helper()
	api := start(t)
	written := signals.NewSignal()
	c := httpClient(t, api.Config())
	c.Transport = writeSignal{c.Transport, written}
	d := &dnsCluster{T: t, k: must(kubernetes.NewForConfigAndClient(api.Config(), c))(t), servfail: map[string]int{}, slow: map[string]bool{}, scrapes: map[string]int{}, allowed: -1}
	target := must(url.Parse(api.URL()))(t)
	forward := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: api.pool()}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	forward.Transport = writeSignal{transport, written}
	forward.ErrorLog = log.New(io.Discard, "", 0)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, forward) }))
	s.Config.ErrorLog = forward.ErrorLog
	t.Cleanup(s.Close)
	d.url, d.file = s.URL, filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(d.file, &clientcmdapi.Cluster{Server: s.URL}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := d.reconcile(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
				t.Errorf("the controllers: %v", err)
			}
			// Without a change a round has nothing to do, unless an error ended the last one.
			select {
			case <-written:
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return d
}

// A writeSignal signals the end of each request that may have changed an object.
type writeSignal struct {
	http.RoundTripper
	written signals.Signal
}

func (s writeSignal) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		defer s.written.Send()
	}
	return s.RoundTripper.RoundTrip(r)
}

// serve passes a request to the API server unless a fault applies. It has the pages that
// the API server lacks: access reviews and the metrics of pods.
func (d *dnsCluster) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	d.mu.Lock()
	if r.Method == http.MethodGet && !d.away && !strings.Contains(r.URL.Path, "/proxy/") {
		d.mu.Unlock()
		forward.ServeHTTP(w, r) // a watch has no end
		return
	}
	defer d.mu.Unlock()
	if d.away {
		panic(http.ErrAbortHandler)
	}
	parts := strings.Split(r.URL.Path, "/")
	switch {
	case strings.HasSuffix(r.URL.Path, "accessreviews"):
		d.review(w, r)
		return
	case strings.HasSuffix(r.URL.Path, "/portforward"):
		name, _, _ := strings.Cut(parts[len(parts)-2], "-")
		target := d.forwards[name]
		d.mu.Unlock()
		portForward(w, r, target)
		d.mu.Lock()
		return
	case strings.HasSuffix(r.URL.Path, ":9153/proxy/metrics"), strings.HasSuffix(r.URL.Path, ":10055/proxy/metrics"):
		pod, port, _ := strings.Cut(parts[len(parts)-3], ":")
		d.page(w, r, parts[4], pod, port == "10055")
		return
	}
	if d.allowed >= 0 && d.writes == d.allowed {
		d.away = true
		d.lost()
		if d.applied {
			forward.ServeHTTP(httptest.NewRecorder(), r)
		}
		panic(http.ErrAbortHandler)
	}
	d.writes++
	forward.ServeHTTP(w, r)
}

func (d *dnsCluster) review(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Spec struct {
			User               string
			ResourceAttributes struct{ Verb, Group, Resource, Subresource string }
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&review)
	a := review.Spec.ResourceAttributes
	if a.Subresource != "" {
		a.Resource += "/" + a.Subresource
	}
	if review.Spec.User == "" {
		d.reviewed = append(d.reviewed, strings.Join([]string{a.Verb, a.Group, a.Resource}, " "))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"status": {"allowed": %t}}`, a.Resource != d.denied)
}

// page writes metrics that grow by 1000 queries with each read, those of CoreDNS or of kube-dns.
func (d *dnsCluster) page(w http.ResponseWriter, r *http.Request, namespace, name string, ofKubeDNS bool) {
	p, err := d.k.CoreV1().Pods(namespace).Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	app := p.Labels["app"]
	d.scrapes[namespace+"/"+name]++
	n := d.scrapes[namespace+"/"+name]
	fast := 1000 * n
	if d.slow[app] {
		fast = 0
	}
	failed := d.servfail[app] * n
	if ofKubeDNS {
		fmt.Fprintf(w, "skydns_skydns_dns_request_count_total{system=\"auth\"} %d\nskydns_skydns_dns_request_count_total{system=\"recursive\"} %d\n", 900*n, 100*n)
		fmt.Fprintf(w, "skydns_skydns_dns_error_count_total{system=\"auth\",cause=\"nxdomain\"} %d\n", 100*n)
		fmt.Fprintf(w, "skydns_skydns_dns_error_count_total{system=\"recursive\",cause=\"servfail\"} %d\n", failed)
		for bound, n := range map[string]int{"0.002": fast, "1.024": 1000 * n, "+Inf": 1000 * n} {
			fmt.Fprintf(w, "skydns_skydns_dns_request_duration_seconds_bucket{system=\"auth\",le=%q} %d\n", bound, n)
		}
		return
	}

	fmt.Fprintf(w, "# TYPE coredns_dns_responses_total counter\n")
	for _, line := range []struct {
		code string
		n    int
	}{{"NOERROR", 900*n - failed}, {"NXDOMAIN", 100 * n}, {"SERVFAIL", failed}} {
		fmt.Fprintf(w, "coredns_dns_responses_total{server=\"dns://:53\",zone=\".\",view=\"\",rcode=%q,plugin=\"kubernetes\"} %d\n", line.code, line.n)
	}
	for bound, n := range map[string]int{"0.002": fast, "1.024": 1000 * n, "+Inf": 1000 * n} {
		fmt.Fprintf(w, "coredns_dns_request_duration_seconds_bucket{server=\"dns://:53\",zone=\".\",view=\"\",le=%q} %d\n", bound, n)
	}
}

// portForward forwards connections as a kubelet does behind an API server.
func portForward(w http.ResponseWriter, r *http.Request, target string) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	errorStreams := make(chan httpstream.Stream, 10)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		if s.Headers().Get("streamType") == "error" {
			errorStreams <- s // before its data stream
			return nil
		}
		go forwardStream(s, <-errorStreams, target)
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

func forwardStream(data, failure httpstream.Stream, target string) {
	defer data.Close()
	defer failure.Close()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		fmt.Fprint(failure, err)
		return
	}
	defer conn.Close()
	_ = failure.Close()
	go func() {
		_, _ = io.Copy(conn, data)
		_ = conn.Close()
	}()
	_, _ = io.Copy(data, conn)
}

// arm makes the API server unreachable after n writes, and calls lost. With applied the
// next write is applied, but its response is lost.
func (d *dnsCluster) arm(n int, applied bool, lost func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes, d.allowed, d.applied, d.away, d.lost = 0, n, applied, false, lost
}

// disarm makes the API server reachable, and reports whether it was unreachable.
func (d *dnsCluster) disarm() (was bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was = d.away
	d.writes, d.allowed, d.away = 0, -1, false
	return was
}

// set changes faults.
func (d *dnsCluster) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// reconcile does one round of the controllers in all namespaces.
func (d *dnsCluster) reconcile(ctx context.Context) error {
	// A list is consistent with etcd, for which the API server waits some 15 ms: the four wait at once.
	var deployments *appsv1.DeploymentList
	var pods *corev1.PodList
	var services *corev1.ServiceList
	var existing *discoveryv1.EndpointSliceList
	lists, all := errgroup.Group{}, metav1.ListOptions{}
	lists.Go(func() (err error) { deployments, err = d.k.AppsV1().Deployments("").List(ctx, all); return err })
	lists.Go(func() (err error) { pods, err = d.k.CoreV1().Pods("").List(ctx, all); return err })
	lists.Go(func() (err error) { services, err = d.k.CoreV1().Services("").List(ctx, all); return err })
	lists.Go(func() (err error) { existing, err = d.k.DiscoveryV1().EndpointSlices("").List(ctx, all); return err })
	if err := lists.Wait(); err != nil {
		return err
	}

	var errs []error
	owned := map[string][]*corev1.Pod{}
	for i := range pods.Items {
		p := &pods.Items[i]
		key := p.Namespace + "/" + p.OwnerReferences[0].Name
		owned[key] = append(owned[key], p)
	}
	for i := range deployments.Items {
		one := &deployments.Items[i]
		key := one.Namespace + "/" + one.Name
		errs = append(errs, d.rollOut(ctx, one, owned[key]))
		delete(owned, key)
	}
	for _, orphans := range owned {
		for _, p := range orphans {
			errs = append(errs, d.k.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}))
		}
	}
	return errors.Join(append(errs, d.publish(ctx, services.Items, pods.Items, existing.Items))...)
}

// rollOut does the work of the controllers of a Deployment, with one pod more or less than
// replicas while it replaces pods.
func (d *dnsCluster) rollOut(ctx context.Context, o *appsv1.Deployment, pods []*corev1.Pod) error {
	h := fnv.New32()
	_ = json.NewEncoder(h).Encode(o.Spec.Template)
	hash := fmt.Sprint(h.Sum32())
	want, updated, ready := int(*o.Spec.Replicas), 0, 0
	var old, current []*corev1.Pod
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range pods {
		if isReady(p) {
			ready++
		}
		if p.Labels["pod-template-hash"] == hash {
			updated++
			current = append(current, p)
		} else {
			old = append(old, p)
		}
	}
	api := d.k.CoreV1().Pods(o.Namespace)
	var err error
	switch {
	case updated < want && len(pods) <= want:
		p := &corev1.Pod{ObjectMeta: *o.Spec.Template.ObjectMeta.DeepCopy(), Spec: *o.Spec.Template.Spec.DeepCopy()}
		p.GenerateName, p.Labels["pod-template-hash"] = o.Name+"-", hash
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: o.Name, UID: o.UID}}
		if p, err = api.Create(ctx, p, metav1.CreateOptions{}); err == nil {
			pods = append(pods, p)
		}
	case len(old) > 0 && (ready > want-1 || want == 0 || !isReady(old[0])):
		err = api.Delete(ctx, old[0].Name, metav1.DeleteOptions{})
	case updated > want:
		err = api.Delete(ctx, current[0].Name, metav1.DeleteOptions{})
	}
	if err != nil {
		return err
	}
	for _, p := range pods {
		if !isReady(p) && !strings.Contains(p.Spec.Containers[0].Image, "broken") {
			p = p.DeepCopy()
			p.Status.PodIP = "10.244." + strings.TrimRight(address(p.Namespace+p.Name), ".")
			p.Status.Phase, p.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if _, err := api.UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	status := appsv1.DeploymentStatus{ObservedGeneration: o.Generation, Replicas: int32(len(pods)), UpdatedReplicas: int32(updated), ReadyReplicas: int32(ready), AvailableReplicas: int32(ready)}
	if o.Status.ObservedGeneration == status.ObservedGeneration && o.Status.Replicas == status.Replicas && o.Status.UpdatedReplicas == status.UpdatedReplicas && o.Status.ReadyReplicas == status.ReadyReplicas {
		return nil
	}
	o.Status = status
	_, err = d.k.AppsV1().Deployments(o.Namespace).UpdateStatus(ctx, o, metav1.UpdateOptions{})
	return err
}

// address returns two bytes of an address for a pod.
func address(name string) string {
	h := fnv.New32()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%d.%d", h.Sum32()>>8&255, h.Sum32()&255)
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// publish writes the EndpointSlice of each Service. A Service kube-dns that has had
// endpoints must always have some.
func (d *dnsCluster) publish(ctx context.Context, services []corev1.Service, pods []corev1.Pod, slices_ []discoveryv1.EndpointSlice) error {
	existing := map[string]*discoveryv1.EndpointSlice{}
	for i := range slices_ {
		existing[slices_[i].Namespace+"/"+slices_[i].Name] = &slices_[i]
	}

	for _, s := range services {
		addresses := map[string]bool{}
		for _, p := range pods {
			if p.Namespace == s.Namespace && isReady(&p) && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) {
				addresses[p.Status.PodIP] = true
			}
		}
		api := d.k.DiscoveryV1().EndpointSlices(s.Namespace)
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}}, AddressType: discoveryv1.AddressTypeIPv4}
		for _, a := range slices.Sorted(maps.Keys(addresses)) {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
		}
		was := existing[s.Namespace+"/"+s.Name]
		if was == nil {
			if _, err := api.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
				return err
			}
			continue
		}
		if s.Name == "kube-dns" && len(was.Endpoints) > 0 && len(addresses) == 0 {
			d.Errorf("Service %s/kube-dns: got no endpoints, want some at all times", s.Namespace)
		}
		same := slices.EqualFunc(was.Endpoints, slice.Endpoints, func(a, b discoveryv1.Endpoint) bool { return slices.Equal(a.Addresses, b.Addresses) })
		if !same {
			was.Endpoints = slice.Endpoints
			if _, err := api.Update(ctx, was, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// coredns creates kubeadm's CoreDNS in a namespace and waits until it is ready.
func (d *dnsCluster) coredns(namespace string) {
	d.Helper()
	o := kubeadmDeployment()
	o.Namespace = namespace
	o.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/coredns/coredns:v1.14.2"
	s := object[corev1.Service](d.T, "base/service.yaml", "Service")
	s.Namespace = namespace
	if d.labels != nil {
		o.Spec.Selector.MatchLabels, o.Spec.Template.Labels, s.Spec.Selector = d.labels, d.labels, d.labels
	}
	add(d.T, d.k.AppsV1().Deployments(namespace), o)
	add(d.T, d.k.CoreV1().Services(namespace), s)
	config := object[corev1.ConfigMap](d.T, "base/corefile.yaml", "ConfigMap")
	config.Namespace = namespace
	add(d.T, d.k.CoreV1().ConfigMaps(namespace), config)
	chaintest.Eventually(d.T, "CoreDNS of "+namespace, func() bool {
		o, err := d.k.AppsV1().Deployments(namespace).Get(d.Context(), "coredns", metav1.GetOptions{})
		return err == nil && o.Status.ReadyReplicas == 2 && d.endpoints(namespace) == "coredns:2"
	})
}

// remove deletes the objects of a namespace.
func (d *dnsCluster) remove(namespace string) {
	d.Helper()
	zero := int64(0)
	o, all := metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{}
	if err := errors.Join(
		d.k.CoreV1().Services(namespace).Delete(d.Context(), "kube-dns", o),
		d.k.AppsV1().Deployments(namespace).DeleteCollection(d.Context(), o, all),
		d.k.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(d.Context(), o, all),
	); err != nil {
		d.Fatal(err)
	}
}

// endpoints returns how many pods of each Deployment serve behind kube-dns.
func (d *dnsCluster) endpoints(namespace string) string {
	d.Helper()
	slice, err := d.k.DiscoveryV1().EndpointSlices(namespace).Get(d.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	pods := must(d.k.CoreV1().Pods(namespace).List(d.Context(), metav1.ListOptions{}))(d.T)
	counts := map[string]int{}
	for _, e := range slice.Endpoints {
		for _, p := range pods.Items {
			if p.Status.PodIP == e.Addresses[0] {
				counts[p.OwnerReferences[0].Name]++
			}
		}
	}
	var all []string
	for name, n := range counts {
		all = append(all, fmt.Sprintf("%s:%d", name, n))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
