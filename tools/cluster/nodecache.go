//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		{name: "worker of the node cache killed with SIGKILL", do: (*conformance).killWorker},
	}
}

// runNodeCache installs seamark node, runs the tests and the operations, and removes it.
func (t *conformance) runNodeCache(ctx context.Context, s server, of suite) error {
	dir := t.file("node-" + of.capture)
	if err := t.writeNodeCache(dir, of.capture); err != nil {
		return err
	}
	defer func() {
		restore, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		t.kubectl(restore, "delete", "-k", dir, "--ignore-not-found")
	}()

	if _, err := t.kubectl(ctx, "apply", "-k", dir); err != nil {
		return err
	}
	if err := t.rolloutNodeCache(ctx); err != nil {
		return err
	}

	if err := t.runE2E(ctx, s, of); err != nil {
		return err
	}
	t.add(s, of, t.checkCapture(ctx, of.capture))
	if err := t.runPods(ctx, s, of); err != nil {
		return err
	}
	return t.runOperations(ctx, s, of)
}

// writeNodeCache writes a kustomization with this image and this capture.
func (t *conformance) writeNodeCache(dir, capture string) error {
	base, err := filepath.Rel(dir, filepath.Join(t.Options.Source, "deploy", "node"))
	if err != nil {
		return err
	}
	image, tag, _ := strings.Cut(seamarkImage, ":")
	return writeTemplate("node.yaml", filepath.Join(dir, "kustomization.yaml"), map[string]string{
		"Base": base, "Image": image, "Tag": tag, "Capture": capture,
	})
}

func (t *conformance) rolloutNodeCache(ctx context.Context) error {
	return t.do(ctx, "-n", "kube-system", "rollout", "status", "daemonset/node-local-dns",
		"--timeout", patience.String())
}

// checkCapture reports whether queries of the pods have reached the caches, by their metrics.
func (t *conformance) checkCapture(ctx context.Context, capture string) result {
	r := result{Name: "queries of pods reach the node cache, capture " + capture, Outcome: failed, Start: time.Now()}
	metric := "coredns_dns_requests_total"
	if capture != "address" {
		metric = "seamark_node_capture_query_packets_total"
	}

	var total float64
	var err error
	for n := range t.Options.Nodes { // a simulated one has a simulated cache
		out, listErr := t.kubectl(ctx, "-n", "kube-system", "get", "pods", "-l", "k8s-app=node-local-dns",
			"--field-selector", "spec.nodeName="+nodeName(n+1), "-o", "jsonpath={.items[*].metadata.name}")
		err = errors.Join(err, listErr)
		for _, pod := range strings.Fields(string(out)) {
			page, pageErr := t.kubectl(ctx, "get", "--raw", "/api/v1/namespaces/kube-system/pods/"+pod+":9253/proxy/metrics")
			err = errors.Join(err, pageErr)
			total += sumOfMetric(string(page), metric)
		}
	}
	if r.Message = fmt.Sprintf("%s %.0f", metric, total); err != nil {
		r.Message = err.Error()
	} else if total > 0 {
		r.Outcome = passed
	}
	return r
}

// sumOfMetric returns the sum of a metric over its labels.
func sumOfMetric(page, name string) (sum float64) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if _, value, ok := cutLast(strings.TrimSpace(rest), " "); ok {
			v, _ := strconv.ParseFloat(value, 64)
			sum += v
		} else if v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); err == nil {
			sum += v
		}
	}
	return sum
}

func (t *conformance) restartNodeCache(ctx context.Context) error {
	err := t.do(ctx, "-n", "kube-system", "rollout", "restart", "daemonset/node-local-dns")
	return errors.Join(err, t.rolloutNodeCache(ctx))
}

// flushRules removes the rules of every node, and of kube-proxy with them, which writes its own again
// within half a minute.
func (t *conformance) flushRules(ctx context.Context) error {
	for n := range t.Options.Nodes {
		if _, err := output(t.onNode(ctx, n+1, "nft", "flush", "ruleset")); err != nil {
			return err
		}
	}
	return pause(ctx, 45*time.Second)
}

// killWorker kills the process that answers queries, which the supervisor starts again.
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
	for _, pid := range workers {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}
	return errors.Join(err, pause(ctx, 10*time.Second))
}
