//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mcsVersion is the version of the module with the resources of KEP-1645.
const mcsVersion = "0.5.2"

// multiRules are the rules of KEP-1645 for DNS, for the objects of files/multicluster.yaml. Each waits for
// the change before it.
func multiRules() []rule {
	const zone = ".shop.svc.clusterset.local"
	kubectl := func(args string) []string { return append([]string{"-n", "shop"}, strings.Fields(args)...) }
	return []rule{
		{name: "a ServiceImport of type ClusterSetIP has its IP", query: "web" + zone + " A", want: "NOERROR 10.96.200.1"},
		{name: "its ports have SRV records", query: "_http._tcp.web" + zone + " SRV", want: "NOERROR 80 web" + zone + "."},
		{name: "it has no names of clusters", query: "east.web" + zone + " A", want: "NXDOMAIN"},
		{name: "a ServiceImport of type Headless has the endpoints of all clusters", query: "db" + zone + " A",
			want: "NOERROR 10.244.200.1, 10.244.201.1"},
		{name: "hostnames of endpoints are names with their cluster: east", query: "db-0.east.db" + zone + " A",
			want: "NOERROR 10.244.200.1"},
		{name: "hostnames of endpoints are names with their cluster: west", query: "db-0.west.db" + zone + " A",
			want: "NOERROR 10.244.201.1"},
		{name: "SRV records of ports of a headless one have these names", query: "_sql._tcp.db" + zone + " SRV",
			want: "NOERROR 5432 db-0.east.db" + zone + "., 5432 db-0.west.db" + zone + "."},
		{name: "a Service that is not imported has no name in the cluster set", query: "local" + zone + " A", want: "NXDOMAIN"},
		{name: "a ServiceImport has no name in the cluster's zone", query: "web.shop.svc.cluster.local A", want: "NXDOMAIN"},
		{name: "a change of the IP is answered", query: "web" + zone + " A", want: "NOERROR 10.96.200.2",
			before: kubectl(`patch serviceimport web --type=merge -p {"spec":{"ips":["10.96.200.2"]}}`)},
		{name: "endpoints of a cluster that leaves are removed", query: "db" + zone + " A", want: "NOERROR 10.244.200.1",
			before: kubectl("delete endpointslice db-west")},
		{name: "a deleted ServiceImport has no name", query: "web" + zone + " A", want: "NXDOMAIN",
			before: kubectl("delete serviceimport web")},
	}
}

// runMulticluster checks the rules with each version of ServiceImport.
func (t *conformance) runMulticluster(ctx context.Context, s server, of suite) error {
	d, err := downloadModule(ctx, module{path: "sigs.k8s.io/mcs-api", version: mcsVersion})
	if err != nil {
		return err
	}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		err := t.with(ctx, scenario{
			definitions: []string{filepath.Join(d.Dir, "config", "crd", "multicluster.x-k8s.io_serviceimports.yaml")},
			objects:     []string{"multicluster.yaml", "multicluster-account.yaml"},
			data: map[string]any{
				"Version":   "multicluster.x-k8s.io/" + version,
				"Endpoints": map[string]string{"east": "10.244.200.1", "west": "10.244.201.1"},
			},
			corefile: withMulticluster,
		}, func() error {
			if s.name == "seamark" {
				t.add(s, of, t.checkWatched(ctx, version+": "))
			}
			return t.checkRules(ctx, s, of, version+": ", multiRules())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkWatched waits until v1beta1 is the only version of ServiceImport that is watched, by the metrics of the API
// server. The garbage collector watches it, too: that nothing watches v1alpha1, as CoreDNS does, is the evidence.
func (t *conformance) checkWatched(ctx context.Context, prefix string) result {
	r := result{Name: prefix + "of two versions that are served, v1beta1 is watched", Outcome: failed, Start: time.Now()}
	for n := 0; pause(ctx, time.Second) == nil && n < 45; n++ {
		page, err := t.kubectl(ctx, "get", "--raw", "/metrics")
		watches := func(version string) float64 {
			return sumOfMetric(string(page), "apiserver_longrunning_requests", `resource="serviceimports"`, `verb="WATCH"`,
				`version="`+version+`"`)
		}
		beta, alpha := watches("v1beta1"), watches("v1alpha1")

		r.Message = fmt.Sprintf("watches of v1beta1: %.0f, of v1alpha1: %.0f (%v)", beta, alpha, err)
		if err == nil && beta > 0 && alpha == 0 {
			r.Outcome, r.Message = passed, ""
			break
		}
	}
	r.Seconds = time.Since(r.Start).Seconds()
	return r
}

var kubernetesBlock = regexp.MustCompile(`kubernetes cluster\.local([^{\n]*)\{`)

// withMulticluster returns a Corefile that serves the names of ServiceImports, too.
func withMulticluster(corefile string) string {
	return kubernetesBlock.ReplaceAllString(corefile,
		"kubernetes cluster.local clusterset.local$1{\n           multicluster clusterset.local")
}
