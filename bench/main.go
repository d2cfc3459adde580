//go:build linux

// Command bench measures the cost of an answer of our server, its peers and a
// bare loop of system calls, alternately on one machine, and compares the figures
// with the goals. README.md describes the method and its limits; "make bench"
// runs it. It is not part of a server.
package main

import (
	"cmp"
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
	if len(args) > 0 && args[0] == "fixed" {
		return runFixed(ctx, args[1:])
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

// options are the values of the flags.
type options struct {
	quick, install, pin, wildcard, dnsperf bool
	services, rounds                       int
	time                                   time.Duration
	rate                                   float64
	only, peers                            []string
	binary, pgo, corednsPath, kubeconfig   string
	nodecachePath, basePath                string
	results, root, profileFile             string
}

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	var only, peers string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.BoolVar(&o.quick, "quick", false, "a small cluster from a folder and short runs: under two minutes")
	f.BoolVar(&o.install, "install", false, "install missing peers with apt-get, as root")
	f.BoolVar(&o.pin, "pin", false, "run servers on CPU 0 and the generator on CPU 1")
	f.BoolVar(&o.wildcard, "wildcard", false, "servers listen on all addresses, as in a pod, instead of 127.0.0.1")
	f.BoolVar(&o.dnsperf, "dnsperf", false, "send UDP queries with dnsperf, which checks response codes only")
	f.IntVar(&o.services, "services", 0, "number of Services (default 10000; quick: 200)")
	f.IntVar(&o.rounds, "rounds", 0, "number of rounds; every second one in reverse order (default 4; quick: 2)")
	f.DurationVar(&o.time, "time", 0, "length of one run (default 2s; quick: 400ms)")
	f.Float64Var(&o.rate, "rate", 0, "queries per second over UDP, independent of replies; 0 keeps 100 outstanding")
	f.StringVar(&only, "scenarios", "", "run only these of "+strings.Join(names(scenarios()), ","))
	f.StringVar(&peers, "peers", "knot,dnsmasq,unbound,nsd", "compare with the installed ones of these; may be empty")
	f.StringVar(&o.binary, "seamark", "", "binary of our server (default: build it)")
	f.StringVar(&o.pgo, "pgo", "auto", "go build's -pgo for our server; off builds faster")
	f.StringVar(&o.basePath, "base", "", "an earlier binary of our server, compared in the same rounds")
	f.StringVar(&o.corednsPath, "coredns", "", "binary of CoreDNS")
	f.StringVar(&o.nodecachePath, "nodecache", "",
		"binary of node-cache, for the scenario node (default: CoreDNS with node-cache's Corefile)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of a cluster that is used for nothing else")
	f.StringVar(&o.results, "results", "bench/results", "directory for the results")
	f.StringVar(&o.profileFile, "profile", "",
		"write a CPU profile of our server under all kinds of load to this file, and measure nothing")
	f.StringVar(&o.root, "root", ".", "root directory of the repository")

	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	}

	services, rounds, length := 10000, 4, 2*time.Second
	if o.quick {
		services, rounds, length = 200, 2, 400*time.Millisecond
	}

	o.services, o.rounds, o.time = cmp.Or(o.services, services), cmp.Or(o.rounds, rounds), cmp.Or(o.time, length)
	for _, name := range words(peers) {
		if _, ok := packages()[name]; !ok {
			return o, fmt.Errorf("unknown peer %q", name)
		}
		o.peers = append(o.peers, name)
	}

	for _, name := range words(only) {
		if !slices.Contains(names(scenarios()), name) {
			return o, fmt.Errorf("unknown scenario %q: want one of %s", name, strings.Join(names(scenarios()), ", "))
		}
		o.only = append(o.only, name)
	}

	if _, err := exec.LookPath("dnsperf"); o.dnsperf && err != nil {
		return o, errors.New("dnsperf is not installed: apt-get install dnsperf")
	}
	if o.services < 20 || o.services > 100000 {
		return o, errors.New("-services: want a number from 20 to 100000")
	}
	if !(o.rate >= 0 && o.rate <= 1e9) { // or it is not a number
		return o, errors.New("-rate: want a number from 0 to 1e9")
	}
	if o.rounds < 1 || o.time < 50*time.Millisecond {
		return o, errors.New("want at least one round, and runs of at least 50ms")
	}

	return o, nil
}

// words splits a comma-separated list.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func names(list []scenario) (out []string) {
	for _, s := range list {
		out = append(out, s.name)
	}
	return out
}

// A bench is one run.
type bench struct {
	options
	out      io.Writer
	dir      string // temporary directory, removed at the end
	self     string
	paths    map[string]string // programs of the installed peers
	pop      population
	work     map[string]*workload
	api      *api // nil without an API server
	upstream *server
	spawned  int
	ports    []uint16 // already given to servers
	running  []*server
	series   map[string][]float64
	report   report
}

func newBench(o options, out io.Writer) (*bench, error) {
	b := &bench{options: o, out: out, paths: map[string]string{}, series: map[string][]float64{}}
	for _, path := range []*string{&b.binary, &b.basePath, &b.corednsPath, &b.nodecachePath, &b.kubeconfig, &b.root} {
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

// selected returns the scenarios of this run.
func (b *bench) selected() (out []scenario) {
	for _, s := range scenarios() {
		if slices.Contains(b.only, s.name) || len(b.only) == 0 && (s.quick || !b.quick) {
			out = append(out, s)
		}
	}
	return out
}

// prepare builds and writes everything that the scenarios need.
func (b *bench) prepare(ctx context.Context) error {
	b.findPeers(ctx)
	if b.binary == "" {
		b.say("building our server")
		b.binary = filepath.Join(b.dir, "seamark")
		if err := b.build(ctx, "", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", "-pgo="+b.pgo,
			"-ldflags", "-s -w", "-o", b.binary, "./cmd/seamark"); err != nil {
			return err
		}
	}

	b.say("generating a cluster of %d Services with %d endpoints", b.pop.services(), b.pop.endpoints())
	if err := b.writeCluster(); err != nil {
		return err
	}

	outside, err := outsideTable(outside, 0)
	if err != nil {
		return err
	}
	b.upstream, err = b.startLoop(ctx, "upstream", outside, b.work["cached"].lookups[0], "-upstream")
	if err != nil {
		return err
	}

	needs := b.kubeconfig != ""
	for _, s := range b.selected() {
		needs = needs || s.api && b.profileFile == "" || b.corednsPath != "" && s.name != "node"
	}

	if needs {
		return b.startAPI(ctx, b.kubeconfig)
	}
	return nil
}

// build runs go build in a directory of the repository.
func (b *bench) build(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Dir = filepath.Join(b.root, dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", args[len(args)-1], err, text)
	}
	return nil
}

func (b *bench) writeCluster() error {
	err := b.pop.writeManifests(b.folder())
	if err == nil && (b.paths["knot"] != "" || b.paths["nsd"] != "") {
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

// measureAll runs the scenarios. It reports a failed one and continues.
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

func cpus() int { return runtime.NumCPU() }

// cpu returns the CPU that servers (0) or the generator (1) run on; negative is any.
func (b *bench) cpu(of int) int {
	if b.pin && cpus() > 1 {
		return of
	}
	return -1
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.out, "# "+format+"\n", args...) }
