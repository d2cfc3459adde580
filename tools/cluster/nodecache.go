//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// nodeSuite returns the suite of tests with seamark node on every node, in front of the cluster's
// servers. Names outside the cluster go from a node to its own upstreams, as with node-cache, so that
// the tests of stub domains in CoreDNS's ConfigMap do not apply.
func nodeSuite(capture string) suite {
	return suite{
		name: "node-" + capture, usual: "6 minutes", run: (*conformance).runNodeCache, server: "seamark",
		focus: `\[sig-network\] DNS `, skip: `DNS configMap`, capture: capture, operations: nodeOperations, extra: true,
	}
}

func nodeOperations() []operation {
	return []operation{
		{name: "nft flush ruleset", do: (*conformance).flushRules},
		{name: "new pods of the node cache: kubectl rollout restart", do: (*conformance).restartNodeCache},
		{name: "worker of the node cache killed with SIGKILL", do: (*conformance).killWorker,
			lost: "what the worker has read", most: mostRead},
	}
}

// mostRead is how many queries of the pods a worker can have read and not answered: a batch of the socket that they
// reach, as package transport reads them, and as many that wait for an upstream.
const mostRead = 2 * 16

// runNodeCache installs seamark node, runs the tests and the operations, and removes it.
func (t *conformance) runNodeCache(ctx context.Context, s server, of suite) error {
	dir, addresses := t.file("node-"+of.capture), t.cacheAddresses(of.capture)
	if err := t.writeNodeCache(dir, of.capture, ""); err != nil {
		return err
	}
	defer t.remove(ctx, "-k", dir)
	defer t.restore(ctx, func(ctx context.Context) error { return t.setDNS(ctx, dnsService) })
	return steps(
		func() error { return t.do(ctx, "apply", "-k", dir) },
		func() error { return t.rolloutNodeCache(ctx) },
		func() error { return t.setDNS(ctx, addresses[len(addresses)-1]) },
		func() error { return t.runE2E(ctx, s, of) },
		func() error { return t.runPods(ctx, s, of) },
		func() error { t.checkCapture(ctx, s, of, ""); return nil },
		func() error { return t.checkRulesOfNode(ctx, s, of) },
		func() error { return t.runOperations(ctx, s, of) },
		func() error { t.checkCapture(ctx, s, of, "after the operations: "); return nil },
	)
}

// writeNodeCache writes a kustomization with this image, this capture, and a component unless it is "".
func (t *conformance) writeNodeCache(dir, capture, component string) error {
	base, err := filepath.Rel(dir, filepath.Join(t.Options.Source, "deploy", "node"))
	if err != nil {
		return err
	}
	image, tag, _ := strings.Cut(seamarkImage, ":")
	return writeTemplate("node.yaml", filepath.Join(dir, "kustomization.yaml"), map[string]string{
		"Base": base, "Image": image, "Tag": tag, "Capture": capture, "Component": component,
		"Addresses": strings.Join(t.cacheAddresses(capture), ","),
	})
}

// linkLocal is the address that only a node cache has.
const linkLocal = "169.254.20.10"

// cacheAddresses returns the addresses of a node cache, that of the pods' queries last. In mode ipvs kube-proxy has the
// ClusterIPs on an interface of the node, where address cannot capture them.
func (t *conformance) cacheAddresses(capture string) []string {
	switch {
	case t.Options.Proxy == "ipvs" && capture == "address":
		return []string{linkLocal}
	case t.Options.DualStack:
		return []string{linkLocal, dnsService6, dnsService}
	}
	return []string{linkLocal, dnsService}
}

func (t *conformance) rolloutNodeCache(ctx context.Context) error {
	return t.do(ctx, "-n", "kube-system", "rollout", "status", "daemonset/node-local-dns",
		"--timeout", t.Options.Patience.String())
}

