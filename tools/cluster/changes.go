//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// changes are the documented ways from CoreDNS to Seamark and back. Each begins and ends with
// CoreDNS.
func changes() []operation {
	return fromCoreDNS([]operation{
		{name: "kubectl set image to Seamark, rollout undo to CoreDNS", do: (*conformance).changeImage},
		{name: "kustomize base beside CoreDNS, CoreDNS scaled to zero, and back", do: (*conformance).changeBase},
		{name: "kustomize overlay canary, and back",
			do: func(t *conformance, ctx context.Context) error { return t.follow(ctx, overlayPassage) }},
		{name: "seamark canary start, three times promote, rollback",
			do: func(t *conformance, ctx context.Context) error { return t.canaries(ctx, "") }},
		{name: "seamark canary, each step interrupted and begun again",
			do: func(t *conformance, ctx context.Context) error { return t.interruptCanaries(ctx, "") }},
	})
}

// fromCoreDNS returns operations that return to CoreDNS first.
func fromCoreDNS(all []operation) []operation {
	for i, rest := range all {
		all[i].do = func(t *conformance, ctx context.Context) error {
			if err := t.control(ctx); err != nil {
				return err
			}
			return rest.do(t, ctx)
		}
	}
	return all
}

// control returns to CoreDNS.
func (t *conformance) control(ctx context.Context) error { return t.install(ctx, servers()[0]) }

// kubernetesPage has the ways that need no program but kubectl.
const kubernetesPage = "deploy/kubernetes/README.md"

var (
	imagePassage   = passage{kubernetesPage, "## Replace CoreDNS: change only the image", ""}
	basePassage    = passage{kubernetesPage, "## Share the queries with CoreDNS", ""}
	overlayPassage = passage{kubernetesPage, "## Run beside CoreDNS, without queries", ""}
)

func (t *conformance) changeImage(ctx context.Context) error {
	return steps(
		func() error { return t.follow(ctx, imagePassage) },
		func() error { return t.rollout(ctx, "kube-system", "coredns") },
	)
}

func (t *conformance) changeBase(ctx context.Context) error {
	base := func(name string) string { return t.file("documented", "deploy", "kubernetes", "base", name) }
	defer t.remove(ctx, "-f", base("rbac.yaml"))
	defer t.remove(ctx, "-f", base("deployment.yaml"))
	defer t.restore(ctx, func(ctx context.Context) error { return t.scale(ctx, "coredns", "2") })
	return steps(
		func() error { return t.follow(ctx, basePassage) },
		func() error { return t.rollout(ctx, "kube-system", "coredns") },
		func() error { return pause(ctx, loadTimeout) },
		func() error { return t.scale(ctx, "coredns", "2") },
	)
}

func (t *conformance) scale(ctx context.Context, deployment, replicas string) error {
	return t.change(ctx, deployment, "scale deployment/"+deployment+" --replicas "+replicas)
}

// canarySteps returns the commands of docs/how-to/canary.md that change the cluster, with further flags.
func (t *conformance) canarySteps(flags string) (steps []string, err error) {
	page, err := os.ReadFile(filepath.Join(t.Options.Source, "docs", "how-to", "canary.md"))
	for line := range strings.Lines(string(page)) {
		if step, ok := strings.CutPrefix(line, "$ seamark canary "); ok && !strings.HasPrefix(step, "status") {
			steps = append(steps, placeholders().Replace(strings.TrimSpace(step))+flags)
		}
	}
	if len(steps) < 5 && err == nil {
		err = fmt.Errorf("canary.md has the commands %q, want start, three times promote, and rollback", steps)
	}
	return steps, err
}

// canaries runs the commands of a canary, with further flags and without the page's days of waiting.
func (t *conformance) canaries(ctx context.Context, flags string) error {
	all, err := t.canarySteps(flags)
	for _, step := range all {
		if err == nil {
			_, err = t.canary(ctx, step)
		}
	}
	return err
}

// canary runs a command of seamark canary.
func (t *conformance) canary(ctx context.Context, args string) ([]byte, error) {
	return t.seamark(ctx, append([]string{"canary"}, strings.Fields(args)...)...)
}

// interruptCanaries interrupts each step of a canary as ctrl-C does, and continues it with the same
// command, as docs/how-to/canary.md promises.
func (t *conformance) interruptCanaries(ctx context.Context, flags string) error {
	all, err := t.canarySteps(flags)
	if err != nil {
		return err
	}

	least := map[string]int{"start": 2, "promote": 1, "rollback": 2} // of the first one: later ones may find nothing to do
	for _, step := range all {
		verb := firstWord(step)
		interruptions := least[verb]
		delete(least, verb)
		if verb == "rollback" && interruptions > 0 {
			status, err := t.canary(ctx, "status"+flags)
			if err == nil && !strings.Contains(string(status), "Stage 4") {
				err = fmt.Errorf("want stage 4, got\n%s", status)
			}
			if err != nil {
				return err
			}
		}

		if err := t.continueCanary(ctx, step, interruptions); err != nil {
			return err
		}
	}
	return nil
}

// continueCanary interrupts a command after 0.3 s, and its continuations after twice as long each, until one ends. At
// least so many must have been interrupted.
func (t *conformance) continueCanary(ctx context.Context, step string, least int) error {
	for n, after := 0, 300*time.Millisecond; ; n, after = n+1, 2*after {
		short, cancel := context.WithTimeout(ctx, after)
		_, err := t.canary(short, step)
		interrupted := err != nil && short.Err() != nil
		cancel()

		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case interrupted:
		case err == nil && n < least:
			return fmt.Errorf("canary %s ended after %d interruptions, want %d", step, n, least)
		default:
			return err
		}
	}
}
