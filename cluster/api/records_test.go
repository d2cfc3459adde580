package api

import (
	"encoding/json"
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
)

// ConfigMaps with labels are slimmed whatever their name is, with the time of their creation.
func TestLabelledConfigMapSlim(t *testing.T) {
	o := cluster.Options{ConfigMapLabels: "dns=names"}
	for _, created := range []int64{0, 1, 1767323045, 1 << 34} {
		c := &corev1.ConfigMap{ObjectMeta: fullMeta(), Data: map[string]string{"hosts": "one"}}
		c.CreationTimestamp = metav1.Time{}
		if created != 0 {
			c.CreationTimestamp = metav1.Unix(created, 0)
		}
		got := arrive(t, o, c, t.Errorf).(*cluster.ConfigMap)
		if got.Created != created || got.Key() != (cluster.Key{Namespace: c.Namespace, Name: c.Name}) || got.Data["hosts"] != "one" {
			t.Errorf("created at %d: got %+v", created, got)
		}
	}
}

// The fields of a DNSEndpoint are kept as they are.
func TestDNSEndpointSlim(t *testing.T) {
	const text = `{"apiVersion":"externaldns.k8s.io/v1alpha1","kind":"DNSEndpoint",
		"metadata":{"namespace":"shop","name":"web","resourceVersion":"5","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b"}},
		"spec":{"endpoints":[
			{"dnsName":"WEB.example.com.","recordType":"a","recordTTL":-1,"targets":["10.0.0.1","no address"],"setIdentifier":"east",
				"labels":{"owner":"x"},"providerSpecific":[{"name":"p","value":"v"}]},
			{}]},
		"status":{"observedGeneration":3}}`
	want := &cluster.DNSEndpoint{Namespace: "shop", Name: "web", Created: 1767323045, Endpoints: []cluster.EndpointRecords{
		{Name: "WEB.example.com.", Type: "a", TTL: -1, Targets: []string{"10.0.0.1", "no address"}, Set: "east"}, {},
	}}
	r := resourceOf(cluster.Options{DNSEndpoints: true}, cluster.DNSEndpoints, nil)
	var got Decoded
	if err := r.ReadJSON([]byte(text), &got); err != nil || !reflect.DeepEqual(got.Slim, want) || got.Version != "5" {
		t.Errorf("got %+v of version %s and error %v, want %+v of version 5", got.Slim, got.Version, err, want)
	}
	if r.String() != "dnsendpoints.externaldns.k8s.io" || r.Version != "externaldns.k8s.io/v1alpha1" || !r.IsCustom() {
		t.Errorf("got resource %s of version %s", r, r.Version)
	}
	if err := r.ReadProtobuf(nil, &got, nil); err == nil {
		t.Error("protobuf: got no error, want one")
	}
	for _, wrong := range []string{`{"spec":{"endpoints":{}}}`, `{"spec":{"endpoints":[{"targets":[1]}]}}`, `{"spec":{"endpoints":[{"recordTTL":"1h"}]}}`} {
		if err := r.ReadJSON([]byte(wrong), &got); err == nil {
			t.Errorf("%s: got no error, want one", wrong)
		}
	}
}

// A slim DNSEndpoint has no room that it does not use, and shares its types with others.
func TestDNSEndpointMemory(t *testing.T) {
	slim := func() cluster.EndpointRecords {
		full := new(DNSEndpoint)
		full.Spec.Endpoints = append(make([]EndpointRecords, 0, 8), EndpointRecords{
			DNSName: "a.example.com", RecordType: string([]byte{'A'}), Targets: append(make([]string, 0, 4), "10.0.0.1"),
		})
		got := Slimmer{}.DNSEndpoint(full)
		if n := cap(got.Endpoints); n != 1 {
			t.Errorf("endpoints: got room for %d, want 1", n)
		}
		if n := cap(got.Endpoints[0].Targets); n != 1 {
			t.Errorf("targets: got room for %d, want 1", n)
		}
		return got.Endpoints[0]
	}
	first, second := slim(), slim()
	if unsafe.StringData(first.Type) != unsafe.StringData(second.Type) {
		t.Error("the types of two objects do not share memory")
	}
}

// An invalid time of creation in a file is none.
func TestSecondsInvalid(t *testing.T) {
	for text, want := range map[string]Seconds{
		`"2026-01-02T03:04:05Z"`: 1767323045, `null`: 0, `""`: 0, `"yesterday"`: 0, `7`: 0, `{"a":"b"}`: 0, `["c"]`: 0,
	} {
		m := Meta{CreationTimestamp: 9}
		if err := json.Unmarshal([]byte(`{"creationTimestamp":`+text+`}`), &m); err != nil || m.CreationTimestamp != want {
			t.Errorf("%s: got %d and error %v, want %d", text, m.CreationTimestamp, err, want)
		}
	}
}
