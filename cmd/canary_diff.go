package cmd

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/canary"
	"github.com/seamark/seamark/operate/diff"
)

// canaryDiff compares the answers of a pod with the objects of the cluster.
func (p *program) canaryDiff(
	ctx context.Context, f *canaryFlags, source cluster.Options, pod canary.Pod, corefile string,
) (canary.Differences, error) {
	o := diff.Options{
		Directives: p.directives, Cluster: source, Corefile: readable(corefile),
		Address:  net.JoinHostPort(pod.Address, pod.Port),
		Progress: func(done, total int) { fmt.Fprintf(p.err, "%s: %d of %d queries\n", pod.Name, done, total) },
	}
	if f.compare == "port-forward" {
		port, err := strconv.Atoi(pod.Port)
		if err != nil {
			return canary.Differences{}, fmt.Errorf("the port of %s: %w", pod.Name, err)
		}
		forwarder := apiserver.PortForward(source, cluster.Key{Namespace: pod.Namespace, Name: pod.Name}, port)
		defer forwarder.Close()
		o.Transport, o.Dial = "tcp", forwarder.Dial
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
	return canary.Differences{
		Unexplained: report.Different,
		Summary: fmt.Sprintf("%d names, %d queries: %d same, %d differ, %d differ as documented",
			report.Names, report.Queries, report.Same, report.Different, report.Documented),
	}, nil
}

// readable returns the text of a Corefile of the cluster, without its import lines if it cannot
// be parsed with them: snippets are in the text, and files in the cluster.
func readable(text string) string {
	if err := diff.CheckCorefile("Corefile", text); err != nil {
		return withoutImports(text)
	}
	return text
}

func withoutImports(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) == 0 || words[0] != "import" {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
