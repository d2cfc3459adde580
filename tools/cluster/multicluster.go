//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mcsVersion is the version of the module with the resources of KEP-1645.
const mcsVersion = "0.5.2"

// A multiRule is a rule of KEP-1645 for DNS, and a query that shows it.
type multiRule struct {
	rule, qname, qtype string
	want               []string // data of the records, sorted; nil for NXDOMAIN
	before             []string // arguments of kubectl, for a change of the objects
}

// multiRules are the rules, for the objects of files/multicluster.yaml. Each waits for the change
// before it.
func multiRules() []multiRule {
	const zone = ".shop.svc.clusterset.local"
	return []multiRule{
		{rule: "a ServiceImport of type ClusterSetIP has its IP", qname: "web" + zone, qtype: "A", want: []string{"10.96.200.1"}},
		{rule: "its ports have SRV records", qname: "_http._tcp.web" + zone, qtype: "SRV", want: []string{"80 web" + zone + "."}},
		{rule: "it has no names of clusters", qname: "east.web" + zone, qtype: "A"},
		{rule: "a ServiceImport of type Headless has the endpoints of all clusters", qname: "db" + zone, qtype: "A",
			want: []string{"10.244.200.1", "10.244.201.1"}},
		{rule: "hostnames of endpoints are names with their cluster: east", qname: "db-0.east.db" + zone, qtype: "A",
			want: []string{"10.244.200.1"}},
		{rule: "hostnames of endpoints are names with their cluster: west", qname: "db-0.west.db" + zone, qtype: "A",
			want: []string{"10.244.201.1"}},
		{rule: "SRV records of ports of a headless one have these names", qname: "_sql._tcp.db" + zone, qtype: "SRV",
			want: []string{"5432 db-0.east.db" + zone + ".", "5432 db-0.west.db" + zone + "."}},
		{rule: "a Service that is not imported has no name in the cluster set", qname: "local" + zone, qtype: "A"},
		{rule: "a ServiceImport has no name in the cluster's zone", qname: "web.shop.svc.cluster.local", qtype: "A"},
		{rule: "a change of the IP is answered", qname: "web" + zone, qtype: "A", want: []string{"10.96.200.2"},
			before: []string{"patch", "serviceimport", "web", "--type=merge", "-p", `{"spec":{"ips":["10.96.200.2"]}}`}},
		{rule: "endpoints of a cluster that leaves are removed", qname: "db" + zone, qtype: "A", want: []string{"10.244.200.1"},
			before: []string{"delete", "endpointslice", "db-west"}},
		{rule: "a deleted ServiceImport has no name", qname: "web" + zone, qtype: "A",
			before: []string{"delete", "serviceimport", "web"}},
	}
}

// runMulticluster installs the resources, changes the Corefile, and checks the rules.
func (t *conformance) runMulticluster(ctx context.Context, s server, of suite) error {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		if err := t.checkVersion(ctx, s, of, version); err != nil {
			return err
		}
	}
	return nil
}

func (t *conformance) checkVersion(ctx context.Context, s server, of suite, version string) (err error) {
	d, err := downloadModule(ctx, module{path: "sigs.k8s.io/mcs-api", version: mcsVersion})
	if err != nil {
		return err
	}
	corefile, err := t.kubectl(ctx, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
	if err != nil {
		return err
	}
	objects, account := t.file("multicluster.yaml"), t.file("multicluster-account.yaml")
	err = errors.Join(
		writeTemplate("multicluster.yaml", objects, map[string]any{
			"Version":   "multicluster.x-k8s.io/" + version,
			"Endpoints": map[string]string{"east": "10.244.200.1", "west": "10.244.201.1"},
		}),
		writeTemplate("multicluster-account.yaml", account, nil),
	)
	if err != nil {
		return err
	}

	resources := filepath.Join(d.Dir, "config", "crd", "multicluster.x-k8s.io_serviceimports.yaml")
	defer func() {
		restore, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_, deleted := t.kubectl(restore, "delete", "--ignore-not-found", "-f", objects, "-f", account, "-f", resources)
		err = errors.Join(err, deleted, t.setCorefile(restore, string(corefile)))
	}()
	for _, args := range [][]string{
		{"apply", "-f", resources},
		{"wait", "--for=condition=Established", "crd/serviceimports.multicluster.x-k8s.io"},
		{"apply", "-f", objects, "-f", account},
	} {
		if _, err := t.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	if err := t.setCorefile(ctx, withMulticluster(string(corefile))); err != nil {
		return err
	}

	for _, rule := range multiRules() {
		r := t.checkRule(ctx, rule)
		r.Name = version + ": " + r.Name
		t.add(s, of, r)
	}
	return ctx.Err()
}

var kubernetesBlock = regexp.MustCompile(`kubernetes cluster\.local([^{\n]*)\{`)

// withMulticluster returns a Corefile that serves the names of ServiceImports, too.
func withMulticluster(corefile string) string {
	return kubernetesBlock.ReplaceAllString(corefile,
		"kubernetes cluster.local clusterset.local$1{\n           multicluster clusterset.local")
}

// setCorefile changes the Corefile and restarts the DNS servers.
func (t *conformance) setCorefile(ctx context.Context, corefile string) error {
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"Corefile": corefile}})
	if err != nil {
		return err
	}
	_, err = t.kubectl(ctx, "-n", "kube-system", "patch", "configmap", "coredns", "--type=merge", "-p", string(patch))
	return errors.Join(err, t.restartRollout(ctx))
}

// checkRule queries until the answer is the expected one, longer than the caches keep an answer.
func (t *conformance) checkRule(ctx context.Context, rule multiRule) result {
	r := result{Name: rule.rule, Outcome: failed, Start: time.Now()}
	if rule.before != nil {
		if _, err := t.kubectl(ctx, append([]string{"-n", "shop"}, rule.before...)...); err != nil {
			r.Message = err.Error()
			return r
		}
	}

	for deadline := r.Start.Add(45 * time.Second); ; {
		out, err := t.kubectl(ctx, "exec", "deploy/client-glibc", "--",
			"dig", "+noall", "+comments", "+answer", rule.qname, rule.qtype)
		status, records := parseDig(string(out))
		r.Seconds = time.Since(r.Start).Seconds()

		want := "NOERROR"
		if rule.want == nil {
			want = "NXDOMAIN"
		}
		if err == nil && status == want && slices.Equal(records, rule.want) {
			r.Outcome, r.Message = passed, ""
			return r
		}
		r.Message = fmt.Sprintf("%s %s: got %s %q, want %s %q (%v)", rule.qname, rule.qtype, status, records, want, rule.want, err)
		if time.Now().After(deadline) || pause(ctx, time.Second) != nil {
			return r
		}
	}
}

// parseDig returns the response code and the data of the records, sorted, without the priorities
// and weights of SRV records, which KEP-1645 does not determine.
func parseDig(out string) (status string, records []string) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if _, rest, ok := strings.Cut(line, "status: "); ok {
			status, _, _ = strings.Cut(rest, ",")
		}
		if len(fields) < 5 || strings.HasPrefix(line, ";") {
			continue
		}
		data := fields[4:]
		if fields[3] == "SRV" {
			data = fields[6:]
		}
		records = append(records, strings.Join(data, " "))
	}
	slices.Sort(records)
	return status, records
}
