//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A conformance runs suites on a cluster for one DNS server after the other, and reports them.
type conformance struct {
	*cluster
	options conformanceOptions
	report  report
	dns     string // the address that pods send queries to
}

type conformanceOptions struct {
	Reports string         // directory of the reports
	Only    string         // name of a server, "" for all
	Suites  []string       // names
	Focus   *regexp.Regexp // of the names of tests
}

// A server is a DNS server of the cluster.
type server struct{ name, image string }

// servers returns the DNS servers that are compared, the control first.
func servers() []server { return []server{{"coredns", corednsImage}, {"seamark", seamarkImage}} }

// A suite is a group of tests.
type suite struct {
	name  string
	usual string // how long it takes for one server on two cores
	run   func(*conformance, context.Context, server, suite) error

	server     string // the only server that it concerns, "" for each
	focus      string // regular expressions of Kubernetes' tests, if it has them
	skip       string
	capture    string   // of seamark node, which is installed for it
	manifests  []string // directory of deploy that is installed for it in place of CoreDNS, and components
	operations func() []operation
	extra      bool // runs only if it is named
}

func suites() []suite {
	return []suite{
		{name: "dns", usual: "3 minutes", run: (*conformance).runE2E, focus: `\[sig-network\] DNS `},
		{name: "operations", usual: "7 minutes", run: (*conformance).runOperations, operations: operations},
		{name: "changes", usual: "7 minutes", run: (*conformance).runOperations, operations: changes, server: "seamark"},

		{name: "services", usual: "6 minutes", run: (*conformance).runE2E, focus: `\[sig-network\] (?:` +
			`Services should (?:be able to change the type from|be able to create a functioning NodePort|` +
			`serve (?:a basic|multiport) endpoints? from pods|be able to up and down|work after the service has been recreated)|` +
			`EndpointSlice should (?:create Endpoints and|support a Service with multiple)|.*\[Feature:Networking-DNS\])`},
		{name: "multicluster", usual: "2 minutes", run: (*conformance).runMulticluster},
		{name: "pods", usual: "30 s", run: (*conformance).runPods},
		{name: "commands", usual: "1 minute", run: (*conformance).runCommands, server: "seamark"},
		{name: "policy", usual: "3 minutes", run: (*conformance).runPolicy, server: "seamark"},

		{name: "gateway", usual: "1 minute", run: (*conformance).runGateway, server: "seamark", extra: true},
		{name: "records", usual: "1 minute", run: (*conformance).runRecords, server: "seamark", extra: true},
		// The controllers remove its Services for many minutes afterwards.
		{name: "performance", usual: "12 minutes", run: (*conformance).runE2E, focus: `\[Feature:PerformanceDNS\]`, extra: true},
		{name: "slis", usual: "4 minutes", run: (*conformance).runSLIs, extra: true},

		nodeSuite("tcx"),
		nodeSuite("clsact"),
		nodeSuite("address"),
		{name: "fresh", usual: "2 minutes", run: (*conformance).runFresh, server: "seamark", extra: true},
		{name: "helm", usual: "6 minutes", run: (*conformance).runOperations, operations: helmChanges, server: "seamark", extra: true},
		// The tests wait two minutes for a change of the ConfigMap, and the kubelet about as long before it
		// changes a mount.
		generationSuite("kube-dns", "", "kube-dns/one-container", "kube-dns/components/config-map"),
		threeContainers(),
		// As SkyDNS does, it answers a query for CNAME from the key of the name alone, not from those below.
		generationSuite("skydns", `DNS configMap|ExternalName`, "skydns"),
	}
}

func suiteNames() (names []string) {
	for _, s := range suites() {
		names = append(names, s.name)
	}
	return names
}

// parseConformance returns the options that args select.
func parseConformance(args []string) (options, conformanceOptions, error) {
	var o options
	var t conformanceOptions
	var names, focus string
	f := newFlagSet("conformance", &o.Dir)
	o.addFlags(f)
	f.StringVar(&t.Reports, "reports", "bin/conformance", "directory of the reports")
	f.StringVar(&t.Only, "only", "", "server to test: seamark or coredns, both by default")
	f.StringVar(&names, "suites", "", "suites with commas between: "+strings.Join(suiteNames(), ", "))
	f.StringVar(&focus, "focus", "", "regular expression of the names of tests")
	if err := parseFlags(f, args); err != nil {
		return o, t, err
	}

	errs := []error{o.check()}
	refuse := func(format string, args ...any) { errs = append(errs, usageError{fmt.Errorf(format, args...)}) }
	if t.Only != "" && !slices.ContainsFunc(servers(), func(s server) bool { return s.name == t.Only }) {
		refuse("-only %s: want seamark or coredns", t.Only)
	}

	for _, s := range suites() {
		if names == "" && !s.extra {
			t.Suites = append(t.Suites, s.name)
		}
	}
	for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !slices.Contains(suiteNames(), name) {
			refuse("-suites %s: want %s", name, strings.Join(suiteNames(), ", "))
		}
		t.Suites = append(t.Suites, name)
	}

	var err error
	if t.Focus, err = regexp.Compile(focus); err != nil {
		refuse("-focus: %w", err)
	}
	t.Reports, err = filepath.Abs(t.Reports)
	return o, t, errors.Join(append(errs, err)...)
}

// needsE2E reports whether a chosen suite has tests of Kubernetes.
func (t conformanceOptions) needsE2E() bool {
	return slices.ContainsFunc(suites(), func(s suite) bool { return s.focus != "" && slices.Contains(t.Suites, s.name) })
}

