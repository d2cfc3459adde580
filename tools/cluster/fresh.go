//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// corednsObjects are those of CoreDNS, as kubeadm makes them.
var corednsObjects = []string{"deployment/coredns", "service/kube-dns", "configmap/coredns", "serviceaccount/coredns",
	"clusterrole/system:coredns", "clusterrolebinding/system:coredns"}

// A freshWay is a documented way to install Seamark in a cluster without DNS.
type freshWay struct {
	name     string
	manifest string // directory of deploy that is applied with kubectl, or
	helm     string // the arguments of helm
}

func freshWays() []freshWay {
	return []freshWay{
		{name: "kubectl apply -k deploy/kubernetes/base", manifest: "kubernetes/base"},
		{name: "kubectl apply -k deploy/kube-dns/one-container", manifest: "kube-dns/one-container"},
		{name: "kubectl apply -k deploy/kube-dns/three-container", manifest: "kube-dns/three-container"},
		{name: "helm install in mode cluster", helm: "--set service.name=kube-dns --set service.clusterIP=10.96.0.10" +
			" --set k8sAppLabelOverride=kube-dns --set clusterDomain=cluster.local"},
		{name: "helm install in mode kube-dns", helm: "--set mode=kube-dns --set service.name=kube-dns" +
			" --set service.clusterIP=10.96.0.10 --set k8sAppLabelOverride=kube-dns"},
	}
}

// runFresh removes the objects of CoreDNS, installs Seamark in each documented way, looks names up in a pod, and
// removes it. Afterwards it restores the objects.
func (t *conformance) runFresh(ctx context.Context, s server, of suite) error {
	defer t.remove(ctx, "-f", t.file("pods.yaml"))
	if err := t.startPods(ctx); err != nil {
		return err
	}
	saved, err := t.saveCoreDNS(ctx)
	if err != nil {
		return err
	}

	err = t.removeCoreDNS(ctx)
	if err == nil {
		var checks []commandCheck
		for _, way := range freshWays() {
			checks = append(checks, commandCheck{way.name, func(ctx context.Context) error { return t.installFresh(ctx, way) }})
		}
		err = t.checkCommands(ctx, s, of, checks)
	}
	return errors.Join(err, t.restore(ctx, func(ctx context.Context) error {
		if err := t.removeCoreDNS(ctx); err != nil { // what is left of it, if it was not removed
			return err
		}
		return errors.Join(t.do(ctx, "create", "-f", saved), t.rollout(ctx, "kube-system", "coredns"))
	}))
}

func (t *conformance) removeCoreDNS(ctx context.Context) error {
	return t.do(ctx, append([]string{"-n", "kube-system", "delete", "--ignore-not-found"}, corednsObjects...)...)
}

// saveCoreDNS writes the objects of CoreDNS to a file, without what the API server has added.
func (t *conformance) saveCoreDNS(ctx context.Context) (file string, err error) {
	text, err := t.kubectl(ctx, append([]string{"-n", "kube-system", "get", "-o", "json"}, corednsObjects...)...)
	if err != nil {
		return "", err
	}
	var list map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&list); err != nil {
		return "", err
	}

	items, _ := list["items"].([]any)
	for _, item := range items {
		o, _ := item.(map[string]any)
		delete(o, "status")
		metadata, _ := o["metadata"].(map[string]any)
		for _, key := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"} {
			delete(metadata, key)
		}
	}
	if len(items) != len(corednsObjects) {
		return "", fmt.Errorf("got %d objects of CoreDNS, want %s", len(items), strings.Join(corednsObjects, ", "))
	}

	text, err = json.Marshal(list)
	file = t.file("coredns-objects.json")
	return file, errors.Join(err, os.WriteFile(file, text, 0o600))
}

// installFresh installs Seamark in one way, looks the names up, and removes it.
func (t *conformance) installFresh(ctx context.Context, way freshWay) error {
	if way.manifest == "" {
		return t.uninstall(ctx, "seamark", steps(
			func() error { return t.helm(ctx, "install seamark "+way.helm) },
			func() error { return t.lookUpFresh(ctx) },
		))
	}

	dir := t.file("fresh", way.manifest)
	if err := t.writeKustomization(dir, suite{manifests: []string{way.manifest}}); err != nil {
		return err
	}
	deployment := "seamark"
	if strings.HasPrefix(way.manifest, "kube-dns/") {
		deployment = "kube-dns"
	}
	err := steps(
		func() error { return t.do(ctx, "apply", "-k", dir) },
		func() error { return t.rollout(ctx, "kube-system", deployment) },
		func() error { return t.lookUpFresh(ctx) },
	)
	return errors.Join(err, t.remove(ctx, "-k", dir))
}

// lookUpFresh looks names up in a pod with the cluster's DNS server.
func (t *conformance) lookUpFresh(ctx context.Context) error {
	if r := t.lookUp(ctx, podKinds(t.Options, t.dns)[0]); r.Outcome != passed {
		return errors.New(r.Message)
	}
	return nil
}
