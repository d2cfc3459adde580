package api

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
)

// warnings are messages with their attributes.
type warnings []string

func (w *warnings) warn(msg string, attrs ...any) {
	for i := 0; i < len(attrs); i += 2 {
		msg += fmt.Sprintf(" %v=%v", attrs[i], attrs[i+1])
	}
	*w = append(*w, msg)
}

func ips(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }

func TestSlimService(t *testing.T) {
	for _, test := range []struct {
		name string
		spec corev1.ServiceSpec
		want cluster.Service
		warn string
	}{
		{
			name: "dual stack",
			spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1", "fd00::1"}, PublishNotReadyAddresses: true,
				Ports: []corev1.ServicePort{{Name: "DNS", Protocol: "UDP", Port: 53}, {Port: 80}, {Name: "none"}}},
			want: cluster.Service{ClusterIPs: ips("10.0.0.1", "fd00::1"), PublishNotReady: true,
				Ports: []cluster.Port{{Name: "dns", Protocol: "udp", Port: 53}, {Name: "", Protocol: "tcp", Port: 80}}},
			warn: "Ignored invalid port kind=Service namespace=shop name=web value=0",
		},
		{
			name: "clusterIP alone, IPv4 as IPv6",
			spec: corev1.ServiceSpec{ClusterIP: "::ffff:10.0.0.1"},
			want: cluster.Service{ClusterIPs: ips("10.0.0.1")},
		},
		{
			name: "headless",
			spec: corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}, Ports: []corev1.ServicePort{{Name: "a", Port: 1}}},
			want: cluster.Service{Headless: true, Ports: []cluster.Port{{Name: "a", Protocol: "tcp", Port: 1}}},
		},
		{
			name: "no address yet",
			want: cluster.Service{ClusterIPs: []netip.Addr{}},
		},
		{
			name: "ExternalName has nothing else",
			spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "Example.COM.", ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 1}}},
			want: cluster.Service{ExternalName: "example.com"},
		},
		{
			name: "ExternalName that is no name",
			spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "a b.c"},
			want: cluster.Service{ExternalName: "a b.c"},
			warn: "Invalid externalName, the Service has no answer kind=Service namespace=shop name=web value=a b.c",
		},
		{
			name: "ExternalName with an underscore",
			spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "_my_host.example"},
			want: cluster.Service{ExternalName: "_my_host.example"},
		},
		{
			name: "ExternalName that is an address",
			spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "192.0.2.1"},
			want: cluster.Service{ExternalName: "192.0.2.1"},
			warn: "Invalid externalName, the Service has no answer kind=Service namespace=shop name=web value=192.0.2.1",
		},
		{
			name: "invalid addresses",
			spec: corev1.ServiceSpec{ClusterIPs: []string{"10.0.0.256", "10.0.0.1", "fe80::1%eth0"}},
			want: cluster.Service{ClusterIPs: ips("10.0.0.1")},
			warn: "Ignored invalid IP address kind=Service namespace=shop name=web value=10.0.0.256; Ignored invalid IP address kind=Service namespace=shop name=web value=fe80::1%eth0",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var w warnings
			got := arrive(t, cluster.Options{}, &corev1.Service{ObjectMeta: named("web"), Spec: test.spec}, w.warn).(*cluster.Service)
			test.want.Namespace, test.want.Name = "shop", "web"
			if !reflect.DeepEqual(*got, test.want) {
				t.Errorf("got %+v\nwant %+v", *got, test.want)
			}
			if got := strings.Join(w, "; "); got != test.warn {
				t.Errorf("warned %q, want %q", got, test.warn)
			}
		})
	}
}

