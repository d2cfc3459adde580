//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
)

// The rules of the directive policy: a group for each namespace, with that many names.
const policyNamespaces, namesOfNamespace = 1000, 100

// policyRules returns the directive policy. The pod of podAt is of the last namespace, and may resolve the names
// of the upstream, which the last one of its rules decides.
func policyRules() string {
	var text strings.Builder
	text.WriteString("    policy {\n")
	for n := range policyNamespaces {
		fmt.Fprintf(&text, "        group g%d {\n            namespaces tenant-%d\n            allow", n, n)
		for i := range namesOfNamespace/2 - 1 {
			fmt.Fprintf(&text, " d%d.tenant-%d.test *.d%d.tenant-%d.test", i, n, i, n)
		}
		text.WriteString(" *.example.test\n            deny *\n        }\n")
	}
	text.WriteString("        group others {\n            unknown\n            deny *\n        }\n    }\n")
	return text.String()
}

// writePolicyCluster writes the population, and a pod with the generator's address in the last namespace of the rules.
func (b *bench) writePolicyCluster(dir string) error {
	if err := b.pop.writeManifests(dir); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "pod.yaml"), func(w io.Writer) {
		fmt.Fprintf(w, "apiVersion: v1\nkind: Pod\nmetadata: {name: client, namespace: tenant-%d}\n"+
			"status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}]}\n", policyNamespaces-1)
	})
}

// policy measures the cost of the directive policy beside the same server without it: CPU of a name from outside,
// which its rules decide, and of a name of the cluster; and allocations.
func (b *bench) policy(ctx context.Context) error {
	defer b.stopServers()
	dir := b.file("policy")
	if err := b.writePolicyCluster(dir); err != nil {
		return err
	}

	without, with := b.stock(fromFolder(dir), 1), b.stock(fromFolder(dir), 1)
	with.values["pods"], with.values["directives"] = "verified", policyRules()
	peers, err := b.offAndOn(ctx, without, with)
	if err != nil {
		return err
	}

	// The rules of the namespace decide, not those of unknown clients.
	denied := newLookup("www.other.test.", dns.TypeA, false, dns.RcodeNameError)
	if err := peers[1].server.await(ctx, denied); err != nil {
		return err
	}

	err = b.compareAll(ctx, peers,
		comparison{name: "policy", title: "names from upstream, cached, without and with 100,000 rules of policy",
			workload: "cached", longer: 2},
		comparison{name: "policy cluster", title: "ClusterIP, A, without and with 100,000 rules of policy",
			workload: "A", longer: 2})
	if err != nil {
		return err
	}

	for _, p := range peers {
		if err := b.allocations(ctx, p, comparison{workload: "cached"}); err != nil {
			return err
		}
	}
	return nil
}

// allocations measures how often a server allocates memory for an answer.
func (b *bench) allocations(ctx context.Context, p peer, c comparison) error {
	// Fill the cache again: entries have expired while other servers were measured.
	if _, err := b.load(p.server, c).run(ctx); err != nil {
		return err
	}

	// A page of metrics allocates, too: as much as the one before it.
	first, err := p.server.metric(ctx, "go_memstats_mallocs_total")
	if err != nil {
		return err
	}
	second, err := p.server.metric(ctx, "go_memstats_mallocs_total")
	if err != nil {
		return err
	}

	t, err := b.load(p.server, c).run(ctx)
	if err != nil {
		return err
	}
	third, err := p.server.metric(ctx, "go_memstats_mallocs_total")
	if err != nil {
		return err
	}
	if t.wrong > 0 || t.answered == 0 {
		return fmt.Errorf("allocations, %s: %d of %d answers are wrong: %s", p.label, t.wrong, t.answered, t.example)
	}

	b.number("policy allocations/"+p.label, "allocations of an answer, policy "+p.label, "",
		(third-second-(second-first))/float64(t.answered))
	return nil
}
