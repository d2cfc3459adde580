//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// dnsService6 is the address of a Service of IPv6 of the DNS pods, which kubeadm does not make.
const dnsService6 = "fd00:96::53"

// A podKind is a kind of pods that does not resolve names as most pods do.
type podKind struct {
	ID, name string
	Spec     string // lines of the pod's spec
	IPv6Only bool
	lookups  map[string]string // address of each name
}

// podKinds returns the kinds of pods that a cluster can have, whose DNS server is dns. Each looks names up by
// glibc and musl.
func podKinds(o options, dns string) []podKind {
	none := func(server string) string {
		return `dnsPolicy: None
      dnsConfig: {nameservers: ["` + server + `"], searches: [svc.cluster.local], options: [{name: ndots, value: "2"}]}`
	}
	kinds := []podKind{
		{ID: "none", name: "dnsPolicy None", Spec: none(dns),
			lookups: map[string]string{"kubernetes.default": "10.96.0.1", "example.com": website}},
		{ID: "host-network", name: "hostNetwork, dnsPolicy ClusterFirstWithHostNet",
			Spec:    "hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet",
			lookups: map[string]string{"kubernetes.default": "10.96.0.1", "example.com": website}},
	}
	if o.DualStack {
		kinds = append(kinds, podKind{ID: "ipv6", name: "an IPv6 address only", Spec: none(dnsService6), IPv6Only: true,
			lookups: map[string]string{
				"kube-dns-ipv6.kube-system": dnsService6, "kubernetes.default": "10.96.0.1", "example.com": "2001:db8::1",
			}})
	}
	return kinds
}

// runPods starts a pod of each kind and looks names up in it.
func (t *conformance) runPods(ctx context.Context, s server, of suite) error {
	defer t.remove(ctx, "-f", t.file("pods.yaml"))
	if err := t.startPods(ctx); err != nil {
		return err
	}

	for _, kind := range podKinds(t.Options, t.dns) {
		r := t.lookUp(ctx, kind)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.add(s, of, r)
	}
	return nil
}

// podsImage is that of clients, with the programs that change addresses and rules.
const podsImage = "seamark.local/pods:1"

func (t *conformance) importPods(ctx context.Context) error {
	entries, err := glibcFiles(ctx, append([]string{"ip"}, clientPrograms...))
	if err != nil {
		return err
	}
	return t.importImage(ctx, []string{podsImage}, entries, "/bin/sleep", "infinity")
}

// startPods starts the pods.
func (t *conformance) startPods(ctx context.Context) error {
	if err := t.importPods(ctx); err != nil {
		return err
	}
	kinds := podKinds(t.Options, t.dns)
	err := t.apply(ctx, "pods.yaml", map[string]any{
		"DualStack": t.Options.DualStack, "DNS6": dnsService6, "Kinds": kinds, "Image": podsImage, "Musl": muslImage,
	})
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		err = errors.Join(err, t.rollout(ctx, "pods", kind.ID))
	}
	return err
}

// lookUp looks the names of a kind up in its pod, until each has its address.
func (t *conformance) lookUp(ctx context.Context, kind podKind) result {
	r := result{Name: "pod with " + kind.name, Outcome: failed, Start: time.Now()}
	for name, address := range kind.lookups {
		for _, command := range [][]string{{"glibc", "--", "getent", "ahosts", name}, {"musl", "--", "/resolve", name}} {
			var out []byte
			for deadline := time.Now().Add(30 * time.Second); ; {
				var err error
				out, err = t.kubectl(ctx, append([]string{"-n", "pods", "exec", "deploy/" + kind.ID, "-c"}, command...)...)
				if err == nil && strings.Contains(string(out), address) {
					break
				}
				if time.Now().After(deadline) || pause(ctx, time.Second) != nil {
					r.Message = fmt.Sprintf("%s: got %q (%v), want %s", strings.Join(command, " "), out, err, address)
					return r
				}
			}
		}
	}
	r.Outcome, r.Seconds = passed, time.Since(r.Start).Seconds()
	return r
}