func TestSlimSlice(t *testing.T) {
	meta := named("web-1")
	meta.Labels = map[string]string{"kubernetes.io/service-name": "web"}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  meta,
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("HTTP"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(80))},
			{Name: new("all")}, // all ports, without a number
		},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.1", "10.1.0.2"}, Hostname: new("DB-0"), Zone: new("West")},
			{Addresses: []string{"10.1.0.3", "nonsense"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "db-1"}},
			{Addresses: []string{"10.1.0.4"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "db.2"}},
			{Addresses: []string{"10.1.0.5"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: strings.Repeat("x", 64)}},
			{Addresses: []string{"10.1.0.6"}, TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "db-6"}},
		},
	}
	var w warnings
	got := arrive(t, cluster.Options{}, slice, w.warn).(*cluster.Slice)
	if got.Service != "web" || got.Cluster != "" || !slices.Equal(got.Ports, []cluster.Port{{Name: "http", Protocol: "tcp", Port: 80}}) {
		t.Errorf("got %+v", got)
	}
	if len(w) != 1 || w[0] != "Ignored invalid IP address kind=EndpointSlice namespace=shop name=web-1 value=nonsense" {
		t.Errorf("warned %q", w)
	}
	addr := netip.MustParseAddr
	plain := []cluster.Endpoint{
		{Addr: addr("10.1.0.1"), Hostname: "db-0", Zone: "", Ready: true}, {Addr: addr("10.1.0.2"), Hostname: "db-0", Zone: "", Ready: true}, {Addr: addr("10.1.0.3"), Hostname: "", Zone: "", Ready: false, Target: true},
		{Addr: addr("10.1.0.4"), Ready: true, Target: true}, {Addr: addr("10.1.0.5"), Ready: true, Target: true}, {Addr: addr("10.1.0.6"), Ready: true, Target: true},
	}
	if got := slices.Collect(got.Endpoints.All()); !slices.Equal(got, plain) {
		t.Errorf("endpoints: got %+v", got)
	}
	full := slices.Clone(plain)
	full[0].Zone, full[1].Zone, full[2].Hostname = "west", "west", "db-1"
	got = arrive(t, cluster.Options{PodNames: true, Zones: true}, slice, w.warn).(*cluster.Slice)
	if got := slices.Collect(got.Endpoints.All()); !slices.Equal(got, full) {
		t.Errorf("endpoints with pod names and zones: got %+v", got)
	}
}

func TestSlimSliceBelongs(t *testing.T) {
	const own, service, source = "kubernetes.io/service-name", LabelImportService, LabelImportCluster
	for _, test := range []struct {
		name         string
		labels       map[string]string
		kind         discoveryv1.AddressType
		plain, multi string // service@cluster
		warning      string // with multicluster
	}{
		{"own", map[string]string{own: "web"}, "IPv4", "web@", "web@", ""},
		{"without labels", nil, "IPv4", "", "", ""},
		{"FQDN", map[string]string{own: "web"}, "FQDN", "web@", "web@", ""},
		{"imported FQDN", map[string]string{service: "web", source: "east"}, "FQDN", "", "", "Ignored names of an imported EndpointSlice kind=EndpointSlice namespace= name= value=FQDN"},
		{"imported", map[string]string{service: "web", source: "East"}, "IPv6", "", "web@east", ""},
		{"imported, of a derived Service", map[string]string{own: "derived", service: "web", source: "east"}, "IPv4", "", "web@east", ""},
		{"imported, from no cluster", map[string]string{own: "derived", service: "web"}, "IPv4", "", "web@unknown", "Imported EndpointSlice without a label, its cluster is unknown namespace= name= label=" + source},
	} {
		for multi, want := range map[bool]string{false: test.plain, true: test.multi} {
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}, AddressType: test.kind}
			got := ""
			var w warnings
			if s, ok := arrive(t, cluster.Options{Multicluster: multi}, slice, w.warn).(*cluster.Slice); ok {
				got = s.Service + "@" + s.Cluster
			}
			if warned := strings.Join(w, "; "); multi && warned != test.warning || !multi && warned != "" {
				t.Errorf("%s, multicluster %v: warned %q, want %q", test.name, multi, warned, test.warning)
			}
			if got != want {
				t.Errorf("%s, multicluster %v: got %q, want %q", test.name, multi, got, want)
			}
		}
	}
}

func TestSlimSliceNames(t *testing.T) {
	notReady := false
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}, AddressType: "FQDN",
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"DB.Example.net."}, Hostname: new("Away")},
			{Addresses: []string{"a_b.example", "10.0.0.1", "a..b", "", "mail@example.net"}, Conditions: discoveryv1.EndpointConditions{Ready: &notReady}},
		},
	}
	var w warnings
	got := arrive(t, cluster.Options{}, slice, w.warn).(*cluster.Slice).Endpoints
	var names []string
	for name, e := range got.Names() {
		names = append(names, fmt.Sprintf("%s %+v", name, e))
	}
	want := []string{
		fmt.Sprintf("db.example.net %+v", cluster.Endpoint{Hostname: "away", Ready: true}),
		fmt.Sprintf("a_b.example %+v", cluster.Endpoint{}),
	}
	if !slices.Equal(names, want) || !got.HasNames() {
		t.Errorf("names of %+v: got %q, want %q", slice.Endpoints, names, want)
	}
	if all := slices.Collect(got.All()); len(all) != 0 {
		t.Errorf("endpoints with addresses: got %+v, want none", all)
	}
	wantWarnings := warnings{"Ignored invalid name of an endpoint kind=EndpointSlice namespace=shop name=db-1 value=10.0.0.1", "Ignored invalid name of an endpoint kind=EndpointSlice namespace=shop name=db-1 value=a..b",
		"Ignored invalid name of an endpoint kind=EndpointSlice namespace=shop name=db-1 value=", "Ignored invalid name of an endpoint kind=EndpointSlice namespace=shop name=db-1 value=mail@example.net"}
	if !slices.Equal(w, wantWarnings) {
		t.Errorf("warnings: got %q, want %q", w, wantWarnings)
	}
}