// runConformance runs the suites on the running cluster, or on one that it starts and ends.
func runConformance(ctx context.Context, args []string) (err error) {
	o, t, err := parseConformance(args)
	if err != nil {
		return err
	}
	l, err := lock(t.Reports, "runs tests and writes reports to")
	if err != nil {
		return err
	}
	defer l.Close()

	c := newCluster(&state{Options: o})
	running, readErr := readState(o.Dir)
	found := readErr == nil && running.Init.runs()
	if found {
		c = newCluster(running)
		fmt.Printf("== the running cluster: %s\n", running.Options)
	}

	var programs map[string]string
	if t.needsE2E() {
		programs = testPrograms
	}
	if !found {
		err = c.checkBeforeBuild(programs)
	} else if err = checkPrograms(programs, find); err != nil {
		err = machineError{err}
	}
	if err != nil {
		return err
	}

	if t.needsE2E() {
		if err := c.buildTests(ctx); err != nil {
			return interruption(ctx, err)
		}
	}
	for name, modules := range map[string][]module{"fresh": {helmModule, kustomizeModule}, "helm": {helmModule}, "gateway": {envoyModule}} {
		if slices.Contains(t.Suites, name) {
			if err := c.buildAll(ctx, modules); err != nil {
				return interruption(ctx, err)
			}
		}
	}

	if !found {
		if err := up(ctx, o); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, down(o.Dir)) }()
		if running, err = readState(o.Dir); err != nil {
			return err
		}
		c = newCluster(running)
	}

	run := &conformance{cluster: c, options: t, dns: dnsService}
	return interruption(ctx, run.all(ctx))
}

// interruption returns a short error after a signal.
func interruption(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// all runs the suites, and writes the reports also if it is interrupted.
func (t *conformance) all(ctx context.Context) error {
	os.Setenv("PATH", t.path()+":"+os.Getenv("PATH"))
	if err := t.begin(ctx); err != nil {
		return err
	}

	start := time.Now()
	err := t.run(ctx, t.stages(), func(string) error { return ctx.Err() })
	t.report.Seconds = time.Since(start).Seconds()

	// What a test or a signal has left must not meet the next user of the cluster.
	restore, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.Options.Patience)
	defer cancel()
	err = errors.Join(err, t.removeNamespaces(restore), t.install(restore, servers()[0]))
	if len(t.report.Results) == 0 {
		return err
	}

	err = errors.Join(err, t.report.write(t.options.Reports))
	fmt.Fprintf(t.out, "\n%s\nThe reports are report.txt, report.json and report.xml in %s\n",
		t.report.summary(), t.options.Reports)
	return errors.Join(err, t.report.verdict())
}

// begin fills the report's head.
func (t *conformance) begin(ctx context.Context) error {
	commit, err := output(exec.CommandContext(ctx, "git", "-C", t.Options.Source, "describe", "--always", "--dirty"))
	if err != nil {
		commit = []byte("unknown") // an archive of the source
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}

	t.report = report{
		Date: time.Now().UTC().Truncate(time.Second),
		Versions: map[string]string{
			"Kubernetes": t.Options.Kubernetes, "CoreDNS": corednsVersion, "containerd": containerdVersion,
			"etcd": etcdVersion, "Seamark": strings.TrimSpace(string(commit)),
		},
		Cluster: t.Options.String(),
		Machine: fmt.Sprintf("Linux %s, %d processors, %s", strings.TrimSpace(string(kernel)), runtime.NumCPU(),
			runtime.GOARCH),
	}
	return nil
}

// stages returns what is done: each suite for each server.
func (t *conformance) stages() []stage {
	var all []stage
	if t.options.needsE2E() {
		all = append(all, stage{"test images", "10 s", func(_ *cluster, ctx context.Context) error {
			return t.importTests(ctx)
		}, nil})
	}
	for _, s := range servers() {
		if t.options.Only != "" && t.options.Only != s.name {
			continue
		}
		for _, suite := range suites() {
			if !slices.Contains(t.options.Suites, suite.name) || suite.server != "" && suite.server != s.name {
				continue
			}
			all = append(all, stage{suite.name + " with " + s.name, suite.usual, func(_ *cluster, ctx context.Context) error {
				if err := errors.Join(t.removeNamespaces(ctx), t.install(ctx, s)); err != nil {
					return err
				}
				return suite.run(t, ctx, s, suite)
			}, nil})
		}
	}
	return all
}

// add adds a result to the report and prints it.
func (t *conformance) add(s server, of suite, r result) {
	r.Server, r.Suite = s.name, of.name
	t.report.Results = append(t.report.Results, r)
	fmt.Fprintf(t.out, "   %-7s %6.1f s  %s", r.Outcome, r.Seconds, r.Name)
	if r.Message != "" {
		fmt.Fprintf(t.out, ": %s", r.Message)
	}
	fmt.Fprintln(t.out)
}

// install puts a DNS server in the place of the other, as deploy/kubernetes/README.md does.
func (t *conformance) install(ctx context.Context, s server) error {
	return t.change(ctx, "coredns", "set image deployment/coredns coredns="+s.image)
}

// removeNamespaces removes the namespaces of tests that were killed.
func (t *conformance) removeNamespaces(ctx context.Context) error {
	return t.do(ctx, "delete", "namespaces", "-l", "e2e-framework", "--ignore-not-found")
}
