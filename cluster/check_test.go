package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
		"configmaps: ":                     {ConfigMapLabels: "a in"},
		"exclude one configmap":            {ConfigMapLabels: "a", ConfigMap: "shop/names"},
		"and nodes":                        {DNSEndpoints: true, Nodes: true},
		"is for Services":                  {DNSEndpoints: true, NamespaceLabels: "a"},
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
		{Namespaces: "a,b", ConfigMapLabels: "dns in (a,b),!old", DNSEndpoints: true},
	} {
		if err := o.Check(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// CheckFiles names each file that cannot be read.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
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

func TestConfigMapCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"", true}, {"dns/custom", true}, {"dns/custom.hosts-1", true},
		{"custom", false}, {"/custom", false}, {"dns/", false}, {"dns/a/b", false}, {"Dns/custom", false}, {"dns/Custom", false}, {"d.ns/custom", false},
	} {
		err := Options{ConfigMap: c.name}.Check()
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.name, err)
		}
		if err != nil && err.Error() != `configmap: want NAMESPACE/NAME, got "`+c.name+`"` {
			t.Errorf("%q: %v", c.name, err)
		}
	}
}

// Objects with records are watched alone: a server that only needs them needs no other permission.
func TestKindsOfRecords(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    []Kind
	}{
		{Options{ConfigMapLabels: "dns"}, []Kind{ConfigMaps}},
		{Options{DNSEndpoints: true, Namespaces: "shop"}, []Kind{DNSEndpoints}},
		{Options{ConfigMapLabels: "dns", DNSEndpoints: true}, []Kind{ConfigMaps, DNSEndpoints}},
	} {
		if got := c.options.Kinds(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.options, got, c.want)
		}
	}
}