func TestSlimPod(t *testing.T) {
	two := []corev1.PodIP{{IP: "10.2.0.1"}, {IP: "fd00::1"}}
	for _, test := range []struct {
		name   string
		meta   metav1.ObjectMeta
		status corev1.PodStatus
		want   []netip.Addr
	}{
		{"running", metav1.ObjectMeta{}, corev1.PodStatus{Phase: "Running", PodIP: "10.2.0.1", PodIPs: two}, ips("10.2.0.1", "fd00::1")},
		{"one address", metav1.ObjectMeta{}, corev1.PodStatus{PodIP: "10.2.0.1"}, ips("10.2.0.1")},
		{"no address", metav1.ObjectMeta{}, corev1.PodStatus{Phase: "Pending"}, nil},
		{"ended", metav1.ObjectMeta{}, corev1.PodStatus{Phase: "Succeeded", PodIPs: two}, nil},
		{"failed", metav1.ObjectMeta{}, corev1.PodStatus{Phase: "Failed", PodIPs: two}, nil},
		{"terminating", metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, corev1.PodStatus{Phase: "Running", PodIPs: two}, nil},
	} {
		var got []netip.Addr
		if p, ok := arrive(t, cluster.Options{Pods: true}, &corev1.Pod{ObjectMeta: test.meta, Status: test.status}, t.Errorf).(*cluster.Pod); ok {
			got = p.IPs
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSlimServiceImport(t *testing.T) {
	var w warnings
	s := &ServiceImport{Meta: Meta{Namespace: "shop", Name: "web"}}
	s.Spec.Type, s.Spec.IPs = "ClusterSetIP", []string{"10.9.0.1", "x"}
	got := Slimmer{Warn: w.warn}.ServiceImport(s)
	if got.Headless || !slices.Equal(got.ClusterIPs, ips("10.9.0.1")) || len(w) != 1 || w[0] != "Ignored invalid IP address kind=ServiceImport namespace=shop name=web value=x" {
		t.Errorf("got %+v, warned %q", got, w)
	}
	w = nil
	s.Spec.Ports = append(s.Spec.Ports, struct {
		Name     string `json:"name"`
		Protocol string `json:"protocol"`
		Port     int32  `json:"port"`
	}{Name: "http"})
	if got := (Slimmer{Warn: w.warn}).ServiceImport(s); len(got.Ports) > 0 || !slices.Contains(w, "Ignored invalid port kind=ServiceImport namespace=shop name=web value=0") {
		t.Errorf("got %+v, warned %q, want a warning of the port", got, w)
	}
	s.Spec.Type, s.Spec.IPs = "Headless", nil
	if got := (Slimmer{Warn: w.warn}).ServiceImport(s); !got.Headless || got.ClusterIPs != nil {
		t.Errorf("got %+v", got)
	}
}

// External addresses are kept only with the option External.
func TestSlimExternal(t *testing.T) {
	full := &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ExternalIPs: []string{"192.0.2.1", "x"}, Selector: map[string]string{"a": "b"}}}
	full.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "2001:db8::1"}, {Hostname: "LB.Example.org."}, {Hostname: "no name"}, {}}
	var w warnings
	if got := arrive(t, cluster.Options{}, full, w.warn).(*cluster.Service); got.External != nil || !got.Selector || len(w) > 0 {
		t.Errorf("%+v %v", got, w)
	}
	got := arrive(t, cluster.Options{External: true}, full, w.warn).(*cluster.Service).External
	if want := (&cluster.External{IPs: ips("192.0.2.1", "2001:db8::1"), Hosts: []string{"lb.example.org"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	want := "Ignored invalid hostname of a load balancer kind=Service namespace=shop name=web value=no name; Ignored invalid IP address kind=Service namespace=shop name=web value=x"
	if strings.Join(w, "; ") != want {
		t.Errorf("warned %q", w)
	}
	if got := arrive(t, cluster.Options{External: true}, &corev1.Service{ObjectMeta: named("web")}, w.warn).(*cluster.Service); got.External != nil || got.Selector {
		t.Errorf("%+v", got)
	}
}

// Labels of Pods are kept only with the option PodLabels.
func TestSlimPodLabels(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.2.0.1"}, Spec: corev1.PodSpec{HostNetwork: true}}
	p.Labels = map[string]string{"app": "web", "tier": ""}
	plain := arrive(t, cluster.Options{Pods: true}, p, t.Errorf).(*cluster.Pod)
	if _, ok := plain.Labels.Get("app"); ok || plain.Labels != nil || !plain.Host {
		t.Errorf("%+v", plain)
	}
	labels := arrive(t, cluster.Options{Pods: true, PodLabels: true}, p, t.Errorf).(*cluster.Pod).Labels
	for key, want := range map[string]string{"app": "web true", "tier": " true", "web": " false"} {
		if v, ok := labels.Get(key); fmt.Sprint(v, " ", ok) != want {
			t.Errorf("%s: %q %v", key, v, ok)
		}
	}
}

func TestConfigMapSlim(t *testing.T) {
	o := cluster.Options{ConfigMap: "dns/custom"}
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "dns", Name: "custom", Annotations: map[string]string{"a": "b"}},
		Data:       map[string]string{"hosts": "one", "both": "text"},
		BinaryData: map[string][]byte{"more": {0xFF, 0}, "both": {1}},
	}
	want := map[string]string{"hosts": "one", "both": "text", "more": "\xff\x00"}
	if got := arrive(t, o, c, t.Errorf).(*cluster.ConfigMap); got.Key() != (cluster.Key{Namespace: "dns", Name: "custom"}) || !maps.Equal(got.Data, want) {
		t.Errorf("%+v", got)
	}
	c.Name = "other"
	if got := arrive(t, o, c, t.Errorf); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestNodeSlim(t *testing.T) {
	const zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
	const oldZone, oldRegion = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
	for _, c := range []struct {
		labels map[string]string
		want   cluster.Node
	}{
		{nil, cluster.Node{}},
		{map[string]string{zone: "a", region: "R-1", oldZone: "b", oldRegion: "r-2"}, cluster.Node{Zone: "a", Region: "r-1", OwnZone: "a"}},
		{map[string]string{oldZone: "B", oldRegion: "r-2"}, cluster.Node{Zone: "b", Region: "r-2", OwnZone: "b"}},
		{map[string]string{zone: "a", oldZone: "b", oldRegion: "r-2"}, cluster.Node{Zone: "b", Region: "r-2", OwnZone: "a"}},
		{map[string]string{zone: "a", oldRegion: "r-2"}, cluster.Node{OwnZone: "a"}},
		{map[string]string{zone: "", region: "r-1"}, cluster.Node{}},
	} {
		meta := fullMeta()
		meta.Name, meta.Namespace, meta.Labels = "n1", "", c.labels
		c.want.Name = "n1"
		n := &corev1.Node{
			ObjectMeta: meta, Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", Taints: []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}},
			Status: corev1.NodeStatus{Phase: "Running", Images: []corev1.ContainerImage{{Names: []string{strings.Repeat("x", 300)}, SizeBytes: 1 << 40}}},
		}
		if got := arrive(t, cluster.Options{Nodes: true}, n, t.Errorf).(*cluster.Node); *got != c.want || got.Key() != (cluster.Key{Name: "n1"}) {
			t.Errorf("%v: got %+v, want %+v", c.labels, got, c.want)
		}
	}
}

func TestSlimSliceTarget(t *testing.T) {
	for _, c := range []struct {
		namespace, service string
		target             *corev1.ObjectReference
		want               bool
	}{
		{"shop", "web", nil, false},
		{"shop", "web", &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1"}, true},
		{"shop", "web", &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}, true},
		{"shop", "web", &corev1.ObjectReference{Kind: "Pod", Namespace: "bank", Name: "web-1"}, false},
		{"shop", "web", &corev1.ObjectReference{Kind: "Node", Name: "node-1"}, true},
		{"shop", "web", &corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "web"}, false},
		{"default", "kubernetes", nil, true},
		{"shop", "kubernetes", nil, false},
		{"default", "web", nil, false},
	} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: c.namespace, Name: "slice", Labels: map[string]string{LabelServiceName: c.service}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, TargetRef: c.target}},
		}
		var w warnings
		for ep := range arrive(t, cluster.Options{}, slice, w.warn).(*cluster.Slice).Endpoints.All() {
			if ep.Target != c.want {
				t.Errorf("endpoint of %s/%s with targetRef %v: Target is %v, want %v", c.namespace, c.service, c.target, ep.Target, c.want)
			}
		}
	}
}
