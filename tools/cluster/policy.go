//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Lines of the directive policy: the audit, and the tenants that attack each other.
const (
	auditPolicy = `policy {
    group tenants {
        audit
        namespace_labels tenant
        deny *
        services own default
    }
}`
	tenantPolicy = `policy {
    group tenants {
        namespace_labels tenant
        deny google.com
        services own default
    }
    group others {
        unknown
        deny *
    }
    objects {
        delegate * .
    }
}`
)

// Replies to names that a policy denies, and of the stand-in for the Internet.
const (
	denied  = "NXDOMAIN EDE 18"
	allowed = "NOERROR " + website
)

// policyScenario has two tenants, each with a Service, a client, and lines of its own. Those of tenant-b
// try to allow what the administrator denies.
func policyScenario(corefile func(string) string) scenario {
	return scenario{objects: []string{"policy.yaml"}, corefile: corefile, data: map[string]any{
		"Image":   podsImage,
		"Tenants": map[string]string{"tenant-a": "10.96.201.1", "tenant-b": "10.96.201.2"},
		"Lines": map[string]string{
			"tenant-a": "deny *\n    allow example.com alias.example.net",
			"tenant-b": "deny dns.google\n    allow google.com *",
		},
	}}
}

// withPolicy returns a change of a Corefile that adds the directive, and what it and seamark policy need.
func withPolicy(text string) func(string) string {
	return func(corefile string) string {
		corefile = strings.Replace(corefile, "pods insecure", "pods verified", 1)
		return strings.Replace(corefile, "    errors\n", "    errors\n    admin\n"+text+"\n", 1)
	}
}

// runPolicy takes the way from an audit to denials, then has the tenants attack each other: with the
// cluster's servers, and with the caches of the nodes.
func (t *conformance) runPolicy(ctx context.Context, s server, of suite) error {
	if err := t.importPods(ctx); err != nil {
		return err
	}
	if err := t.with(ctx, policyScenario(withPolicy(auditPolicy)), func() error { return t.audit(ctx, s, of) }); err != nil {
		return err
	}
	err := t.with(ctx, policyScenario(withPolicy(tenantPolicy)), func() error { return t.attack(ctx, s, of, "") })
	if err != nil {
		return err
	}
	return t.with(ctx, policyScenario(nil), func() error { return t.policyOnNodes(ctx, s, of) })
}

// attack waits for the clients and checks the rules.
func (t *conformance) attack(ctx context.Context, s server, of suite, prefix string) error {
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		if err := t.rollout(ctx, tenant, "client"); err != nil {
			return err
		}
	}
	victim, err := t.kubectl(ctx, "get", "pods", "-l", "app=client-glibc", "-o", "jsonpath={.items[0].status.podIP}")
	if err != nil {
		return err
	}
	return errors.Join(t.checkRules(ctx, s, of, prefix, policyRules(string(victim))), t.firstQueries(ctx, s, of, prefix))
}