// setDNS makes pods send their queries to an address: the kubelets are started again, which give it to new pods,
// and the clients are replaced.
func (t *conformance) setDNS(ctx context.Context, address string) error {
	if address == t.dns {
		return nil
	}
	for n := range t.Options.Nodes {
		file := t.file(nodeName(n+1), "kubelet.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		changed := strings.Replace(string(text), "clusterDNS: ["+t.dns+"]", "clusterDNS: ["+address+"]", 1)
		if err := replaceFile(file, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	t.dns = address

	if err := killed("kubelet")(t, ctx); err != nil {
		return err
	}
	for _, name := range []string{"client-glibc", "client-musl"} {
		err := t.do(ctx, "rollout", "restart", "deployment/"+name)
		if err := errors.Join(err, t.rollout(ctx, "default", name)); err != nil {
			return err
		}
	}
	return nil
}

// checkCapture checks that queries of a pod reach the cache of its node, and with dual stack those over IPv6.
func (t *conformance) checkCapture(ctx context.Context, s server, of suite, prefix string) {
	t.add(s, of, t.checkCaptured(ctx, prefix+"queries of pods reach the node cache, capture "+of.capture, t.dns))
	if slices.Contains(t.cacheAddresses(of.capture), dnsService6) {
		t.add(s, of, t.checkCaptured(ctx, prefix+"queries over IPv6 reach the node cache, capture "+of.capture, dnsService6,
			`family="2"`))
	}
}

// checkCaptured sends queries from a pod to an address, until the caches have counted one in lines with all labels. No
// probe has its type, and its name is in no cache.
func (t *conformance) checkCaptured(ctx context.Context, name, server string, labels ...string) result {
	r := result{Name: name, Outcome: failed, Start: time.Now()}
	labels = append(labels, `type="TXT"`)
	for n := 0; pause(ctx, time.Second) == nil && n < 30; n++ {
		before, err := t.requests(ctx, labels)
		if err == nil {
			_, err = t.kubectl(ctx, "exec", "deploy/client-glibc", "--", "dig", "+tries=1", "@"+server,
				fmt.Sprintf("%d.example.com", time.Now().UnixNano()), "TXT")
		}
		after, afterErr := t.requests(ctx, labels)

		r.Message = fmt.Sprintf("%.0f and then %.0f queries with %s", before, after, strings.Join(labels, " "))
		if err := errors.Join(err, afterErr); err != nil {
			r.Message = err.Error()
		} else if after > before {
			r.Outcome = passed
			break
		}
	}
	r.Seconds = time.Since(r.Start).Seconds()
	return r
}

// requests returns how many requests the caches have counted in lines with all labels.
func (t *conformance) requests(ctx context.Context, labels []string) (total float64, err error) {
	for n := range t.Options.Nodes { // a simulated one has a simulated cache
		out, listErr := t.kubectl(ctx, "-n", "kube-system", "get", "pods", "-l", "k8s-app=node-local-dns",
			"--field-selector", "spec.nodeName="+nodeName(n+1), "-o", "jsonpath={.items[*].metadata.name}")
		err = errors.Join(err, listErr)
		for _, pod := range strings.Fields(string(out)) {
			page, pageErr := t.kubectl(ctx, "get", "--raw", "/api/v1/namespaces/kube-system/pods/"+pod+":9253/proxy/metrics")
			err = errors.Join(err, pageErr)
			total += sumOfMetric(string(page), "coredns_dns_requests_total", labels...)
		}
	}
	return total, err
}

// checkRulesOfNode checks that rules of the node, as network policies write them, decide about the queries of
// a pod, although the cache is on the node and the kernel repeats its replies.
func (t *conformance) checkRulesOfNode(ctx context.Context, s server, of suite) error {
	out, err := t.kubectl(ctx, "get", "pods", "-l", "app=client-glibc", "-o", "jsonpath={.items[0].status.podIP}")
	if err != nil {
		return err
	}
	drop := func(hook string) string {
		return fmt.Sprintf("add chain inet conformance %[1]s { type filter hook %[1]s priority 0; }; "+
			"add rule inet conformance %[1]s ip saddr %[2]s drop; ", hook, out)
	}
	type cut struct {
		rule  rule
		rules string
	}
	const query = "+tries=1 +time=1 example.com A"
	cuts := []cut{{rule{name: "a rule that drops the packets of a pod", query: query, want: noReply, always: true},
		drop("input") + drop("forward")}}
	// IPVS receives queries to a ClusterIP as packets to the node, after this rule.
	if of.capture != "address" && t.Options.Proxy != "ipvs" {
		cuts = append(cuts, cut{rule{name: "a rule that drops its packets to the node: the cluster's servers answer", query: query,
			want: allowed}, drop("input")})
	}

	for _, c := range cuts {
		before := rule{name: "before " + c.rule.name, query: query, want: allowed}
		err := steps(
			func() error { return t.checkRules(ctx, s, of, "", []rule{before}) },
			func() error { return t.nft(ctx, "add table inet conformance; "+c.rules) },
			// A reply is repeated to a pod that one of the server has reached in the last second.
			func() error { return pause(ctx, 2*time.Second) },
			func() error { return t.checkRules(ctx, s, of, "", []rule{c.rule}) },
		)
		restored := t.restore(ctx, func(ctx context.Context) error { return t.nft(ctx, "delete table inet conformance") })
		if err := errors.Join(err, restored); err != nil {
			return err
		}
	}
	return t.checkRules(ctx, s, of, "", []rule{{name: "after these rules", query: query, want: allowed}})
}

// nft changes the rules of every node.
func (t *conformance) nft(ctx context.Context, commands string) (err error) {
	for n := range t.Options.Nodes {
		_, nodeErr := output(t.onNode(ctx, n+1, "nft", commands))
		err = errors.Join(err, nodeErr)
	}
	return err
}

// sumOfMetric returns the sum of a metric over the lines that have all labels.
func sumOfMetric(page, name string, labels ...string) (sum float64) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		lacks := func(label string) bool { return !strings.Contains(line, label) }
		if !ok || rest[0] != '{' && rest[0] != ' ' || slices.ContainsFunc(labels, lacks) {
			continue
		}
		_, value, _ := cutLast(" "+strings.TrimSpace(rest), " ")
		v, _ := strconv.ParseFloat(value, 64)
		sum += v
	}
	return sum
}

func (t *conformance) restartNodeCache(ctx context.Context) error {
	err := t.do(ctx, "-n", "kube-system", "rollout", "restart", "daemonset/node-local-dns")
	return errors.Join(err, t.rolloutNodeCache(ctx))
}

// flushRules removes the rules of every node, and of kube-proxy with them, which writes its own again
// within half a minute. In mode nftables it would do so when a Service has changed: until then no ClusterIP is reached.
func (t *conformance) flushRules(ctx context.Context) error {
	if err := t.nft(ctx, "flush ruleset"); err != nil {
		return err
	}
	if t.Options.Proxy == "nftables" {
		if err := killed("kube-proxy")(t, ctx); err != nil {
			return err
		}
	}
	return pause(ctx, 45*time.Second)
}

// killWorker kills the process that answers the queries of a node, which the supervisor starts again.
func (t *conformance) killWorker(ctx context.Context) error {
	node := func(pid int) bool {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.Contains(string(groups), t.group()+"/") && strings.Contains(string(line), "\x00node\x00")
	}
	workers, err := t.processes(func(pid int) bool { return node(pid) && node(parent(pid)) })
	if err == nil && len(workers) == 0 {
		err = errors.New("there is no worker")
	}
	if err == nil {
		err = syscall.Kill(workers[0], syscall.SIGKILL)
	}
	return errors.Join(err, pause(ctx, 10*time.Second))
}
