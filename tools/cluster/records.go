//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// externalDNSImage has the program that module kubetest builds.
const externalDNSImage = "seamark.local/external-dns:1"

// updatesService is the address of the server that ExternalDNS writes to.
const updatesService = "10.96.202.53"

// recordsScenario has two tenants with a zone each, below example.org by ExternalDNS with RFC 2136, and
// below example.test by their own objects. The writer thief of tenant-b claims the zone of tenant-a.
func recordsScenario(dnsEndpoints string) scenario {
	type writer struct{ Name, Tenant, Zone string }
	return scenario{
		definitions: []string{dnsEndpoints},
		objects:     []string{"records.yaml"},
		data: map[string]any{
			"Tenants":   map[string]string{"tenant-a": "a", "tenant-b": "b"},
			"Addresses": map[string]string{"tenant-a": "10.96.202.1", "tenant-b": "10.96.202.2"},
			"Secrets": map[string]string{
				"tenant-a": "Xo8kIYhTMDRuAn0z2AJ2jhN4Nq6Z5dGXlaCrqrhhk0A=", "tenant-b": "b3RoZXIgc2VjcmV0IG9mIHRoZSBvdGhlciB0ZW5hbnQ=",
			},
			"Writers":     []writer{{"external-dns", "tenant-a", "a"}, {"external-dns", "tenant-b", "b"}, {"thief", "tenant-b", "a"}},
			"ExternalDNS": externalDNSImage, "Seamark": seamarkImage, "Updates": updatesService,
		},
		corefile: withRecords,
	}
}

// withRecords returns a Corefile that serves the objects of tenants, and forwards to the server that
// ExternalDNS writes to.
func withRecords(corefile string) string {
	return strings.Replace(corefile, "    errors\n", `    errors
    records example.test {
        objects {
            configmaps
            dnsendpoints
            delegate tenant-a a.example.test shared.example.test
            delegate tenant-b b.example.test shared.example.test
        }
    }
    forward example.org `+updatesService+`
`, 1)
}

// runRecords checks the names of two tenants who claim each other's zones.
func (t *conformance) runRecords(ctx context.Context, s server, of suite) error {
	kubetest := filepath.Join(t.Options.Source, "kubetest")
	program, err := goCommand(ctx, kubetest, "run", "./externaldns/build")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(strings.TrimSpace(string(program)))
	if err != nil {
		return err
	}
	entries := []entry{{"external-dns", data, 0o755}, {"tmp/empty", nil, 0o644}}
	if err := t.importImage(ctx, []string{externalDNSImage}, entries, "/external-dns"); err != nil {
		return err
	}

	definition, err := goCommand(ctx, kubetest, "run", "./externaldns/build", "-crd")
	if err != nil {
		return err
	}
	file := t.file("dnsendpoints.yaml")
	if err := os.WriteFile(file, definition, 0o644); err != nil {
		return err
	}
	objects := t.file("records-objects.yaml")
	if err := writeTemplate("records-objects.yaml", objects, nil); err != nil {
		return err
	}
	return t.with(ctx, recordsScenario(file), func() error {
		return steps(
			func() error { return t.rollout(ctx, "updates", "updates") },
			func() error { return t.checkRules(ctx, s, of, "ExternalDNS: ", updateRules(objects)) },
			func() error {
				return t.checkText(ctx, s, of, "ExternalDNS: the updates of the thief are refused", "bad authentication",
					"-n", "tenant-b", "logs", "deploy/thief")
			},
			func() error { return t.checkRules(ctx, s, of, "objects: ", recordRules(objects)) },
			func() error {
				return t.checkText(ctx, s, of, "objects: an Event tells the thief", "not delegated to namespace tenant-b",
					"-n", "tenant-b", "get", "events", "-o", "jsonpath={.items[*].message}")
			},
		)
	})
}

// step returns the arguments of kubectl that apply the objects with a label.
func step(objects, name string) []string {
	return []string{"apply", "-f", objects, "-l", "step=" + name}
}

