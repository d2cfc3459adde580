//go:build linux

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// testModule has the programs of Kubernetes' own tests.
func (c *cluster) testModule() module {
	m := c.modules()[0]
	m.programs = []program{
		{"e2e.test", "k8s.io/kubernetes/test/e2e", "6 minutes"},
		{"agnhost", "k8s.io/kubernetes/test/images/agnhost", "1 minute"},
	}
	return m
}

// testPrograms are the machine's programs in the image of tests, beside those of clients, with
// their Debian packages.
var testPrograms = map[string]string{
	"awk": "mawk", "bash": "bash", "chmod": "coreutils", "curl": "curl", "cut": "coreutils", "echo": "coreutils",
	"false": "coreutils", "grep": "grep", "head": "coreutils", "hostname": "hostname", "id": "coreutils",
	"ip": "iproute2", "mkdir": "coreutils", "nc": "netcat-openbsd", "rm": "coreutils", "sed": "sed", "sort": "coreutils",
	"ss": "iproute2", "tail": "coreutils", "tee": "coreutils", "test": "coreutils", "touch": "coreutils",
	"tr": "coreutils", "true": "coreutils", "uname": "coreutils", "uniq": "coreutils", "wc": "coreutils", "wget": "wget",
}

// buildTests builds the programs of tests.
func (c *cluster) buildTests(ctx context.Context) error {
	fmt.Fprintln(c.out, "== test programs (usually 8 minutes the first time, then 1 s)")
	return c.buildAll(ctx, []module{c.testModule()})
}

// testImage matches the names of the images that the programs above can stand for.
var testImage = regexp.MustCompile(`^\S+/(agnhost|glibc-dns-testing|jessie-dnsutils):\S+$`)

// importTests writes the image of tests under the names that the tests use, and imports it on
// every node.
func (t *conformance) importTests(ctx context.Context) error {
	e2e := t.program(t.testModule(), "e2e.test")
	out, err := output(exec.CommandContext(ctx, e2e, "--list-images"))
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return !testImage.MatchString(name) })
	slices.Sort(names)

	programs := slices.Clone(clientPrograms)
	for name := range testPrograms {
		programs = append(programs, name)
	}
	entries, err := glibcFiles(ctx, programs)
	if err != nil {
		return err
	}
	for path, file := range map[string]string{
		"agnhost": t.program(t.testModule(), "agnhost"),
		"coredns": filepath.Join(t.dir, "programs", "coredns-"+corednsVersion, "coredns"),
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		entries = append(entries, entry{path, data, 0o755})
	}
	entries = append(entries, entry{"tmp/empty", nil, 0o644}, entry{"uploads/empty", nil, 0o644})

	return t.importImage(ctx, slices.Compact(names), entries, "/agnhost")
}

// importImage writes an image and imports it on every node.
func (t *conformance) importImage(ctx context.Context, names []string, entries []entry, entrypoint ...string) error {
	archive := t.file("images", "tests.tar")
	if err := writeImage(archive, names, "0:0", entries, entrypoint...); err != nil {
		return err
	}
	defer os.Remove(archive)
	for n := range t.Options.Nodes {
		inside := filepath.Join(root, "run", "images", "tests.tar")
		_, err := output(t.onNode(ctx, n+1, "ctr", "--namespace", "k8s.io", "images", "import", inside))
		if err != nil {
			return err
		}
	}
	return nil
}

// onNode returns a command in the namespaces of node n.
func (c *cluster) onNode(ctx context.Context, n int, args ...string) *exec.Cmd {
	args = append([]string{"exec", "-dir", c.dir, "-node", fmt.Sprint(n)}, args...)
	return exec.CommandContext(ctx, "/proc/self/exe", args...)
}

