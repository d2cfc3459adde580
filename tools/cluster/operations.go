//go:build linux

package main

import (
	"context"
	"encoding/json"
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

// Pods that send queries, and the queries of each a second.
const (
	loadPods = 20
	loadRate = 25
)

// resolvers are the images of pods that look names up by the resolver of a C library, resolverPods of
// each.
var resolvers = map[string]string{"glibc": glibcImage, "musl": muslImage}

const resolverPods = 2

// An operation is what an operator or a failure does to the cluster, while pods send queries.
type operation struct {
	name string
	do   func(*conformance, context.Context) error
	lost string // why queries may be lost, "" if none may
	most int    // how many
	// needs returns why the operation is not possible in a cluster.
	needs func(options) string
}

func operations() []operation {
	return []operation{
		{name: "nothing happens for 20 s", do: func(_ *conformance, ctx context.Context) error { return pause(ctx, 20*time.Second) }},
		{name: "rolling update: kubectl rollout restart", do: (*conformance).restartRollout},
		{name: "kubectl delete pod, one after the other", do: (*conformance).deletePods},
		{name: "drain of a node", do: (*conformance).drain, needs: severalNodes},
		{name: "kubelet killed", do: killed("kubelet")},
		{name: "containerd killed", do: killed("containerd")},
		{name: "API server killed", do: killed("kube-apiserver")},
		{name: "etcd compacted", do: (*conformance).compact},
		{name: "API server without an answer for two minutes", do: (*conformance).stopControlPlane},
		{name: "process of a pod killed with SIGKILL", do: (*conformance).killPod,
			lost: untilStarted, most: mostUntilStarted},
		{name: "pod over its memory limit, killed by the kernel", do: (*conformance).exceedMemory,
			lost: untilStarted, most: mostUntilStarted},
	}
}

// What is lost when the process of a DNS pod is killed: the queries of one pod of two for ten seconds.
const (
	untilStarted     = "kube-proxy sends to the pod until its container has started again"
	mostUntilStarted = loadPods * loadRate / 2 * 10
)

func severalNodes(o options) string {
	if o.Nodes < 2 {
		return "needs two nodes: NODES=2"
	}
	return ""
}

// runOperations does each operation while pods send queries.
func (t *conformance) runOperations(ctx context.Context, s server, of suite) error {
	if err := t.startLoad(ctx); err != nil {
		return err
	}
	for _, o := range of.operations() {
		if !t.options.Focus.MatchString(o.name) {
			continue
		}
		r := t.operate(ctx, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.add(s, of, r)
	}
	return t.removeNamespaces(ctx)
}

// importSelf makes an image of this program, which may be newer than the cluster.
func (t *conformance) importSelf(ctx context.Context) (image string, err error) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	image = "seamark.local/load:1"
	return image, t.importImage(ctx, []string{image}, []entry{{"cluster", self, 0o755}}, "/cluster", "load")
}

// startLoad starts the pods that send queries.
func (t *conformance) startLoad(ctx context.Context) error {
	image, err := t.importSelf(ctx)
	if err != nil {
		return err
	}

	err = t.apply(ctx, "load.yaml", map[string]any{
		"Pods": loadPods, "Rate": loadRate, "DNS": t.dns, "Image": image, "Resolvers": resolvers, "PodsOfEach": resolverPods,
	})
	if err != nil {
		return err
	}
	err = t.rollout(ctx, "load", "load")
	for library := range resolvers {
		err = errors.Join(err, t.rollout(ctx, "load", "load-"+library))
	}
	return err
}

// operate does an operation and counts the queries meanwhile.
func (t *conformance) operate(ctx context.Context, o operation) result {
	r := result{Name: o.name, Outcome: skipped, Start: time.Now()}
	if o.needs != nil {
		if r.Message = o.needs(t.Options); r.Message != "" {
			return r
		}
	}

	before, err := t.counts(ctx)
	if err == nil {
		err = o.do(t, ctx)
	}
	// The last query of the operation has its result then, and the pods have printed it.
	err = errors.Join(err, pause(ctx, loadTimeout+2*time.Second))
	after, countErr := t.counts(ctx)
	r.Seconds = time.Since(r.Start).Seconds()

	queries, musl := after.queries.minus(before.queries), after.musl.minus(before.musl)
	lookups := musl.plus(after.glibc.minus(before.glibc))
	r.Outcome = passed
	r.Message = fmt.Sprintf("of %d queries %d lost, %d answered with an error; of %d lookups by glibc and musl %d failed",
		queries.Sent, queries.Lost, queries.Failed, lookups.Sent, lookups.Lost+lookups.Failed)
	if o.lost != "" {
		r.Message += fmt.Sprintf("; %d may be lost: %s", o.most, o.lost)
	}
	if err := errors.Join(err, countErr); err != nil {
		r.Outcome, r.Message = failed, err.Error()
	} else if queries.Failed+musl.Failed > 0 || queries.Lost > o.most || queries.Sent == 0 ||
		lookups.Lost+lookups.Failed > lookups.Sent/lostLookups || lookups.Answered == 0 {
		r.Outcome = failed
	}
	return r
}

// One of lostLookups lookups may fail: a resolver chooses its source port at random and repeats a query from it, see
// load. When the query for a name in one search domain has no answer, and those in the others have NXDOMAIN, glibc
// says that the name does not exist; musl says that the lookup may be tried again.
const lostLookups = 20

// counts has the queries of the pods that send DNS messages, and the lookups of the pods that call a C library.
type counts struct{ queries, glibc, musl load }

func (t *conformance) counts(ctx context.Context) (c counts, err error) {
	c.queries, err = t.sum(ctx, "library=none", loadPods)
	if err == nil {
		c.glibc, err = t.sum(ctx, "library=glibc", resolverPods)
	}
	if err == nil {
		c.musl, err = t.sum(ctx, "library=musl", resolverPods)
	}
	return c, err
}

// sum returns the sum of the counts of pods with a label. It waits for the API server and the kubelet.
func (t *conformance) sum(ctx context.Context, label string, pods int) (sum load, err error) {
	err = t.await(ctx, "kube-apiserver", func() error {
		out, err := t.kubectl(ctx, "-n", "load", "logs", "-l", "app=load,"+label, "--tail=1",
			"--max-log-requests", strconv.Itoa(pods))
		if err != nil {
			return err
		}

		sum = load{}
		lines := strings.Fields(string(out))
		for _, line := range lines {
			var l load
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				return err
			}
			sum = sum.plus(l)
		}
		if len(lines) != pods {
			return fmt.Errorf("counts of %d pods, want %d", len(lines), pods)
		}
		return nil
	})
	return sum, err
}

