//go:build linux

// Command fleet measures the load of the DNS caches of many nodes on the API server and on the
// replicas of the cluster's DNS: it runs the servers of many nodes in one process, each with
// connections of its own, against the real API machinery and replicas of Seamark.
//
//	make -C .. build && go build -o api ./cmd/api
//	go run ./cmd/fleet -api ./api -seamark ../bin/seamark -agents 1000 -source services
//
// A run has these phases: the lists; the first queries of the pods, with -names; a steady
// state; a rollout that replaces every endpoint of the headless Services; and restarts of the
// API server with and without its history. For each it prints a line with the time until
// every agent has the last change, the processor time of the API server and of etcd in its
// process, the bytes that it sent to agents, and their requests; the replies to pods and the
// queries that the replicas received, for each node and second, and their processor time.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seamark/seamark/cluster/apiserver"
)

func main() {
	var r run
	flag.StringVar(&r.program, "api", "", "`FILE`: the program kubetest/cmd/api")
	flag.IntVar(&r.agents, "agents", 1000, "number of nodes")
	flag.StringVar(&r.seamark, "seamark", "", "`FILE`: the program cmd/seamark")
	flag.IntVar(&r.replicas, "replicas", 2, "number of replicas")
	flag.IntVar(&r.names, "names", 0, "names of the cluster, and as many others, that the pods of each node use")
	flag.DurationVar(&r.every, "every", time.Second, "time in which the pods of a node look up each name")
	flag.StringVar(&r.source, "source", "services",
		"forward: cache and forward; services: only services; pods: and the node's Pods; everything: all Services and EndpointSlices")
	flag.IntVar(&r.services, "services", 1000, "number of Services with a ClusterIP")
	flag.IntVar(&r.endpoints, "endpoints", 20000,
		"endpoints of headless Services, 100 in each slice; the rollout replaces them")
	flag.DurationVar(&r.rollout, "rollout", 30*time.Second, "time over which the endpoints are replaced")
	flag.DurationVar(&r.steady, "steady", time.Minute, "time of the steady state")
	flag.BoolVar(&r.verbose, "v", false, "print the log of the API server")
	flag.Parse()
	apiserver.QuietKlog()
	debug.SetGCPercent(400) // the processors are for the API server
	if err := r.do(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// A run is a measurement of one source.
type run struct {
	program, seamark, source    string
	agents, services, endpoints int
	replicas, names             int
	rollout, steady, every      time.Duration
	verbose                     bool

	server  *exec.Cmd
	control io.Writer
	lines   *bufio.Scanner
	client  *kubernetes.Clientset
	fleet   []*agent

	kubeconfig, api string // file, and address of the API server
	processes       []*exec.Cmd
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func (r *run) do(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stop, err := r.serve(dir)
	if err != nil {
		return err
	}
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		return err
	}
	r.api = strings.TrimPrefix(config.Host, "https://")
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := r.populate(ctx); err != nil {
		return fmt.Errorf("writing the cluster: %w", err)
	}
	defer r.stopReplicas()
	if err := r.startReplicas(dir); err != nil {
		return fmt.Errorf("starting the replicas: %w", err)
	}
	fmt.Printf("%s: %d agents, %d Services, %d endpoints in headless Services\n", r.source, r.agents, r.services,
		r.endpoints)
	fmt.Printf("%-13s %8s | %8s %12s %9s | %8s %9s %12s\n", "phase", "seconds", "API CPU", "bytes sent", "requests",
		"replies", "queries", "replicas CPU")

	ctx, cancel := context.WithCancel(ctx)
	defer r.stopAgents()
	defer cancel()
	wait := func() error { time.Sleep(r.steady); return nil }
	phases := []struct {
		name string
		do   func() error
	}{
		{"lists", func() error { return r.startAgents(ctx) }},
		{"first queries", func() error { return errors.Join(r.startQueries(ctx), wait()) }},
		{"steady", wait},
		{"rollout", func() error { return r.replaceEndpoints(ctx) }},
		{"resume", func() error { return r.restart(ctx, "resume", 3) }},
		{"restart", func() error { return r.restart(ctx, "restart", 4) }},
	}
	for _, p := range phases {
		if p.name == "first queries" && r.names == 0 {
			continue
		}
		before, began := r.usage(), time.Now()
		if err := p.do(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		seconds, used := time.Since(began).Seconds(), r.usage().minus(before)
		each := func(n int64) float64 { return float64(n) / float64(r.agents) / seconds }
		fmt.Printf("%-13s %8.1f | %8.1f %12d %9d | %8.1f %9.2f %12.2f\n", p.name, seconds, used.cpu.Seconds(),
			used.bytes, used.requests,
			each(used.replies), each(used.queries), used.replicas.Seconds())
	}
	return nil
}

// serve starts the API server.
func (r *run) serve(dir string) (stop func(), err error) {
	r.server = exec.Command(r.program, "serve", dir)
	if r.verbose { // etcd logs each request that a client has cancelled
		r.server.Stderr = os.Stderr
	}

	in, err := r.server.StdinPipe()
	if err != nil {
		return nil, err
	}

	out, err := r.server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.server.Start(); err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}

	stop = func() {
		_ = in.Close()
		_ = r.server.Wait() // its standard error, with -v, has the reason
	}

	r.control, r.lines = in, bufio.NewScanner(out)
	if !r.lines.Scan() {
		stop()
		return nil, errors.New("the API server has ended: see its error with -v")
	}

	r.kubeconfig = r.lines.Text()
	return stop, nil
}

// restart restarts the API server, and waits until every agent has change n, made after it.
func (r *run) restart(ctx context.Context, order string, n int) error {
	if _, err := fmt.Fprintln(r.control, order); err != nil {
		return err
	}
	if !r.lines.Scan() || r.lines.Text() != "ready" {
		return fmt.Errorf("got %q from the API server, want ready", r.lines.Text())
	}
	return r.mark(ctx, n)
}

// A usage has the resources that were used so far.
type usage struct {
	cpu, replicas                     time.Duration
	bytes, requests, replies, queries int64
}

func (u usage) minus(o usage) usage {
	return usage{u.cpu - o.cpu, u.replicas - o.replicas, u.bytes - o.bytes, u.requests - o.requests,
		u.replies - o.replies, u.queries - o.queries}
}

func (r *run) usage() (u usage) {
	u.cpu = processorTime(r.server.Process.Pid)
	u.queries, u.replicas = r.replicaUsage()
	for _, a := range r.fleet {
		u.replies += a.replies.Load()
		u.bytes += a.bytes.Load()
		u.requests += a.requests()
	}
	return u
}

// processorTime returns the processor time of a process, which its processor clock has.
func processorTime(pid int) time.Duration {
	var t unix.Timespec
	clock := int32(^pid<<3 | 2)      // CPUCLOCK_SCHED of all threads
	_ = unix.ClockGettime(clock, &t) // zero if the process has ended
	return time.Duration(t.Nano())
}
