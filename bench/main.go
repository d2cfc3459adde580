//go:build linux

// Command bench measures what an answer costs our server, its peers and a bare
// loop of system calls, in turns on one machine, and holds the figures against
// the goals. README.md says how, and how to attack it; "make bench" runs it.
// It is never part of a server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "loop" {
		return runLoop(ctx, args[1:])
	}
	o, err := parseOptions(args, out)
	if err != nil {
		return err
	}
	b, err := newBench(o, out)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	defer b.stopAPI()
	defer b.stopAll()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if o.profileFile != "" {
		return b.profile(ctx, o.profileFile)
	}
	err = b.measureAll(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return errors.Join(err, b.finish())
}

// options are the flags.
type options struct {
	quick, install, pin, wildcard, dnsperf bool
	services, rounds                       int
	time                                   time.Duration
	rate                                   float64
	only, peers                            []string
	binary, corednsPath, kubeconfig        string
	results, root, profileFile             string
}

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	var only, peers string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.BoolVar(&o.quick, "quick", false, "a small cluster from a folder, short runs: under two minutes")
	f.BoolVar(&o.install, "install", false, "install peers that are missing by apt-get, as root")
	f.BoolVar(&o.pin, "pin", false, "servers on CPU 0, the generator on CPU 1")
	f.BoolVar(&o.wildcard, "wildcard", false, "servers listen on all addresses, as in a pod, and not on 127.0.0.1")
	f.BoolVar(&o.dnsperf, "dnsperf", false, "UDP by dnsperf, which counts response codes and looks at no answer")
	f.IntVar(&o.services, "services", 0, "Services of the cluster (10000; quick: 200)")
	f.IntVar(&o.rounds, "rounds", 0, "rounds, each second one backwards (4; quick: 2)")
	f.DurationVar(&o.time, "time", 0, "length of one run (2s; quick: 400ms)")
	f.Float64Var(&o.rate, "rate", 0, "queries a second over UDP, open loop; 0: 100 outstanding, as fast as the server answers")
	f.StringVar(&only, "scenarios", "", "only these of "+strings.Join(names(scenarios()), ","))
	f.StringVar(&peers, "peers", "knot,dnsmasq,unbound", "which of these to compare with, if they are there; may be empty")
	f.StringVar(&o.binary, "seamark", "", "our server's binary; built if it is not given")
	f.StringVar(&o.corednsPath, "coredns", "", "CoreDNS's binary")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "a real API server: of a cluster that is for this alone")
	f.StringVar(&o.results, "results", "bench/results", "directory for the results")
	f.StringVar(&o.profileFile, "profile", "", "measure nothing; write a CPU profile of our server under all kinds of load to this file")
	f.StringVar(&o.root, "root", ".", "the repository")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	orInt(&o.services, 10000, 200, o.quick)
	orInt(&o.rounds, 4, 2, o.quick)
	if o.time == 0 {
		o.time = 2 * time.Second
		if o.quick {
			o.time = 400 * time.Millisecond
		}
	}
	for _, name := range words(peers) {
		if _, ok := packages()[name]; !ok {
			return o, fmt.Errorf("no peer %q", name)
		}
		o.peers = append(o.peers, name)
	}
	for _, name := range words(only) {
		if !slices.Contains(names(scenarios()), name) {
			return o, fmt.Errorf("no scenario %q: there are %s", name, strings.Join(names(scenarios()), ", "))
		}
		o.only = append(o.only, name)
	}
	if _, err := exec.LookPath("dnsperf"); o.dnsperf && err != nil {
		return o, errors.New("dnsperf is not installed: apt-get install dnsperf")
	}
	if o.services < 20 || o.services > 100000 {
		return o, errors.New("-services: want 20 to 100000")
	}
	if o.rounds < 1 || o.time < 50*time.Millisecond {
		return o, errors.New("want one round at least, and runs of 50ms")
	}
	return o, nil
}

// words splits a list.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func orInt(v *int, full, quick int, isQuick bool) {
	if *v == 0 {
		*v = full
		if isQuick {
			*v = quick
		}
	}
}

