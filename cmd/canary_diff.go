package cmd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/internal/canary"
	"github.com/seamark/seamark/internal/diff"
)

// forwardTimeout is how long kubectl port-forward may take to listen.
const forwardTimeout = 30 * time.Second

// canaryDiff returns the function that compares the answers of a pod, nil if the user does
// not want it.
func (p *program) canaryDiff(f *canaryFlags, source cluster.Options) func(context.Context, canary.Pod, string) (canary.Differences, error) {
	if f.compare == "none" {
		return nil
	}
	return func(ctx context.Context, pod canary.Pod, corefile string) (canary.Differences, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o := diff.Options{Directives: p.directives, Cluster: source, Corefile: withoutImports(corefile), Address: net.JoinHostPort(pod.Address, "53")}
		if f.compare == "port-forward" {
			address, wait, err := portForward(ctx, f, pod)
			if err != nil {
				return canary.Differences{}, fmt.Errorf("%w: set --compare direct if pods can be reached from here", err)
			}
			defer wait()
			defer cancel()
			o.Address, o.Transport = address, "tcp" // kubectl forwards no UDP
		}
		report, err := diff.Run(ctx, o)
		if err != nil {
			return canary.Differences{}, err
		}
		if report.Different > 0 {
			if err := writeReport(p.out, report); err != nil {
				return canary.Differences{}, err
			}
		}
		return canary.Differences{Unexplained: report.Different, Summary: fmt.Sprintf("%d names, %d queries: %d same, %d differ, %d differ as documented",
			report.Names, report.Queries, report.Same, report.Different, report.Documented)}, nil
	}
}

// portForward runs kubectl port-forward for port 53 of a pod until ctx ends, and returns
// the local address. wait blocks until kubectl has ended.
func portForward(ctx context.Context, f *canaryFlags, pod canary.Pod) (address string, wait func(), err error) {
	c := exec.CommandContext(ctx, "kubectl", append(f.kubectlFlags(), "--namespace="+pod.Namespace, "port-forward", "--address=127.0.0.1", "pod/"+pod.Name, ":53")...)
	var problems strings.Builder
	c.Stderr = &problems
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return "", nil, fmt.Errorf("running kubectl port-forward: %w", err)
	}
	timer := time.AfterFunc(forwardTimeout, func() { _ = c.Process.Kill() })
	lines := bufio.NewScanner(out)
	listening := regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) -> 53$`)
	for lines.Scan() {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			timer.Stop()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = io.Copy(io.Discard, out) // a line for each connection
				_ = c.Wait()                    // it is killed
			}()
			return found[1], func() { <-ended }, nil
		}
	}
	timer.Stop()
	err = c.Wait()
	return "", nil, fmt.Errorf("running kubectl port-forward: %v: %s", err, strings.TrimSpace(problems.String()))
}

// withoutImports returns a Corefile without its imported files, which are in the cluster.
func withoutImports(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) == 0 || words[0] != "import" {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
