//go:build linux

// Command fleet measures the load of the DNS caches of many nodes on the API server: it runs
// the source of the directive kubernetes many times in one process, each with connections of
// its own, against the real API machinery.
//
//	go build -o api ./cmd/api && go run ./cmd/fleet -api ./api -agents 1000 -source services
//
// A run has four phases: the lists, a steady state, a rollout that replaces every endpoint of
// the headless Services, and a restart of the API server without its history. For each it
// prints a line with the time until every agent has the last change, the processor time of
// the API server and of etcd in its process, the bytes that it sent, and its requests.
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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
)

func main() {
	var r run
	flag.StringVar(&r.program, "api", "", "`FILE`: the program kubetest/cmd/api")
	flag.IntVar(&r.agents, "agents", 1000, "number of nodes")
	flag.StringVar(&r.source, "source", "services", "services: only services; pods: and the node's Pods; everything: all Services and EndpointSlices")
	flag.IntVar(&r.services, "services", 1000, "number of Services with a ClusterIP")
	flag.IntVar(&r.endpoints, "endpoints", 20000, "endpoints of headless Services, 100 in each slice; the rollout replaces them")
	flag.DurationVar(&r.rollout, "rollout", 30*time.Second, "time over which the endpoints are replaced")
	flag.DurationVar(&r.steady, "steady", time.Minute, "time of the steady state")
	flag.BoolVar(&r.verbose, "v", false, "print the log of the API server")
	flag.Parse()
	apiserver.QuietKlog()
	if err := r.do(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// A run is a measurement of one source.
type run struct {
	program, source             string
	agents, services, endpoints int
	rollout, steady             time.Duration
	verbose                     bool

	server  *exec.Cmd
	control io.Writer
	lines   *bufio.Scanner
	client  *kubernetes.Clientset
	fleet   []*agent
}

// options returns the options of the source of one node.
func (r *run) options(kubeconfig string, i int) (cluster.Options, error) {
	o := cluster.Options{Kubeconfig: kubeconfig}
	switch r.source {
	case "services":
		o.NoEndpoints = true
	case "pods":
		o.NoEndpoints, o.Pods, o.NodeName = true, true, nodeName(i)
	case "everything":
	default:
		return o, fmt.Errorf("-source: want services, pods or everything, got %q", r.source)
	}
	return o, nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func (r *run) do(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig, stop, err := r.serve(dir)
	if err != nil {
		return err
	}
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := r.populate(ctx); err != nil {
		return fmt.Errorf("writing the cluster: %w", err)
	}
	fmt.Printf("%s: %d agents, %d Services, %d endpoints in headless Services\n", r.source, r.agents, r.services, r.endpoints)
	fmt.Printf("%-10s %10s %12s %14s %10s\n", "phase", "seconds", "CPU seconds", "bytes sent", "requests")

	ctx, cancel := context.WithCancel(ctx)
	defer r.stopAgents()
	defer cancel()
	phases := []struct {
		name string
		do   func() error
	}{
		{"lists", func() error { return r.startAgents(ctx, kubeconfig) }},
		{"steady", func() error { time.Sleep(r.steady); return nil }},
		{"rollout", func() error { return r.replaceEndpoints(ctx) }},
		{"restart", func() error { return r.restart(ctx) }},
	}
	for _, p := range phases {
		before, began := r.usage(), time.Now()
		if err := p.do(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		used := r.usage().minus(before)
		fmt.Printf("%-10s %10.1f %12.1f %14d %10d\n", p.name, time.Since(began).Seconds(), used.cpu.Seconds(), used.bytes, used.requests)
	}
	return nil
}

// serve starts the API server.
func (r *run) serve(dir string) (kubeconfig string, stop func(), err error) {
	r.server = exec.Command(r.program, "serve", dir)
	if r.verbose { // etcd logs each request that a client has cancelled
		r.server.Stderr = os.Stderr
	}
	in, err := r.server.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := r.server.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := r.server.Start(); err != nil {
		return "", nil, fmt.Errorf("starting the API server: %w", err)
	}
	stop = func() {
		_ = in.Close()
		_ = r.server.Wait() // its standard error, with -v, has the reason
	}
	r.control, r.lines = in, bufio.NewScanner(out)
	if !r.lines.Scan() {
		stop()
		return "", nil, errors.New("the API server has ended: see its error with -v")
	}
	return r.lines.Text(), stop, nil
}

// restart restarts the API server, and waits until every agent has a change made after it.
func (r *run) restart(ctx context.Context) error {
	if _, err := fmt.Fprintln(r.control, "restart"); err != nil {
		return err
	}
	if !r.lines.Scan() || r.lines.Text() != "ready" {
		return fmt.Errorf("got %q from the API server, want ready", r.lines.Text())
	}
	return r.mark(ctx, 3)
}

// A usage has the resources that the API server has used so far.
type usage struct {
	cpu      time.Duration
	bytes    int64
	requests int64
}

func (u usage) minus(o usage) usage {
	return usage{u.cpu - o.cpu, u.bytes - o.bytes, u.requests - o.requests}
}

func (r *run) usage() (u usage) {
	u.cpu = processorTime(r.server.Process.Pid)
	for _, a := range r.fleet {
		u.bytes += a.bytes.Load()
		u.requests += a.requests()
	}
	return u
}

// processorTime returns the processor time of a process, which its processor clock has.
func processorTime(pid int) time.Duration {
	var t unix.Timespec
	clock := int32(^pid<<3 | 2) // CPUCLOCK_SCHED of all threads
	if err := unix.ClockGettime(clock, &t); err == nil {
		return time.Duration(t.Nano())
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks := int64(0)
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
