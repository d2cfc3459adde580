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

// corednsObjects are the objects that kubeadm creates for CoreDNS.
var corednsObjects = []string{"deployment/coredns", "service/kube-dns", "configmap/coredns", "serviceaccount/coredns",
	"clusterrole/system:coredns", "clusterrolebinding/system:coredns"}

// A freshWay is a documented way to install Seamark in a cluster without DNS.
type freshWay struct {
	name       string
	passages   []passage
	deployment string
	manifests  string // the directory of deploy that the passages apply; "" if helm installs a release
}

func freshWays() []freshWay {
	return []freshWay{
		{"kubectl apply -k deploy/kubernetes/base", []passage{{kubernetesPage, "## Install in a cluster without DNS", ""}},
			"seamark", "kubernetes/base"},
		{"kubectl apply -k deploy/kube-dns/one-container", []passage{{kubeDNSPage, "In a cluster without DNS", ""}},
			"kube-dns", "kube-dns/one-container"},
		{"helm install in mode cluster", []passage{helmValues, {helmPage, "## In a cluster without DNS: mode cluster", ""}},
			"seamark", ""},
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

// installFresh installs Seamark in one way, looks names up in a pod with the cluster's DNS server, and removes it.
func (t *conformance) installFresh(ctx context.Context, way freshWay) error {
	err := steps(
		func() error { return t.follow(ctx, way.passages...) },
		func() error { return t.rollout(ctx, "kube-system", way.deployment) },
		func() error {
			if r := t.lookUp(ctx, podKinds(t.Options, t.dns)[0]); r.Outcome != passed {
				return errors.New(r.Message)
			}
			return nil
		},
	)
	if way.manifests == "" {
		return t.uninstall(ctx, "seamark", err)
	}
	return errors.Join(err, t.remove(ctx, "-k", t.file("documented", "deploy", way.manifests)))
}