// pause waits, or returns the error of an ended context.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (t *conformance) restartRollout(ctx context.Context) error {
	return t.change(ctx, "coredns", "rollout restart deployment/coredns")
}

// dnsPods returns a field of each DNS pod.
func (t *conformance) dnsPods(ctx context.Context, field string) ([]string, error) {
	out, err := t.kubectl(ctx, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns",
		"-o", "jsonpath={.items[*]."+field+"}")
	return strings.Fields(string(out)), err
}

func (t *conformance) deletePods(ctx context.Context) error {
	names, err := t.dnsPods(ctx, "metadata.name")
	for _, name := range names {
		if err := t.change(ctx, "coredns", "delete pod "+name); err != nil {
			return err
		}
	}
	return err
}

// drain drains the last node, and admits pods to it again.
func (t *conformance) drain(ctx context.Context) error {
	node := nodeName(t.Options.Nodes)
	err := t.change(ctx, "coredns", "drain "+node+" --ignore-daemonsets --delete-emptydir-data --force --timeout=3m")
	return errors.Join(err, t.do(ctx, "uncordon", node))
}

// killed returns an operation that kills a program of the cluster, which is started again.
func killed(program string) func(*conformance, context.Context) error {
	return func(t *conformance, ctx context.Context) error {
		before, err := t.running(program)
		if err := errors.Join(err, t.signal(program, syscall.SIGKILL), pause(ctx, 15*time.Second)); err != nil {
			return err
		}

		since := time.Now()
		return t.await(ctx, program, func() error {
			now, err := t.running(program)
			old := func(pid int) bool { return slices.Contains(before, pid) }
			if err != nil || slices.ContainsFunc(now, old) || len(now) != len(before) {
				return errors.Join(err, fmt.Errorf("its processes are %d, and were %d", now, before))
			}
			return errors.Join(t.countReady(ctx, t.Options.Nodes), t.renewed(ctx, since))
		})
	}
}

