package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

// hasRecords compares the objects with records that the sink has.
func (b *bench) hasRecords(want ...string) {
	b.t.Helper()
	b.sink.mu.Lock()
	defer b.sink.mu.Unlock()
	var got []string
	for _, kind := range b.opts.Kinds() {
		for key, o := range b.sink.objects[kind] {
			switch o := o.(type) {
			case *cluster.ConfigMap:
				got = append(got, fmt.Sprint("ConfigMap ", key, " ", o.Created, " ", slices.Sorted(maps.Keys(o.Data))))
			case *cluster.DNSEndpoint:
				got = append(got, fmt.Sprint("DNSEndpoint ", key, " ", o.Created, " ", o.Endpoints))
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.t.Errorf("got the objects\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const recordManifests = `{apiVersion: v1, kind: ConfigMap, metadata: {name: names, namespace: shop, labels: {dns: "yes"}, creationTimestamp: 2026-01-02T03:04:05Z}, data: {hosts: "10.0.0.1 a"}, binaryData: {more: MTAuMC4wLjIgYgo=}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: shop}, data: {hosts: other}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: shop}, data: {hosts: again}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: names, namespace: bank, labels: {dns: "yes"}, creationTimestamp: yesterday}}
---
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata:
  name: web
  namespace: shop
  creationTimestamp: "2026-01-02T03:04:06Z"
spec:
  endpoints:
  - dnsName: web.example.com
    recordType: A
    recordTTL: 60
    targets: [10.0.0.1, 10.0.0.2]
  - dnsName: old.example.com
    recordType: CNAME
    setIdentifier: east
    targets:
    - web.example.com
---
{apiVersion: externaldns.k8s.io/v1alpha1, kind: DNSEndpoint, metadata: {name: empty, namespace: bank}}
---
{apiVersion: v9, kind: Service, metadata: {name: web, namespace: shop}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}
`

// A folder delivers the objects with records that the options select, and does not warn about others.
func TestManifestsRecords(t *testing.T) {
	const (
		shopNames = "ConfigMap shop/names 1767323045 [hosts more]"
		bankNames = "ConfigMap bank/names 0 []"
		web       = "DNSEndpoint shop/web 1767323046 [{web.example.com A  60 [10.0.0.1 10.0.0.2]} {old.example.com CNAME east 0 [web.example.com]}]"
		empty     = "DNSEndpoint bank/empty 0 []"
	)
	for _, c := range []struct {
		options cluster.Options
		want    []string
	}{
		{cluster.Options{ConfigMapLabels: "dns=yes", DNSEndpoints: true}, []string{bankNames, shopNames, empty, web}},
		{cluster.Options{ConfigMapLabels: "dns=yes", DNSEndpoints: true, Namespaces: "shop"}, []string{shopNames, web}},
		{cluster.Options{ConfigMapLabels: "dns=yes"}, []string{bankNames, shopNames}},
		{cluster.Options{DNSEndpoints: true, Labels: "tier=front"}, []string{empty, web}},
		{cluster.Options{ConfigMapLabels: "dns=no", DNSEndpoints: true, Namespaces: "other"}, nil},
	} {
		t.Run(fmt.Sprintf("%+v", c.options), func(t *testing.T) {
			b := newBench(t, map[string]string{"all.yaml": recordManifests})
			b.opts = c.options
			b.read()
			b.hasRecords(c.want...)
			b.says(0, "level=WARN")
			for _, kind := range b.opts.Kinds() {
				if !b.sink.listed[kind] {
					t.Errorf("%s were not listed", kind)
				}
			}
		})
	}
}

// A change of labels adds and deletes a ConfigMap; a file with an error changes nothing.
func TestManifestsRecordsChange(t *testing.T) {
	records := func(label, rest string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: names, namespace: shop, labels: {dns: " + label + "}}}\n---\n" +
			"{apiVersion: externaldns.k8s.io/v1alpha1, kind: DNSEndpoint, metadata: {name: web, namespace: shop}, spec: {endpoints: " + rest + "}}\n"
	}
	b := newBench(t, map[string]string{"all.yaml": records("a", "[{dnsName: a}]")})
	b.opts = cluster.Options{ConfigMapLabels: "dns=a", DNSEndpoints: true}
	f := b.read()
	names, web := "ConfigMap shop/names 0 []", "DNSEndpoint shop/web 0 [{a   0 []}]"
	b.hasRecords(names, web)
	for _, c := range []struct {
		text string
		want []string
	}{
		{records("b", "[{dnsName: a}]"), []string{web}},
		{records("a", "[{dnsName: a}]"), []string{names, web}},
		{records("a", "[{dnsName: a, recordTTL: soon}]"), []string{names, web}},
		{records("a", "[{dnsName: a, recordTTL: 5}]"), []string{names, "DNSEndpoint shop/web 0 [{a   5 []}]"}},
		{"", nil},
	} {
		b.write("all.yaml", c.text)
		f.check(t.Context())
		if len(f.fileWarnings) > 0 {
			t.Fatalf("the folder cannot be read: %v", f.fileWarnings)
		}
		b.hasRecords(c.want...)
	}
	b.says(1, "DNSEndpoint shop/web: spec.endpoints.recordTTL: got string, want number")
}

func TestManifestsRecordsUnknownVersion(t *testing.T) {
	b := newBench(t, map[string]string{"all.yaml": "{apiVersion: externaldns.k8s.io/v9, kind: DNSEndpoint, metadata: {name: web, namespace: shop}}\n"})
	b.opts = cluster.Options{DNSEndpoints: true}
	b.read()
	b.says(1, `"Ignored object of an unknown apiVersion"`)
	b.hasRecords()
}

func TestManifestsRecordsOrigin(t *testing.T) {
	b := newBench(t, map[string]string{"all.yaml": strings.Replace(recordManifests, "  name: web\n", "  uid: u-1\n  name: web\n", 1)})
	b.opts = cluster.Options{ConfigMapLabels: "dns", DNSEndpoints: true}
	f := b.read()
	for _, c := range []struct {
		kind          cluster.Kind
		key           cluster.Key
		file, created string
		uid           string
	}{
		{cluster.ConfigMaps, cluster.Key{Namespace: "shop", Name: "names"}, "all.yaml:1", "2026-01-02T03:04:05Z", ""},
		{cluster.DNSEndpoints, cluster.Key{Namespace: "shop", Name: "web"}, "all.yaml:9", "2026-01-02T03:04:06Z", "u-1"},
	} {
		o, err := f.origin(t.Context(), c.kind, c.key)
		if err != nil || o.File != b.path(c.file) || formatted(o.Created) != c.created || o.UID != c.uid {
			t.Errorf("%s %s: got %+v and error %v, want %s, %s and UID %q", c.kind, c.key, o, err, c.file, c.created, c.uid)
		}
	}
}