// updateRules are those of the zones below example.org. ExternalDNS removes what has no object.
func updateRules(objects string) []rule {
	publish := func(tenant, hosts string) []string {
		return []string{"-n", tenant, "annotate", "service", "web", "--overwrite", "external-dns.kubernetes.io/hostname=" + hosts}
	}
	const a, b = "NOERROR 10.96.202.1", "NOERROR 10.96.202.2"
	return []rule{
		{name: "the name of a Service", query: "web.a.example.org A", want: a},
		{name: "the name of the other tenant's Service", query: "web.b.example.org A", want: b},
		{name: "a DNSEndpoint", query: "endpoint.a.example.org A",
			want: "NOERROR 203.0.113.3", before: step(objects, "written")},
		{name: "names of both zones on one Service: the tenant's own", query: "new.b.example.org A", want: b,
			before: publish("tenant-b", "web.b.example.org,new.b.example.org,web.a.example.org,stolen.a.example.org")},
		{name: "names of both zones on one Service: a new name of the other's zone", query: "stolen.a.example.org A",
			want: "NXDOMAIN", always: true},
		{name: "names of both zones on one Service: a name that the other has", query: "web.a.example.org A",
			want: a, always: true},
		{name: "a renamed Service", query: "second.a.example.org A",
			want: a, before: publish("tenant-a", "second.a.example.org")},
		{name: "its former name", query: "web.a.example.org A", want: "NXDOMAIN"},
		{name: "a server without its data is written again", query: "second.a.example.org A", want: a,
			before: strings.Fields("-n updates delete pod -l app=updates")},
	}
}

// recordRules are those of the zones below example.test. The first objects are those of the thief.
func recordRules(objects string) []rule {
	const a, b = "NOERROR 203.0.113.1", "NOERROR 203.0.113.2"
	lines := func(text string) []string {
		return []string{"-n", "tenant-a", "patch", "configmap", "names", "--type=merge", "-p", fmt.Sprintf(`{"data":{"hosts":%q}}`, text)}
	}
	return []rule{
		{name: "the tenant's own name", query: "own.b.example.test A", want: b, before: step(objects, "first")},
		{name: "a name of the other's zone, before the other has it", query: "web.a.example.test A",
			want: "NXDOMAIN", always: true},
		{name: "a wildcard of the other's zone", query: "any.a.example.test A", want: "NXDOMAIN", always: true},
		{name: "a ConfigMap", query: "web.a.example.test A", want: a, before: step(objects, "second")},
		{name: "the older object of the other does not answer", query: "web.a.example.test A", want: a, always: true},
		{name: "a CNAME record to a name of the other's", query: "alias.a.example.test A",
			want: "NOERROR 203.0.113.2, own.b.example.test."},
		{name: "a name of a shared zone is the older object's", query: "db.shared.example.test A", want: b, always: true},
		{name: "an error keeps the last valid records", query: "web.a.example.test A",
			want: a, before: lines("203.0.113.9"), always: true},
		{name: "without the older object the next oldest has the name", query: "db.shared.example.test A", want: a,
			before: strings.Fields("-n tenant-b delete dnsendpoint first")},
		{name: "the deleted object's own name", query: "own.b.example.test A", want: "NXDOMAIN"},
	}
}

// checkText checks that the output of kubectl has a text, which may take time.
func (t *conformance) checkText(ctx context.Context, s server, of suite, name, want string, args ...string) error {
	r := result{Name: name, Outcome: passed, Start: time.Now()}
	var out []byte
	err := t.await(ctx, "kube-apiserver", func() (err error) {
		if out, err = t.kubectl(ctx, args...); err == nil && !strings.Contains(string(out), want) {
			err = fmt.Errorf("got %q, want %q in it", lastLines(string(out), 5), want)
		}
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.Seconds = time.Since(r.Start).Seconds(); err != nil {
		r.Outcome, r.Message = failed, err.Error()
	}
	t.add(s, of, r)
	return nil
}
