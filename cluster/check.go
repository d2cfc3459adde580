package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Check says what is wrong with the options, all of it. It opens nothing: that
// a file or a server is not there is not an error, since it may yet come.
func (o Options) Check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	remote := o.Endpoint != "" || o.Kubeconfig != ""
	wrong(o.Manifests != "" && remote, "manifests: a folder takes the place of an API server, so endpoint and kubeconfig do not go with it")
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		wrong(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "",
			"endpoint: want a URL such as https://10.0.0.1:6443, got %q", o.Endpoint)
	}
	wrong((o.Cert == "") != (o.Key == ""), "tls: a certificate needs its key, and a key its certificate")
	wrong(o.Endpoint == "" && o.Cert+o.Key+o.CA != "", "tls: is for an endpoint, and none is given")
	wrong(o.Kubeconfig == "" && o.KubeconfigContext != "", "kubeconfig: a context needs a file")

	wrong(o.Namespaces != "" && o.NamespaceLabels != "", "namespaces and namespace_labels exclude each other")
	if o.Namespaces != "" {
		for name := range strings.SplitSeq(o.Namespaces, ",") {
			wrong(len(validation.IsDNS1123Label(name)) > 0, "namespaces: %q cannot be the name of a namespace", name)
		}
	}
	if o.ConfigMap != "" {
		wrong(!isConfigMapName(o.ConfigMap), "configmap: want NAMESPACE/NAME, got %q", o.ConfigMap)
	}
	_, err := labels.Parse(o.NamespaceLabels)
	wrong(err != nil, "namespace_labels: %w", err)
	_, err = labels.Parse(o.Labels)
	wrong(err != nil, "labels: %w", err)

	wrong(o.NoEndpoints && o.Zones, "zonal: needs the endpoints that noendpoints leaves out")
	wrong(o.QPS < 0, "apiserver_qps: want a positive number, got %v", o.QPS)
	wrong(o.Burst < 0, "apiserver_burst: want a positive number, got %d", o.Burst)
	wrong(o.MaxInflight < 0, "apiserver_max_inflight: want a positive number, got %d", o.MaxInflight)
	return errors.Join(errs...)
}
