//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// etcdImage is the image of the pod of SkyDNS.
const etcdImage = "seamark.local/etcd:cluster"

// generationSuite returns the suite of tests with the manifests of an earlier generation of cluster
// DNS, of which Seamark is every container.
func generationSuite(name, skip string, manifests ...string) suite {
	return suite{
		name: name, usual: "3 minutes", run: (*conformance).runGeneration, server: "seamark",
		focus: `\[sig-network\] DNS `, skip: skip, manifests: manifests, extra: true,
	}
}

// threeContainers returns the suite of kube-dns's three containers, which a canary replaces, and which become one,
// under load.
func threeContainers() suite {
	s := generationSuite("kube-dns-three", `DNS configMap`, "kube-dns/three-container")
	s.operations = func() []operation {
		const old = " --deployment kube-dns" // the Service selects the pods of CoreDNS's Deployment as well, which has none
		return []operation{
			{name: "seamark canary from kube-dns's manifests: start, three times promote, rollback",
				do: func(t *conformance, ctx context.Context) error { return t.canaries(ctx, old) }},
			{name: "the same, each step interrupted and begun again",
				do: func(t *conformance, ctx context.Context) error { return t.interruptCanaries(ctx, old) }},
			{name: "one container patched after the other, the three to one, and rollout undo", do: (*conformance).changeContainers},
		}
	}
	return s
}

// kubeDNSPage has the ways from kube-dns.
const kubeDNSPage = "deploy/kube-dns/README.md"

var containerPassages = []passage{
	{kubeDNSPage, "## 2. Replace one container at a time", ""},
	{kubeDNSPage, "## 3. Replace the three containers by one", "In a cluster without DNS"},
}

// changeContainers replaces one container at a time, and then the three by one.
func (t *conformance) changeContainers(ctx context.Context) error {
	return steps(
		func() error { return t.follow(ctx, containerPassages...) },
		func() error { return t.rollout(ctx, "kube-system", "kube-dns") },
	)
}

// runGeneration installs the manifests beside CoreDNS, scales that to zero, runs the tests, and
// returns to CoreDNS.
func (t *conformance) runGeneration(ctx context.Context, s server, of suite) error {
	if err := t.importEtcd(ctx); err != nil {
		return err
	}
	file := t.file(of.name + ".yaml")
	if err := t.writeGeneration(ctx, of, file); err != nil {
		return err
	}

	defer t.remove(ctx, "-f", file)
	defer t.restore(ctx, func(ctx context.Context) error { return t.scale(ctx, "coredns", "2") })
	return steps(
		func() error { return t.do(ctx, "apply", "-f", file) },
		func() error { return t.rollout(ctx, "kube-system", "kube-dns") },
		func() error { return t.scale(ctx, "coredns", "0") },
		func() error { return t.awaitNoCoreDNS(ctx) },
		func() error { return t.runE2E(ctx, s, of) },
		func() error {
			if of.operations == nil {
				return nil
			}
			return t.runOperations(ctx, s, of)
		},
	)
}

// awaitNoCoreDNS waits until the pods of CoreDNS have ended: the tests change the ConfigMap of the first
// pod that they find.
func (t *conformance) awaitNoCoreDNS(ctx context.Context) error {
	return t.await(ctx, "kubelet", func() error {
		names, err := t.dnsPods(ctx, "metadata.name")
		if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "coredns-") }); i >= 0 {
			return fmt.Errorf("the pod %s has not ended", names[i])
		}
		return err
	})
}

// writeGeneration writes the objects of a suite's manifests, with the images of the cluster and without
// the Service, which the cluster has, and the ConfigMap, which the tests make.
func (t *conformance) writeGeneration(ctx context.Context, of suite, file string) error {
	dir := t.file(of.name)
	seamark, tag, _ := strings.Cut(seamarkImage, ":")
	etcd, etcdTag, _ := strings.Cut(etcdImage, ":")
	var paths []string
	for _, name := range of.manifests {
		path, err := filepath.Rel(dir, filepath.Join(t.Options.Source, "deploy", name))
		if err != nil {
			return err
		}
		paths = append(paths, path)
	}
	err := writeTemplate("generation.yaml", filepath.Join(dir, "kustomization.yaml"), map[string]any{
		"Base": paths[0], "Components": paths[1:], "Seamark": seamark, "Tag": tag, "Etcd": etcd, "EtcdTag": etcdTag,
	})
	if err != nil {
		return err
	}

	text, err := t.kubectl(ctx, "kustomize", dir)
	if err != nil {
		return err
	}
	objects := slices.DeleteFunc(strings.Split(string(text), "\n---\n"), func(object string) bool {
		return strings.Contains("\n"+object, "\nkind: Service\n") || strings.Contains("\n"+object, "\nkind: ConfigMap\n")
	})
	joined := strings.Join(objects, "\n---\n")
	if of.operations != nil { // which replace kube-dns
		if joined, err = t.standIn(ctx, joined); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(joined), 0o644)
}

// replaced matches a container in the manifests of three containers, up to its image.
var replaced = regexp.MustCompile(`(?m)^ +command:\n +- /seamark\n +- (\S+)\n((?: .*\n)*?)( +image: )` + regexp.QuoteMeta(seamarkImage) + `$`)

// standIn returns the manifests of three containers with images that have the program as entry point, as kube-dns's do,
// which cannot be had as a module: they have Seamark under the names of kube-dns's programs.
func (t *conformance) standIn(ctx context.Context, manifests string) (string, error) {
	data, err := os.ReadFile(t.file("bin", "seamark"))
	if err != nil {
		return "", err
	}
	containers := replaced.FindAllStringSubmatch(manifests, -1)
	if len(containers) != 3 {
		return "", fmt.Errorf("got %d containers, want those of kube-dns, dnsmasq and the sidecar", len(containers))
	}
	for _, container := range containers {
		name := container[1]
		err := t.importImage(ctx, []string{"seamark.local/k8s-dns-" + name + ":cluster"}, []entry{{name, data, 0o755}}, "/"+name)
		if err != nil {
			return "", err
		}
	}
	return replaced.ReplaceAllString(manifests, "${2}${3}seamark.local/k8s-dns-$1:cluster"), nil
}

// importEtcd makes an image of the cluster's etcd.
func (t *conformance) importEtcd(ctx context.Context) error {
	data, err := os.ReadFile(filepath.Join(t.dir, "programs", "etcd-"+etcdVersion, "etcd"))
	if err != nil {
		return err
	}
	entries := []entry{{"usr/local/bin/etcd", data, 0o755}, {"tmp/empty", nil, 0o644}}
	return t.importImage(ctx, []string{etcdImage}, entries, "/usr/local/bin/etcd")
}