// runE2E runs tests of Kubernetes.
func (t *conformance) runE2E(ctx context.Context, s server, of suite) error {
	name := s.name + "-" + of.name
	dir := filepath.Join("run", "e2e", name)
	if err := os.RemoveAll(filepath.Join(t.dir, dir)); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(t.options.Reports, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()

	focus := of.focus
	if own := t.options.Focus.String(); own != "" {
		focus = "(?:" + focus + ").*(?:" + own + ")"
	}
	cmd := t.onNode(context.WithoutCancel(ctx), 1, "e2e.test", "--provider=skeleton",
		"--kubeconfig="+filepath.Join(root, "run", "admin.conf"), "--kubectl-path=kubectl",
		"--report-dir="+filepath.Join(root, dir), "--report-complete-ginkgo",
		// The tests wait for nodes with other taints, but no pod of theirs runs on a simulated one.
		"--non-blocking-taints=node-role.kubernetes.io/control-plane,kwok.x-k8s.io/node",
		"--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout=2h", "--ginkgo.focus="+focus, "--ginkgo.skip="+of.skip)
	runErr := t.stream(ctx, cmd, log)

	results, err := readGinkgo(filepath.Join(t.dir, dir, "ginkgo", "report.json"))
	if err != nil {
		return errors.Join(runErr, err)
	}
	if len(results) == 0 {
		return errors.Join(runErr, ctx.Err(), fmt.Errorf("no test of the suite %s matches -focus", of.name))
	}
	for _, r := range results {
		r.Server, r.Suite = s.name, of.name
		t.report.Results = append(t.report.Results, r)
	}
	return ctx.Err()
}

// stream runs a command with its progress. A signal interrupts its process group, so that the
// tests remove what they have made; after a minute the group is killed.
func (t *conformance) stream(ctx context.Context, cmd *exec.Cmd, log io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}

	done := make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		fmt.Fprintln(t.out, "== interrupted: the running test removes what it has made (usually 10 s)")
		syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)

		select {
		case <-done:
		case <-time.After(time.Minute):
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	})

	// nsenter ends at once by a signal, but the pipe with the last process of the group.
	progress(io.TeeReader(r, log), func(line string) { fmt.Fprintln(t.out, "   "+line) })
	close(done)
	signals.Wait()
	return cmd.Wait()
}

// ended matches the line of a test that has ended: • [5.123 seconds], • [FAILED] [1.000 seconds].
var ended = regexp.MustCompile(`^[•S] (?:\[([A-Z]+)[^]]*\] )?\[([0-9]+\.[0-9])[0-9]* seconds\]`)

// labels matches the labels after the name of a test, which has them, too.
var labels = regexp.MustCompile(` \[sig-[^]]*\]$`)

// progress reads ginkgo's messages and calls print for each test that has ended.
func progress(r io.Reader, print func(string)) {
	lines := bufio.NewReader(r)
	var name string
	for begins := false; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "------------------------------"):
			begins = true
			continue
		case begins && strings.HasPrefix(line, "["):
			name = labels.ReplaceAllString(line, "")
		}
		begins = false

		if m := ended.FindStringSubmatch(line); m != nil {
			print(fmt.Sprintf("%-7s %6s s  %s", strings.ToLower(cmp.Or(m[1], passed)), m[2], name))
		}
	}
}

// readGinkgo returns the results of the tests that ran or were skipped for a reason.
func readGinkgo(file string) ([]result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
			StartTime                  time.Time
			RunTime                    time.Duration
			Failure                    struct{ Message string }
			CapturedGinkgoWriterOutput string
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}

	var results []result
	for _, s := range suites {
		for _, r := range s.SpecReports {
			// A test that the focus excludes is skipped, too, but without a message.
			if r.LeafNodeType != "It" && r.State == "passed" || r.State == "skipped" && r.Failure.Message == "" {
				continue
			}
			outcome := r.State
			switch outcome {
			case passed, skipped:
			case "interrupted":
				outcome = skipped // by ctrl-C
			default:
				outcome = failed // or panicked, aborted, timed out
			}
			results = append(results, result{
				Name:    strings.TrimSpace(strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")),
				Outcome: outcome, Start: r.StartTime, Seconds: r.RunTime.Seconds(), Message: r.Failure.Message,
			})
		}
	}
	return results, nil
}
