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

// helmModule has the program helm.
var helmModule = module{"helm", "helm.sh/helm/v4", "4.3.1", "",
	[]program{{"helm", "helm.sh/helm/v4/cmd/helm", "3 minutes"}}}

// helmChanges are the ways of docs/how-to/helm.md, in a cluster that has CoreDNS. Each removes what it
// has installed.
func helmChanges() []operation {
	return fromCoreDNS([]operation{
		{name: "helm install in mode canary, test, upgrade, rollback, uninstall", do: (*conformance).helmCanary},
		{name: "helm install in mode cluster beside CoreDNS, CoreDNS scaled to zero, and back", do: helmBeside("cluster")},
		{name: "helm install in mode kube-dns beside CoreDNS, CoreDNS scaled to zero, and back", do: helmBeside("kube-dns")},
		{name: "helm install in mode node, uninstall", do: (*conformance).helmNode},
	})
}

// helm runs helm in the namespace of the DNS servers.
func (t *conformance) helm(ctx context.Context, args string) error {
	repository, tag, _ := strings.Cut(seamarkImage, ":")
	fields := strings.Fields(args)
	if verb := fields[0]; verb == "install" || verb == "upgrade" {
		fields = append(fields, filepath.Join(t.Options.Source, "deploy", "helm", "seamark"),
			"--set", "image.repository="+repository, "--set", "image.tag="+tag, "--wait", "--timeout", t.Options.Patience.String())
	}
	cmd := exec.CommandContext(ctx, t.program(helmModule, "helm"), append(fields, "--namespace", "kube-system")...)
	cmd.Env = t.userEnvironment()
	_, err := output(cmd)
	return err
}

// userEnvironment returns the environment of a user's programs.
func (t *conformance) userEnvironment() []string {
	return append(os.Environ(), "KUBECONFIG="+t.file("kubeconfig"), "HELM_CACHE_HOME="+t.file("helm"),
		"HELM_CONFIG_HOME="+t.file("helm"), "HELM_DATA_HOME="+t.file("helm"))
}

// steps does what the functions do, until one fails.
func steps(all ...func() error) error {
	for _, step := range all {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// uninstall removes a release, also after an error and a signal.
func (t *conformance) uninstall(ctx context.Context, release string, err error) error {
	return errors.Join(err, t.restore(ctx, func(ctx context.Context) error {
		return t.helm(ctx, "uninstall "+release+" --wait --ignore-not-found")
	}))
}

// helmPage has the ways with helm, and helmValues its values of the image.
const helmPage = "docs/how-to/helm.md"

var (
	helmValues        = passage{helmPage, "# Install with Helm", ""}
	helmCanaryPassage = passage{helmPage, "## Beside the running DNS: mode canary", ""}
	helmNodePassage   = passage{helmPage, "## A cache on every node: mode node", ""}
)

func (t *conformance) helmCanary(ctx context.Context) error {
	return t.uninstall(ctx, "seamark", steps(
		func() error { return t.follow(ctx, helmValues, helmCanaryPassage) },
		func() error { return t.helm(ctx, "install seamark --set mode=canary") },
		func() error { return t.helm(ctx, "upgrade seamark --set mode=canary --set replicaCount=3") },
		func() error { return t.helm(ctx, "rollback seamark 1 --wait") },
	))
}

// helmBeside returns an operation that installs the chart so that the Service kube-dns selects its pods
// as well.
func helmBeside(mode string) func(*conformance, context.Context) error {
	return func(t *conformance, ctx context.Context) error {
		err := steps(
			func() error {
				return t.helm(ctx, "install seamark --set k8sAppLabelOverride=kube-dns --set mode="+mode)
			},
			func() error { return t.scale(ctx, "coredns", "0") },
			func() error { return pause(ctx, loadTimeout) },
		)
		scaled := t.restore(ctx, func(ctx context.Context) error { return t.scale(ctx, "coredns", "2") })
		return t.uninstall(ctx, "seamark", errors.Join(err, scaled))
	}
}

func (t *conformance) helmNode(ctx context.Context) error {
	return t.uninstall(ctx, "node-dns", steps(
		func() error { return t.follow(ctx, helmValues, helmNodePassage) },
		func() error { return pause(ctx, loadTimeout) },
	))
}