// policyRules are what the tenants try. The victim is the address of a pod of no group.
func policyRules(victim string) []rule {
	const a, b = "tenant-a/client", "tenant-b/client"
	const zone = ".svc.cluster.local"
	lines := func(text string) []string {
		patch := fmt.Sprintf(`{"data":{"policy":%q}}`, text)
		return []string{"-n", "tenant-a", "patch", "configmap", "names", "--type=merge", "-p", patch}
	}

	return []rule{
		{name: "a name that the tenant's ConfigMap does not allow is denied", pod: a, query: "dns.google A",
			want: denied},
		{name: "a name that it allows resolves", pod: a, query: "example.com A", want: allowed},
		{name: "a pod of no group resolves every name", query: "google.com A", want: allowed, always: true},

		{name: "the same name from the cache is denied to the tenant", pod: a, query: "google.com A",
			want: denied, always: true},
		{name: "a denial is not cached for others", query: "google.com A", want: allowed, always: true},
		{name: "capital letters", pod: a, query: "DNS.gOOgle A", want: denied, always: true},
		{name: "a trailing dot", pod: a, query: "dns.google. A", want: denied, always: true},
		{name: "the search path", pod: a, query: "+search dns.google A", want: denied, always: true},
		{name: "TCP", pod: a, query: "+tcp dns.google A", want: denied, always: true},
		{name: "without EDNS", pod: a, query: "+noedns dns.google A", want: "NXDOMAIN", always: true},
		{name: "another client's subnet in the query", pod: a, query: "+subnet=" + victim + "/32 dns.google A",
			want: denied, always: true},
		{name: "type ANY", pod: a, query: "dns.google ANY", want: denied, always: true},
		{name: "type HTTPS", pod: a, query: "dns.google HTTPS", want: denied, always: true},
		{name: "an allowed name whose CNAME leads to a denied one", pod: a, query: "alias.example.net A",
			want: denied, always: true},
		{name: "an ExternalName of the tenant to a denied name", pod: a, query: "outside.tenant-a" + zone + " A",
			want: denied, always: true},
		{name: "an ExternalName to a Service of the other tenant", pod: a, query: "neighbour.tenant-a" + zone + " A",
			want: denied, always: true},

		{name: "the other tenant's Service", pod: a, query: "web.tenant-b" + zone + " A", want: denied, always: true},
		{name: "its port", pod: a, query: "_http._tcp.web.tenant-b" + zone + " SRV", want: denied, always: true},
		{name: "a wildcard for its namespace", pod: a, query: "web.*" + zone + " A", want: denied, always: true},
		{name: "the name of its address", pod: a, query: "2.201.96.10.in-addr.arpa PTR", want: denied, always: true},
		{name: "the tenant's own Service", pod: a, query: "web.tenant-a" + zone + " A",
			want: "NOERROR 10.96.201.1", always: true},
		{name: "the API server's name", pod: a, query: "kubernetes.default" + zone + " A",
			want: "NOERROR 10.96.0.1", always: true},

		{name: "a ConfigMap allows nothing that the administrator denies", pod: b, query: "google.com A",
			want: denied, always: true},
		{name: "a ConfigMap denies names to its own namespace", pod: b, query: "dns.google A",
			want: denied, always: true},
		{name: "the ConfigMap of one tenant decides nothing for the other", pod: b, query: "www.example.com A",
			want: allowed, always: true},

		{name: "a changed ConfigMap decides", pod: a, query: "dns.google A", want: "NOERROR " + internet,
			before: lines("deny *\nallow dns.google example.com")},
		{name: "an error in it keeps its last valid state: denied", pod: a, query: "www.example.com A",
			want: denied, always: true,
			before: lines("allow a..b")},
		{name: "an error in it keeps its last valid state: allowed", pod: a, query: "dns.google A",
			want: "NOERROR " + internet, always: true},

		{name: "the address of another pod, without the capabilities to forge it", pod: a, query: "-b " + victim + " google.com A",
			want: noReply},

		{name: "a namespace that loses its label is of no group", pod: b, query: "google.com A", want: allowed,
			before: strings.Fields("label namespace tenant-b tenant-")},
	}
}

// firstQueries starts pods whose first act is a query, before the servers know them.
func (t *conformance) firstQueries(ctx context.Context, s server, of suite, prefix string) error {
	for name, want := range map[string]string{"google.com": denied, "web.tenant-a.svc.cluster.local": "NOERROR 10.96.201.1"} {
		r := result{Name: prefix + "the first query of a new pod: " + name, Outcome: passed, Start: time.Now()}
		for range 5 {
			out, err := t.runOnce(ctx, "dig", "+noall", "+comments", "+answer", name, "A")
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if replies := parseDig(string(out)); len(replies) != 1 || replies[0] != want {
				r.Outcome, r.Message = failed, fmt.Sprintf("got %q (%v), want %s", out, err, want)
			}
		}
		r.Seconds = time.Since(r.Start).Seconds()
		t.add(s, of, r)
	}
	return nil
}

