//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/metrics"
)

const (
	namespace = "fleet"
	marker    = "marker" // a Service whose port is the number of the last change
	perSlice  = 100
	writers   = 16
	patience  = 5 * time.Minute
)

// An agent is the source of one node. It keeps no objects.
type agent struct {
	bytes   atomic.Int64 // received from the API server
	seen    atomic.Int64 // the number of the last change
	slices  atomic.Int64 // EndpointSlices received
	metrics metrics.Registry
	done    chan struct{}
}

// Put implements cluster.Sink.
func (a *agent) Put(kind cluster.Kind, objects ...cluster.Object) {
	if kind == cluster.Slices {
		a.slices.Add(int64(len(objects)))
	}
	for _, o := range objects {
		if s, ok := o.(*cluster.Service); ok && s.Name == marker {
			a.seen.Store(int64(s.Ports[0].Port))
		}
	}
}

// Delete implements cluster.Sink.
func (a *agent) Delete(cluster.Kind, cluster.Key) {}

// Listed implements cluster.Sink.
func (a *agent) Listed(cluster.Kind, func(cluster.Key) bool) {}

// requests returns the number of requests that the agent has sent.
func (a *agent) requests() (n int64) {
	var text strings.Builder
	_ = a.metrics.WriteText(&text) // a strings.Builder has no errors
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "coredns_kubernetes_rest_client_requests_total{") {
			var value int64
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value)
			n += value
		}
	}
	return n
}

// dial counts the bytes that a connection receives, encrypted.
func (a *agent) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, &a.bytes}, nil
}

type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (r *run) startAgents(ctx context.Context, kubeconfig string) error {
	for i := range r.agents {
		o, err := r.options(kubeconfig, i)
		if err != nil {
			return err
		}
		a := &agent{done: make(chan struct{})}
		r.fleet = append(r.fleet, a)
		go func() {
			defer close(a.done)
			sources.Run(ctx, o, a, slog.New(slog.DiscardHandler), &a.metrics, a.dial)
		}()
	}
	return r.mark(ctx, 1)
}

func (r *run) stopAgents() {
	for _, a := range r.fleet {
		<-a.done
	}
}

// mark makes change n and waits until every agent has it, and every EndpointSlice once for
// each list or rollout before it.
func (r *run) mark(ctx context.Context, n int) error {
	deadline := time.Now().Add(patience)
	for err := r.setMarker(ctx, n); err != nil; err = r.setMarker(ctx, n) { // etcd may be slow at a restart
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Second)
	}
	want := int64(0)
	if r.source == "everything" {
		want = int64(n * r.endpoints / perSlice)
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		missing := 0
		for _, a := range r.fleet {
			if a.seen.Load() < int64(n) || a.slices.Load() < want {
				missing++
			}
		}
		switch {
		case missing == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d agents have not received change %d after %v", missing, len(r.fleet), n, patience)
		}
	}
}

func (r *run) setMarker(ctx context.Context, n int) error {
	s, err := r.client.CoreV1().Services(namespace).Get(ctx, marker, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.Spec.Ports[0].Port = int32(n)
	_, err = r.client.CoreV1().Services(namespace).Update(ctx, s, metav1.UpdateOptions{})
	return err
}

// populate writes the cluster.
func (r *run) populate(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := r.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	var writes []func() error
	service := func(name, ip string) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ip, []string{ip}
		s.Spec.Selector = map[string]string{"app": name}
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
		writes = append(writes, func() error {
			_, err := r.client.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{})
			return err
		})
	}
	service(marker, "10.96.0.2")
	for i := range r.services {
		service(fmt.Sprintf("service-%d", i), address(10, 97, i))
	}
	for i := range r.endpoints / perSlice {
		service(fmt.Sprintf("headless-%d", i), corev1.ClusterIPNone)
		writes = append(writes, func() error {
			_, err := r.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, r.slice(i, 0), metav1.CreateOptions{})
			return err
		})
	}
	if r.source == "pods" { // 20 on each node
		for i := range 20 * r.agents {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)}}
			p.Spec.NodeName, p.Spec.Containers = nodeName(i%r.agents), []corev1.Container{{Name: "c", Image: "registry.example/app"}}
			writes = append(writes, func() error {
				_, err := r.client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
				return err
			})
		}
	}
	return inParallel(writes)
}

// inParallel calls functions and returns one of their errors.
func inParallel(all []func() error) (err error) {
	work := make(chan func() error)
	var running sync.WaitGroup
	var mu sync.Mutex
	for range writers {
		running.Go(func() {
			for do := range work {
				if e := do(); e != nil {
					mu.Lock()
					err = e
					mu.Unlock()
				}
			}
		})
	}
	for _, do := range all {
		work <- do
	}
	close(work)
	running.Wait()
	return err
}

func address(a, b byte, n int) string {
	return netip.AddrFrom4([4]byte{a, b + byte(n>>16), byte(n >> 8), byte(n)}).String()
}

// slice returns the EndpointSlice of a headless Service as controllers write it, in a
// generation with endpoints of its own.
func (r *run) slice(i, generation int) *discoveryv1.EndpointSlice {
	name, yes := fmt.Sprintf("headless-%d", i), true
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	s.Name, s.Labels = name+"-x7k2p", map[string]string{
		discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": name,
	}
	port, portName, protocol := int32(8080), "http", corev1.ProtocolTCP
	s.Ports = []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}}
	for j := range perSlice {
		n := generation*r.endpoints + i*perSlice + j
		node, zone := nodeName(n%max(1, r.agents)), fmt.Sprintf("zone-%d", n%3)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address(10, 128, n)}, NodeName: &node, Zone: &zone,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("%s-5d8f9c7b6d-%05d", name, n), UID: "0b9c1f6e-8a5d-4c8e-9d1f-2f6b7c8d9e0a"},
		})
	}
	return s
}

// replaceEndpoints replaces the endpoints of one slice after the other, over the time of the
// rollout.
func (r *run) replaceEndpoints(ctx context.Context) error {
	n := r.endpoints / perSlice
	pace := time.NewTicker(max(time.Microsecond, r.rollout/time.Duration(max(1, n))))
	defer pace.Stop()
	for i := range n {
		<-pace.C
		if _, err := r.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, r.slice(i, 1), metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return r.mark(ctx, 2)
}
