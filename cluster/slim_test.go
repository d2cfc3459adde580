package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// warnings collects what is warned of.
type warnings []string

func (w *warnings) warn(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

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
		want Service
		warn string
	}{
		{
			name: "dual stack",
			spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1", "fd00::1"}, PublishNotReadyAddresses: true,
				Ports: []corev1.ServicePort{{Name: "DNS", Protocol: "UDP", Port: 53}, {Port: 80}, {Name: "none"}}},
			want: Service{ClusterIPs: ips("10.0.0.1", "fd00::1"), PublishNotReady: true,
				Ports: []Port{{"dns", "udp", 53}, {"", "tcp", 80}}},
			warn: "Service shop/web: 0 is not a port: ignored",
		},
		{
			name: "clusterIP alone, IPv4 as IPv6",
			spec: corev1.ServiceSpec{ClusterIP: "::ffff:10.0.0.1"},
			want: Service{ClusterIPs: ips("10.0.0.1")},
		},
		{
			name: "headless",
			spec: corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}, Ports: []corev1.ServicePort{{Name: "a", Port: 1}}},
			want: Service{Headless: true, Ports: []Port{{"a", "tcp", 1}}},
		},
		{
			name: "no address yet",
			want: Service{ClusterIPs: []netip.Addr{}},
		},
		{
			name: "ExternalName has nothing else",
			spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "Example.COM.", ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 1}}},
			want: Service{ExternalName: "example.com"},
		},
		{
			name: "ExternalName that is no name",
			spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "a b.c"},
			want: Service{ExternalName: "a b.c"},
			warn: `Service shop/web: externalName "a b.c" is not a name: it has no answer`,
		},
		{
			name: "ExternalName with an underscore",
			spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "_my_host.example"},
			want: Service{ExternalName: "_my_host.example"},
		},
		{
			name: "ExternalName that is an address",
			spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "192.0.2.1"},
			want: Service{ExternalName: "192.0.2.1"},
			warn: `Service shop/web: externalName "192.0.2.1" is not a name: it has no answer`,
		},
		{
			name: "invalid addresses",
			spec: corev1.ServiceSpec{ClusterIPs: []string{"10.0.0.256", "10.0.0.1", "fe80::1%eth0"}},
			want: Service{ClusterIPs: ips("10.0.0.1")},
			warn: `Service shop/web: "10.0.0.256" is not an IP address: ignored; Service shop/web: "fe80::1%eth0" is not an IP address: ignored`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var w warnings
			got := arrive(t, Options{}, &corev1.Service{ObjectMeta: named("web"), Spec: test.spec}, w.warn).(*Service)
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
			{Name: new("all")}, // every port: no number
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
	got := arrive(t, Options{}, slice, w.warn).(*Slice)
	if got.Service != "web" || got.Cluster != "" || !slices.Equal(got.Ports, []Port{{"http", "tcp", 80}}) {
		t.Errorf("got %+v", got)
	}
	if len(w) != 1 || w[0] != `EndpointSlice shop/web-1: "nonsense" is not an IP address: ignored` {
		t.Errorf("warned %q", w)
	}
	addr := netip.MustParseAddr
	plain := []Endpoint{
		{addr("10.1.0.1"), "db-0", "", true}, {addr("10.1.0.2"), "db-0", "", true}, {addr("10.1.0.3"), "", "", false},
		{addr("10.1.0.4"), "", "", true}, {addr("10.1.0.5"), "", "", true}, {addr("10.1.0.6"), "", "", true},
	}
	if got := slices.Collect(got.Endpoints.All()); !slices.Equal(got, plain) {
		t.Errorf("endpoints: got %+v", got)
	}
	full := slices.Clone(plain)
	full[0].Zone, full[1].Zone, full[2].Hostname = "west", "west", "db-1"
	got = arrive(t, Options{PodNames: true, Zones: true}, slice, w.warn).(*Slice)
	if got := slices.Collect(got.Endpoints.All()); !slices.Equal(got, full) {
		t.Errorf("endpoints with pod names and zones: got %+v", got)
	}
}

