//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// changes are the documented ways from CoreDNS to Seamark and back. Each begins and ends with
// CoreDNS.
func changes() []operation {
	return []operation{
		{name: "kubectl set image to Seamark, rollout undo to CoreDNS", do: (*conformance).changeImage},
		{name: "kustomize base beside CoreDNS, CoreDNS scaled to zero, and back", do: (*conformance).changeBase},
		{name: "seamark canary start, three times promote, rollback", do: (*conformance).changeCanary},
	}
}

// control returns to CoreDNS.
func (t *conformance) control(ctx context.Context) error { return t.install(ctx, servers()[0]) }

func (t *conformance) changeImage(ctx context.Context) error {
	if err := errors.Join(t.control(ctx), t.install(ctx, servers()[1])); err != nil {
		return err
	}
	_, err := t.kubectl(ctx, "-n", "kube-system", "rollout", "undo", "deployment/coredns")
	return errors.Join(err, t.rollout(ctx, "kube-system", "coredns"))
}

// changeBase follows "Share the queries with CoreDNS" of deploy/kubernetes/README.md.
func (t *conformance) changeBase(ctx context.Context) error {
	if err := t.control(ctx); err != nil {
		return err
	}
	base := func(name string) string { return filepath.Join(t.Options.Source, "deploy", "kubernetes", "base", name) }
	for _, step := range []func() error{
		func() error {
			_, err := t.kubectl(ctx, "apply", "-f", base("rbac.yaml"), "-f", base("deployment.yaml"))
			return err
		},
		func() error {
			_, err := t.kubectl(ctx, "-n", "kube-system", "set", "image", "deployment/seamark", "coredns="+seamarkImage)
			return err
		},
		func() error { return t.rollout(ctx, "kube-system", "seamark") },
		func() error { return t.scale(ctx, "coredns", "0") },
		func() error { return t.scale(ctx, "coredns", "2") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	_, err := t.kubectl(ctx, "delete", "-f", base("deployment.yaml"), "-f", base("rbac.yaml"))
	return err
}

func (t *conformance) scale(ctx context.Context, deployment, replicas string) error {
	_, err := t.kubectl(ctx, "-n", "kube-system", "scale", "deployment/"+deployment, "--replicas", replicas)
	return errors.Join(err, t.rollout(ctx, "kube-system", deployment))
}

// changeCanary follows docs/how-to/canary.md, without its days of waiting.
func (t *conformance) changeCanary(ctx context.Context) error {
	if err := t.control(ctx); err != nil {
		return err
	}
	for _, command := range []string{"start --image " + seamarkImage, "promote", "promote", "promote", "rollback --delete"} {
		cmd := exec.CommandContext(ctx, t.file("bin", "seamark"), append([]string{"canary"}, strings.Fields(command)...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+t.file("kubeconfig"))
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	return nil
}
