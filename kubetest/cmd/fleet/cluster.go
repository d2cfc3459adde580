//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	namespace = "fleet"
	// The port of these Services is the number of the last change. They are the last objects
	// of their lists.
	marker, headlessMarker = "z-marker", "z-marker-headless"
	replicasService        = "replicas" // headless, with the addresses of the replicas
	perSlice               = 100
	writers                = 16
)

// setMarker makes change n.
func (r *run) setMarker(ctx context.Context, n int) error {
	s, err := r.client.CoreV1().Services(namespace).Get(ctx, marker, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.Spec.Ports[0].Port = int32(n)
	if _, err := r.client.CoreV1().Services(namespace).Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = r.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx,
		slice(headlessMarker, n, endpoint("10.127.0.1")), metav1.UpdateOptions{})
	return err
}

// populate writes the cluster.
func (r *run) populate(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := r.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}

	var writes errgroup.Group
	writes.SetLimit(writers)
	add := func(s *discoveryv1.EndpointSlice) {
		writes.Go(func() error {
			_, err := r.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, s, metav1.CreateOptions{})
			return err
		})
	}

	service := func(name, ip string) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ip, []string{ip}
		s.Spec.Selector = map[string]string{"app": name}
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
		writes.Go(func() error {
			_, err := r.client.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{})
			return err
		})
	}

	service(marker, "10.96.0.2")
	service(headlessMarker, corev1.ClusterIPNone)
	add(slice(headlessMarker, 80, endpoint("10.127.0.1")))
	service(replicasService, corev1.ClusterIPNone)
	var replicas []discoveryv1.Endpoint
	for _, a := range r.replicaAddresses() {
		replicas = append(replicas, endpoint(a))
	}

	add(slice(replicasService, dnsPort, replicas...))
	for i := range r.services {
		service(fmt.Sprintf("service-%d", i), address(10, 97, i))
	}

	for i := range r.endpoints / perSlice {
		service(fmt.Sprintf("headless-%d", i), corev1.ClusterIPNone)
		add(r.slice(i, 0))
	}

	if r.source == "pods" { // 20 on each node
		for i := range 20 * r.agents {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)}}
			p.Spec.NodeName, p.Spec.Containers = nodeName(i%r.agents),
				[]corev1.Container{{Name: "c", Image: "registry.example/app"}}
			writes.Go(func() error {
				_, err := r.client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
				return err
			})
		}
	}

	return writes.Wait()
}

func address(a, b byte, n int) string {
	return netip.AddrFrom4([4]byte{a, b + byte(n>>16), byte(n >> 8), byte(n)}).String()
}

// slice returns the EndpointSlice of a headless Service as controllers write it, in a
// generation with endpoints of its own.
func (r *run) slice(i, generation int) *discoveryv1.EndpointSlice {
	name, yes := fmt.Sprintf("headless-%d", i), true
	s := slice(name, 8080)
	for j := range perSlice {
		n := generation*r.endpoints + i*perSlice + j
		node, zone, e := nodeName(n%max(1, r.agents)), fmt.Sprintf("zone-%d", n%3), endpoint(address(10, 128, n))
		e.NodeName, e.Zone, e.Conditions.Serving = &node, &zone, &yes
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: namespace,
			Name: fmt.Sprintf("%s-5d8f9c7b6d-%05d", name, n), UID: "0b9c1f6e-8a5d-4c8e-9d1f-2f6b7c8d9e0a"}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// slice returns the EndpointSlice of a Service.
func slice(service string, port int, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints}
	s.Name, s.Labels = service+"-x7k2p", map[string]string{
		discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		"app": service,
	}
	number, name, protocol := int32(port), "http", corev1.ProtocolTCP
	s.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &protocol}}
	return s
}

func endpoint(address string) discoveryv1.Endpoint {
	yes := true
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}
}

// replaceEndpoints replaces the endpoints of one slice after the other, over the time of the
// rollout.
func (r *run) replaceEndpoints(ctx context.Context) error {
	n := r.endpoints / perSlice
	pace := time.NewTicker(max(time.Microsecond, r.rollout/time.Duration(max(1, n))))
	defer pace.Stop()
	for i := range n {
		<-pace.C
		if _, err := r.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, r.slice(i, 1),
			metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return r.mark(ctx, 2)
}
