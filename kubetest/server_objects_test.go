package kubetest

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These functions create, change and delete objects in one line of a test.

// add creates an object.
func add[T any](t *testing.T, in interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
}, object T) T {
	t.Helper()
	return must(in.Create(t.Context(), object, metav1.CreateOptions{}))(t)
}

// edit reads an object, changes it, and writes it back.
func edit[T any](t *testing.T, in interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}, name string, change func(T)) {
	t.Helper()
	object := must(in.Get(t.Context(), name, metav1.GetOptions{}))(t)
	change(object)
	must(in.Update(t.Context(), object, metav1.UpdateOptions{}))(t)
}

// remove deletes an object.
func remove(t *testing.T, in interface {
	Delete(context.Context, string, metav1.DeleteOptions) error
}, name string) {
	t.Helper()
	if err := in.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func namespace(name string, labels ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		n.Labels[l] = "yes"
	}
	return n
}

// service returns a Service with the port http; it is headless without addresses.
func service(name string, ips ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	s.Spec.ClusterIPs = ips
	if len(ips) == 0 {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return s
}

func external(name, target string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, target
	return s
}

// slice returns a slice of a Service with the port http.
func slice(name, service string, ips ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	if netip.MustParseAddr(ips[0]).Is6() {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

// imported turns a slice into one of a ServiceImport.
func imported(s *discoveryv1.EndpointSlice, service, cluster string) *discoveryv1.EndpointSlice {
	s.Labels = map[string]string{
		"multicluster.kubernetes.io/service-name":   service,
		"multicluster.kubernetes.io/source-cluster": cluster,
	}
	return s
}

// pod creates a pod and sets its address, as a kubelet does.
func (w clusterWriter) pod(namespace, name, ip string) {
	w.Helper()
	pods := w.CoreV1().Pods(namespace)
	p := add(w.T, pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	w.podStatus(p, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip})
}

func (w clusterWriter) podStatus(p *corev1.Pod, status corev1.PodStatus) {
	w.Helper()
	p.Status = status
	must(w.CoreV1().Pods(p.Namespace).UpdateStatus(w.Context(), p, metav1.UpdateOptions{}))(w.T)
}

// shop creates objects that do not change during a test, in the namespace shop.
func (w clusterWriter) shop() {
	w.Helper()
	add(w.T, w.CoreV1().Namespaces(), namespace("shop"))
	services, slices := w.CoreV1().Services("shop"), w.DiscoveryV1().EndpointSlices("shop")
	add(w.T, services, service("web", "10.0.0.1", "fd00::1"))
	add(w.T, slices, slice("web-1", "web", "10.1.0.1", "10.1.0.2"))
	add(w.T, services, service("db"))
	db := slice("db-1", "db", "10.1.0.3")
	db.Endpoints[0].Hostname = new("db-0")
	add(w.T, slices, db)
	add(w.T, services, external("bank", "web.shop.svc.cluster.local"))
}

// shopNames returns queries for shop, with their constant answers.
func shopNames() []lookup {
	return []lookup{
		lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.1"),
		lookupAAAA("web.shop.svc.cluster.local", "NOERROR fd00::1"),
		lookupSRV("_http._tcp.web.shop.svc.cluster.local", "NOERROR 0 100 80 web.shop.svc.cluster.local."),
		lookupPTR("1.0.0.10.in-addr.arpa", "NOERROR web.shop.svc.cluster.local."),
		lookupA("10-1-0-1.web.shop.svc.cluster.local", "NOERROR 10.1.0.1"),
		lookupA("db.shop.svc.cluster.local", "NOERROR 10.1.0.3"),
		lookupSRV("_http._tcp.db.shop.svc.cluster.local", "NOERROR 0 100 8080 db-0.db.shop.svc.cluster.local."),
		lookupPTR("3.0.1.10.in-addr.arpa", "NOERROR db-0.db.shop.svc.cluster.local."),
		lookupA("bank.shop.svc.cluster.local", "NOERROR 10.0.0.1 web.shop.svc.cluster.local."),
		lookupA("shop.svc.cluster.local", "NOERROR"),
		lookupA("nothing.shop.svc.cluster.local", "NXDOMAIN"),
		lookupPTR("9.9.9.10.in-addr.arpa", "NXDOMAIN"),
	}
}