// renewed returns an error unless the kubelet of each node has renewed its lease since a time, as it does every ten
// seconds. A node stays ready for much longer.
func (t *conformance) renewed(ctx context.Context, since time.Time) error {
	for n := range t.Options.Nodes {
		name := nodeName(n + 1)
		out, err := t.kubectl(ctx, "-n", "kube-node-lease", "get", "lease", name, "-o", "jsonpath={.spec.renewTime}")
		if err != nil {
			return err
		}
		if at, err := time.Parse(time.RFC3339, string(out)); err != nil || at.Before(since) {
			return errors.Join(err, fmt.Errorf("the lease of %s was renewed last at %s", name, out))
		}
	}
	return nil
}

// stopControlPlane stops the API server for two minutes. The controllers go on when the kubelets have
// renewed their leases: otherwise they report the nodes and their pods not ready for some seconds.
func (t *conformance) stopControlPlane(ctx context.Context) error {
	// A name of a process has 15 bytes (proc_pid_comm(5)).
	const server, controllers = "kube-apiserver", "kube-controller"
	err := errors.Join(t.signal(server, syscall.SIGSTOP), t.signal(controllers, syscall.SIGSTOP))
	if err == nil {
		err = pause(ctx, 2*time.Minute)
	}

	err = errors.Join(err, t.signal(server, syscall.SIGCONT), pause(ctx, 20*time.Second))
	err = errors.Join(err, t.signal(controllers, syscall.SIGCONT), pause(ctx, 10*time.Second))
	return errors.Join(err, t.await(ctx, server, func() error { return t.countReady(ctx, t.Options.Nodes) }))
}

// compact has etcd forget all old revisions, as the API server does every five minutes.
func (t *conformance) compact(ctx context.Context) error {
	post := func(path, body string) ([]byte, error) {
		return output(t.onNode(ctx, 0, "curl", "--fail", "--silent", "--show-error", "http://127.0.0.1:2379/v3/kv/"+path,
			"--data", body))
	}
	out, err := post("range", `{"key":"AA=="}`)
	if err != nil {
		return err
	}
	var reply struct{ Header struct{ Revision string } }
	if err := json.Unmarshal(out, &reply); err != nil {
		return err
	}
	_, err = post("compaction", fmt.Sprintf(`{"revision":"%s","physical":true}`, reply.Header.Revision))
	return err
}

// killPod kills the first process of a DNS pod's container.
func (t *conformance) killPod(ctx context.Context) error {
	uids, err := t.dnsPods(ctx, "metadata.uid")
	if err != nil || len(uids) == 0 {
		return errors.Join(err, errors.New("there is no DNS pod"))
	}
	pids, err := t.containerProcesses(uids[0])
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	return t.rollout(ctx, "kube-system", "coredns")
}

// running returns the processes of a program of the cluster, but not of its containers.
func (t *conformance) running(program string) ([]int, error) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", t.Init.PID))
	if err != nil {
		return nil, err
	}
	return t.processes(func(pid int) bool {
		namespace, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return namespace == own && comm(pid) == program
	})
}

// signal sends a signal to the processes of a program.
func (t *conformance) signal(program string, s syscall.Signal) error {
	pids, err := t.running(program)
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("no process %s", program)
	}
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, s))
	}
	return err
}

// comm returns the name of a process.
func comm(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(name))
}

// parent returns the parent of a process, 0 if there is none.
func parent(pid int) int {
	fields := readStat(pid)
	if fields == nil {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

// processes returns the processes of the machine that match.
func (t *conformance) processes(match func(pid int) bool) (pids []int, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && match(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, err
}