// runOnce returns the output of a command that is the only one of a new pod of tenant-a.
func (t *conformance) runOnce(ctx context.Context, command ...string) (out []byte, err error) {
	kubectl := func(args string) []string { return append([]string{"-n", "tenant-a"}, strings.Fields(args)...) }
	run := kubectl("run first --image " + podsImage + " --restart Never --command --")
	err = steps(
		func() error { return t.do(ctx, append(run, command...)...) },
		func() error {
			return t.do(ctx, kubectl("wait pod/first --for=jsonpath={.status.phase}=Succeeded --timeout 1m")...)
		},
		func() error { out, err = t.kubectl(ctx, kubectl("logs first")...); return err },
	)
	return out, errors.Join(err, t.do(ctx, kubectl("delete pod first --ignore-not-found")...))
}

// audit records what the tenants resolve, has seamark policy write groups of it, and enforces them.
func (t *conformance) audit(ctx context.Context, s server, of suite) error {
	const a, b = "tenant-a/client", "tenant-b/client"
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		if err := t.rollout(ctx, tenant, "client"); err != nil {
			return err
		}
	}
	// A pod without the audit, to which kube-proxy may send for a moment, answers as expected and records nothing.
	if err := t.awaitOldPods(ctx); err != nil {
		return err
	}
	corefile, err := t.readCorefile(ctx)
	if err != nil {
		return err
	}
	err = t.checkRules(ctx, s, of, "audit: ", []rule{
		{name: "a name that would be denied resolves", pod: a, query: "example.com A", want: allowed, always: true},
		{name: "a Service of the other tenant that would be denied resolves", pod: a, query: "web.tenant-b.svc.cluster.local A",
			want: "NOERROR 10.96.201.2", always: true},
		{name: "another tenant's name", pod: b, query: "google.com A", want: allowed, always: true},
	})
	if err != nil {
		return err
	}

	groups, err := t.seamark(ctx, "policy", "--selector", "k8s-app=kube-dns")
	if err != nil {
		return err
	}
	enforced := strings.Replace(corefile, auditPolicy, string(groups), 1)
	if enforced == corefile || strings.Contains(string(groups), "\n        audit") {
		return fmt.Errorf("the Corefile of seamark policy is not one without audit:\n%s", enforced)
	}
	if err := t.setCorefile(ctx, enforced); err != nil {
		return err
	}
	return t.checkRules(ctx, s, of, "groups of seamark policy: ", []rule{
		{name: "a name that was not seen is denied", pod: a, query: "google.com A", want: denied},
		{name: "a name that was seen resolves", pod: a, query: "example.com A", want: allowed, always: true},
		{name: "a Service that was seen resolves", pod: a, query: "web.tenant-b.svc.cluster.local A",
			want: "NOERROR 10.96.201.2", always: true},
		{name: "a Service that was not seen is denied", pod: b, query: "web.tenant-a.svc.cluster.local A",
			want: denied, always: true},
		{name: "a name that another tenant was seen to resolve is denied", pod: b, query: "example.com A",
			want: denied, always: true},
		{name: "a name of the other tenant that was seen resolves", pod: b, query: "google.com A",
			want: allowed, always: true},
	})
}

// seamark runs the server's program with the cluster's kubeconfig.
func (c *cluster) seamark(ctx context.Context, args ...string) ([]byte, error) {
	return output(c.seamarkCommand(ctx, args...))
}

func (c *cluster) seamarkCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.file("bin", "seamark"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.file("kubeconfig"))
	return cmd
}

// policyOnNodes installs seamark node with the directive in its Corefile, and repeats the attacks on it.
// Before, a pod of no group queries so often that the kernel would repeat replies.
func (t *conformance) policyOnNodes(ctx context.Context, s server, of suite) error {
	dir := t.file("node-policy")
	if err := t.writeNodeCache(dir, "tcx", "services"); err != nil {
		return err
	}
	objects, err := t.kubectl(ctx, "kustomize", dir)
	if err != nil {
		return err
	}

	file := t.file("node-policy.yaml")
	indented := strings.ReplaceAll(tenantPolicy, "\n", "\n        ")
	changed := strings.Replace(string(objects), "        metadata\n", "        metadata\n        "+indented+"\n", 1)
	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
		return err
	}
	defer t.remove(ctx, "-f", file)
	return steps(
		func() error { return t.do(ctx, "apply", "-f", file) },
		func() error { return t.rolloutNodeCache(ctx) },
		func() error { return t.attack(ctx, s, of, "node cache: ") },
	)
}
