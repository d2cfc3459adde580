package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/redact"
	"github.com/seamark/seamark/sys/watch"
)

// Check returns all errors of the options, joined. It opens nothing: a file or an
// API server that does not exist may appear later. CheckFiles looks for files.
func (o Options) Check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	remote := o.Endpoint != "" || o.Kubeconfig != ""
	wrong(o.Manifests != "" && remote,
		"manifests: a folder takes the place of an API server, so endpoint and kubeconfig do not go with it")
	if o.Endpoint != "" {
		u, err := corefile.ParseURL(o.Endpoint)
		wrong(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "",
			"endpoint: want a URL such as https://10.0.0.1:6443, got %q", redact.URL(o.Endpoint))
	}
	wrong((o.Cert == "") != (o.Key == ""), "tls: a certificate needs its key, and a key its certificate")
	wrong(o.Endpoint == "" && o.Cert+o.Key+o.CA != "", "tls: is for an endpoint, and none is given")
	wrong(o.Kubeconfig == "" && o.KubeconfigContext != "", "kubeconfig: a context needs a file")

	wrong(o.Namespaces != "" && o.NamespaceLabels != "", "namespaces and namespace_labels exclude each other")
	if o.Namespaces != "" {
		for name := range strings.SplitSeq(o.Namespaces, ",") {
			wrong(!IsNamespaceName(name), "namespaces: %q cannot be the name of a namespace", name)
		}
	}
	if o.ConfigMap != "" {
		_, ok := ParseKey(o.ConfigMap)
		wrong(!ok, "configmap: want NAMESPACE/NAME, got %q", o.ConfigMap)
	}
	wrong(o.Records() && (o.ConfigMap != "" || o.Nodes),
		"configmaps with labels and dnsendpoints exclude one configmap and nodes")
	wrong(o.Records() && o.NamespaceLabels != "",
		"namespace_labels: is for Services, and not for configmaps with labels and dnsendpoints")
	wrong(o.Published != 0 && (o.ConfigMap != "" || o.Nodes || o.Records()),
		"gateways, routes and ingresses exclude configmaps, nodes and dnsendpoints")
	_, err := labels.Parse(o.ConfigMapLabels)
	wrong(err != nil, "configmaps: %w", err)
	_, err = labels.Parse(o.NamespaceLabels)
	wrong(err != nil, "namespace_labels: %w", err)
	_, err = labels.Parse(o.Labels)
	wrong(err != nil, "labels: %w", err)

	if o.NodeName != "" {
		wrong(len(validation.IsDNS1123Subdomain(o.NodeName)) > 0, "node: %q cannot be the name of a node", o.NodeName)
	}
	wrong(o.NoEndpoints && o.Zones, "zonal: needs the endpoints that noendpoints leaves out")
	wrong(o.QPS < 0, "apiserver_qps: want a positive number, got %v", o.QPS)
	wrong(o.Burst < 0, "apiserver_burst: want a positive number, got %d", o.Burst)
	wrong(o.MaxInflight < 0, "apiserver_max_inflight: want a positive number, got %d", o.MaxInflight)
	return errors.Join(errs...)
}

// Location returns options that name the same cluster, and select nothing in it.
func (o Options) Location() Options {
	return Options{
		Manifests: o.Manifests, Endpoint: o.Endpoint, Cert: o.Cert, Key: o.Key, CA: o.CA,
		Kubeconfig: o.Kubeconfig, KubeconfigContext: o.KubeconfigContext,
	}
}

// IsNamespaceName reports whether text can be the name of a namespace.
func IsNamespaceName(text string) bool { return len(validation.IsDNS1123Label(text)) == 0 }

// CheckFiles returns an error for each file and folder of the options that cannot be
// read now. A source waits for them, so this is for commands that check a
// configuration.
func (o Options) CheckFiles() error {
	var errs []error
	for _, f := range []struct{ option, path string }{
		{"kubeconfig", o.Kubeconfig}, {"tls", o.Cert}, {"tls", o.Key}, {"tls", o.CA},
	} {
		if f.path == "" {
			continue
		}
		file, err := watch.Open(f.path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.option, &fs.PathError{Op: "open", Path: f.path, Err: err}))
			continue
		}
		_ = file.Close()
	}
	if o.Manifests != "" {
		if _, err := os.ReadDir(o.Manifests); err != nil {
			errs = append(errs, fmt.Errorf("manifests: %w", err))
		}
	}
	return errors.Join(errs...)
}

// ConfigMapKey returns the key of the ConfigMap that the options name, if any.
func (o Options) ConfigMapKey() Key {
	key, _ := ParseKey(o.ConfigMap)
	return key
}

// ParseKey parses NAMESPACE/NAME. ok reports whether it can be the key of an object.
func ParseKey(text string) (key Key, ok bool) {
	namespace, name, _ := strings.Cut(text, "/")
	ok = len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
	return Key{namespace, name}, ok
}