func names(all []scenario) (out []string) {
	for _, s := range all {
		out = append(out, s.name)
	}
	return out
}

// A bench is one run.
type bench struct {
	options
	out      io.Writer
	dir      string // scratch, removed at the end
	self     string
	paths    map[string]string // of the peers that are there
	pop      population
	work     map[string]*workload
	api      *api // nil without an API server
	upstream *server
	spawned  int
	running  []*server
	series   map[string][]float64
	report   report
}

func newBench(o options, out io.Writer) (*bench, error) {
	b := &bench{options: o, out: out, paths: map[string]string{}, series: map[string][]float64{}}
	for _, path := range []*string{&b.binary, &b.corednsPath, &b.kubeconfig, &b.root} {
		if *path == "" {
			continue
		}
		full, err := filepath.Abs(*path)
		if err != nil {
			return nil, err
		}
		*path = full
	}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	b.pop = populate(o.services)
	b.work = b.pop.workloads()
	b.dir, err = os.MkdirTemp("", "seamark-bench-")
	return b, err
}

// selected gives the scenarios of this run.
func (b *bench) selected() (out []scenario) {
	for _, s := range scenarios() {
		if slices.Contains(b.only, s.name) || len(b.only) == 0 && (s.quick || !b.quick) {
			out = append(out, s)
		}
	}
	return out
}

// prepare makes everything that the scenarios need.
func (b *bench) prepare(ctx context.Context) error {
	b.findPeers(ctx)
	if b.binary == "" {
		b.say("building our server")
		b.binary = filepath.Join(b.dir, "seamark")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-pgo=auto", "-ldflags", "-s -w", "-o", b.binary, "./cmd/seamark")
		build.Dir = b.root
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building our server: %w: %s", err, text)
		}
	}
	b.say("making a cluster of %d Services with %d endpoints", b.pop.services(), b.pop.endpoints())
	if err := b.writeCluster(); err != nil {
		return err
	}
	outside, err := outsideTable()
	if err != nil {
		return err
	}
	if b.upstream, err = b.loop("upstream", outside, 1, "-upstream"); err != nil {
		return err
	}
	if _, err := b.upstream.await(ctx, b.work["cached"].questions[0], loading); err != nil {
		return err
	}
	needs := b.corednsPath != "" || b.kubeconfig != ""
	for _, s := range b.selected() {
		needs = needs || s.api && b.profileFile == ""
	}
	if needs {
		return b.startAPI(ctx, b.kubeconfig)
	}
	return nil
}

func (b *bench) writeCluster() error {
	err := b.pop.writeManifests(b.folder())
	if err == nil && b.paths["knot"] != "" {
		err = b.pop.writeZones(b.dir)
	}
	if err == nil && b.paths["dnsmasq"] != "" {
		err = b.pop.writeHosts(filepath.Join(b.dir, "hosts"))
	}
	if err == nil && b.paths["unbound"] != "" {
		err = writeFile(filepath.Join(b.dir, "local-data"), func(w io.Writer) {
			b.pop.each(func(r record) {
				fmt.Fprintf(w, "local-data: \"%s %d IN %s %s\"\n", r.owner, ttl, r.kind, r.data)
			})
		})
	}
	return err
}

// measureAll runs the scenarios. One that fails is said, and the others go on.
func (b *bench) measureAll(ctx context.Context) error {
	var failed error
	for _, s := range b.selected() {
		b.say("%s: %s", s.name, s.what)
		if err := s.run(b, ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			b.miss("%s: %v", s.name, err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return failed
}

// stopServers ends the servers of a scenario; the upstream goes on.
func (b *bench) stopServers() {
	for i := len(b.running) - 1; i > 0; i-- {
		b.running[i].stop()
	}
	b.running = b.running[:1]
}

func cpus() int { return runtime.NumCPU() }

// serverCPU and generatorCPU are where they run; negative is anywhere.
func (b *bench) serverCPU() int {
	if b.pin && cpus() > 1 {
		return 0
	}
	return -1
}

func (b *bench) generatorCPU() int {
	if b.pin && cpus() > 1 {
		return 1
	}
	return -1
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.out, "# "+format+"\n", args...) }