func TestSlimSliceBelongs(t *testing.T) {
	const own, service, source = "kubernetes.io/service-name", labelImportService, labelImportCluster
	for _, test := range []struct {
		name         string
		labels       map[string]string
		kind         discoveryv1.AddressType
		plain, multi string // service@cluster
	}{
		{"own", map[string]string{own: "web"}, "IPv4", "web@", "web@"},
		{"nobody's", nil, "IPv4", "", ""},
		{"FQDN", map[string]string{own: "web"}, "FQDN", "web@", "web@"},
		{"imported FQDN", map[string]string{service: "web", source: "east"}, "FQDN", "", ""},
		{"imported", map[string]string{service: "web", source: "East"}, "IPv6", "", "web@east"},
		{"imported, of a derived Service", map[string]string{own: "derived", service: "web", source: "east"}, "IPv4", "", "web@east"},
		{"imported from nowhere", map[string]string{own: "derived", service: "web"}, "IPv4", "", ""},
	} {
		for multi, want := range map[bool]string{false: test.plain, true: test.multi} {
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}, AddressType: test.kind}
			got := ""
			if s, ok := arrive(t, Options{Multicluster: multi}, slice, t.Errorf).(*Slice); ok {
				got = s.Service + "@" + s.Cluster
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
	got := arrive(t, Options{}, slice, w.warn).(*Slice).Endpoints
	var names []string
	for name, e := range got.Names() {
		names = append(names, fmt.Sprintf("%s %+v", name, e))
	}
	want := []string{
		fmt.Sprintf("db.example.net %+v", Endpoint{Hostname: "away", Ready: true}),
		fmt.Sprintf("a_b.example %+v", Endpoint{}),
	}
	if !slices.Equal(names, want) || !got.HasNames() {
		t.Errorf("names of %+v: got %q, want %q", slice.Endpoints, names, want)
	}
	if all := slices.Collect(got.All()); len(all) != 0 {
		t.Errorf("endpoints with addresses: got %+v, want none", all)
	}
	wantWarnings := warnings{`EndpointSlice shop/db-1: "10.0.0.1" is not a name: ignored`, `EndpointSlice shop/db-1: "a..b" is not a name: ignored`,
		`EndpointSlice shop/db-1: "" is not a name: ignored`, `EndpointSlice shop/db-1: "mail@example.net" is not a name: ignored`}
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
		if p, ok := arrive(t, Options{Pods: true}, &corev1.Pod{ObjectMeta: test.meta, Status: test.status}, t.Errorf).(*Pod); ok {
			got = p.IPs
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSlimServiceImport(t *testing.T) {
	var w warnings
	s := &apiServiceImport{apiMeta: apiMeta{Namespace: "shop", Name: "web"}}
	s.Spec.Type, s.Spec.IPs = "ClusterSetIP", []string{"10.9.0.1", "x"}
	got := Options{}.serviceImport(s, w.warn)
	if got.Headless || !slices.Equal(got.ClusterIPs, ips("10.9.0.1")) || len(w) != 1 || !strings.HasPrefix(w[0], "ServiceImport shop/web: ") {
		t.Errorf("got %+v, warned %q", got, w)
	}
	s.Spec.Type, s.Spec.IPs = "Headless", nil
	if got := (Options{}).serviceImport(s, w.warn); !got.Headless || got.ClusterIPs != nil {
		t.Errorf("got %+v", got)
	}
}

func TestCheck(t *testing.T) {
	for want, o := range map[string]Options{
		"":                                 Options{},
		"takes the place of":               {Manifests: "dir", Endpoint: "http://localhost:8001"},
		`want a URL such as`:               {Endpoint: "localhost:8001"},
		`got "ftp://host"`:                 {Endpoint: "ftp://host"},
		"needs its key":                    {Endpoint: "https://host", Cert: "file"},
		"is for an endpoint":               {CA: "file"},
		"a context needs a file":           {KubeconfigContext: "prod"},
		"exclude each other":               {Namespaces: "a", NamespaceLabels: "b"},
		`"A b" cannot be the name`:         {Namespaces: "a,A b"},
		"namespace_labels: ":               {NamespaceLabels: "a in"},
		"labels: ":                         {Labels: "a=b=c"},
		"zonal: ":                          {NoEndpoints: true, Zones: true},
		"apiserver_qps: ":                  {QPS: -1},
		"apiserver_burst: ":                {Burst: -1},
		"apiserver_max_inflight: ":         {MaxInflight: -1},
		"namespaces: \"-\" cannot":         {Namespaces: "-", Burst: -1},
		"apiserver_burst: want a positive": {Namespaces: "-", Burst: -1},
	} {
		err := o.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	for _, o := range []Options{
		{Endpoint: "http://localhost:8001"},
		{Endpoint: "https://[::1]:6443", Cert: "c", Key: "k", CA: "a"},
		{Endpoint: "https://host", Kubeconfig: "file", KubeconfigContext: "prod"},
		{Manifests: "dir", Namespaces: "a,b", Labels: "tier in (a,b),!old"},
		{NamespaceLabels: "istio=enabled", Multicluster: true, Zones: true, QPS: 5, Burst: 10, MaxInflight: 1},
	} {
		if err := o.Check(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Addresses outside the cluster are kept where they are asked for.
func TestSlimExternal(t *testing.T) {
	full := &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ExternalIPs: []string{"192.0.2.1", "x"}, Selector: map[string]string{"a": "b"}}}
	full.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "2001:db8::1"}, {Hostname: "LB.Example.org."}, {Hostname: "no name"}, {}}
	var w warnings
	if got := arrive(t, Options{}, full, w.warn).(*Service); got.External != nil || !got.Selector || len(w) > 0 {
		t.Errorf("%+v %v", got, w)
	}
	got := arrive(t, Options{External: true}, full, w.warn).(*Service).External
	if want := (&External{IPs: ips("192.0.2.1", "2001:db8::1"), Hosts: []string{"lb.example.org"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	want := `Service shop/web: hostname "no name" of its load balancer is not a name: ignored; Service shop/web: "x" is not an IP address: ignored`
	if strings.Join(w, "; ") != want {
		t.Errorf("warned %q", w)
	}
	if got := arrive(t, Options{External: true}, &corev1.Service{ObjectMeta: named("web")}, w.warn).(*Service); got.External != nil || got.Selector {
		t.Errorf("%+v", got)
	}
}

// A Pod's labels are kept where they are asked for.
func TestSlimPodLabels(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.2.0.1"}, Spec: corev1.PodSpec{HostNetwork: true}}
	p.Labels = map[string]string{"app": "web", "tier": ""}
	plain := arrive(t, Options{Pods: true}, p, t.Errorf).(*Pod)
	if _, ok := plain.Labels.Get("app"); ok || plain.Labels != nil || !plain.Host {
		t.Errorf("%+v", plain)
	}
	labels := arrive(t, Options{Pods: true, PodLabels: true}, p, t.Errorf).(*Pod).Labels
	for key, want := range map[string]string{"app": "web true", "tier": " true", "web": " false"} {
		if v, ok := labels.Get(key); fmt.Sprint(v, " ", ok) != want {
			t.Errorf("%s: %q %v", key, v, ok)
		}
	}
}

// CheckFiles names each file that cannot be read.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{}, ""}, {Options{Manifests: dir}, ""}, {Options{Kubeconfig: file}, ""},
		{Options{Endpoint: "https://10.0.0.1", Cert: file, Key: file, CA: file}, ""},
		{Options{Manifests: missing}, "manifests: open " + missing + ": no such file or directory"},
		{Options{Kubeconfig: missing}, "kubeconfig: open " + missing + ": no such file or directory"},
		{Options{CA: missing}, "tls: open " + missing + ": no such file or directory"},
	} {
		got := ""
		if err := c.options.CheckFiles(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("CheckFiles of %+v: %q, want %q", c.options, got, c.want)
		}
	}
	if err := (Options{Manifests: file}).CheckFiles(); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("CheckFiles of a file as a folder of manifests: %v, want not a directory", err)
	}
}
