package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/canary"
)

// A distribution is a kind of cluster whose DNS server has a manager of its own.
type distribution struct {
	name, next string
	is         func(c clues) bool
}

// clues identify a distribution.
type clues struct {
	version    string   // of the API server and the kubelets
	labels     []string // keys of nodes' labels
	configMaps map[string]bool
}

func (c clues) label(prefix string) bool {
	return slices.ContainsFunc(c.labels, func(l string) bool { return strings.HasPrefix(l, prefix) })
}

func distributions() []distribution {
	return []distribution{
		{"EKS", "if CoreDNS is a managed add-on, hand it over first:" +
			" aws eks delete-addon --addon-name coredns --preserve; EKS would restore it",
			func(c clues) bool { return strings.Contains(c.version, "-eks-") || c.label("eks.amazonaws.com/") }},
		{"AKS", "do not scale CoreDNS down: the add-on manager restores its replicas;" +
			" configure it by the ConfigMap coredns-custom",
			func(c clues) bool { return c.label("kubernetes.azure.com/") }},
		{"GKE", "GKE restores kube-dns: run the new server beside it and make it the target of stubDomains," +
			" or use a custom kube-dns Deployment",
			func(c clues) bool { return strings.Contains(c.version, "-gke.") || c.label("cloud.google.com/gke-") }},
		{"OpenShift", "the DNS operator restores its objects: oc patch dns.operator/default --type merge" +
			` -p '{"spec":{"managementState":"Unmanaged"}}'`,
			func(c clues) bool { return c.label("node.openshift.io/") }},
		{"k3s", "k3s restores CoreDNS at each start: start it with --disable=coredns;" +
			" put your changes into the ConfigMap coredns-custom",
			func(c clues) bool { return strings.Contains(c.version, "+k3s") }},
		{"RKE2", "RKE2 restores CoreDNS: start it with disable: rke2-coredns, or set values in a HelmChartConfig",
			func(c clues) bool { return strings.Contains(c.version, "+rke2") }},

		{"kubeadm", "scale the Deployment coredns to zero rather than changing its image:" +
			" kubeadm upgrade keeps the replicas, but stops in its preflight checks at another image;" +
			" --skip-phases=addon/coredns (kubeadm 1.32 or later) leaves it as it is",
			func(c clues) bool { return c.configMaps["kubeadm-config"] }},
	}
}

// examineDistribution finds managers that would undo a change of the server.
func (d *examination) examineDistribution() {
	const subject = "managed add-on"
	c := clues{version: d.Kubernetes, configMaps: map[string]bool{}}
	var nodes nodeList
	if d.get(subject, "/api/v1/nodes?limit=20", &nodes) {
		for _, n := range nodes.Items {
			c.version += " " + n.Status.NodeInfo.KubeletVersion
			c.labels = append(c.labels, slices.Collect(maps.Keys(n.Metadata.Labels))...)
		}
	}

	c.configMaps["kubeadm-config"] = d.get(subject,
		"/api/v1/namespaces/kube-system/configmaps/kubeadm-config", new(configMap))
	for _, k := range distributions() {
		if k.is(c) {
			d.add(subject, Warning, k.next, "%s manages the DNS server of this cluster", k.name)
			return
		}
	}
	if d.refused[subject] {
		return
	}
	managed := false
	for _, w := range d.servers.Items {
		for _, warning := range canary.Restores(w.Metadata.Labels, w.Metadata.Annotations) {
			text, next, _ := strings.Cut(warning, ": ")
			d.add(subject, Warning, next, "Deployment %s: %s", w.Metadata.Name, text)
			managed = true
		}
	}
	if !managed {
		d.add(subject, Info, "", "no known manager of the DNS server")
	}
}

// podPage is the number of pods of one list.
const podPage = 500

// examineWorkloads counts the settings of DNS in pods.
func (d *examination) examineWorkloads() {
	const subject = "workloads"
	pods, custom := 0, 0
	ndots, policies, searches := map[string]int{}, map[string]int{}, map[int]int{}
	next := ""
	for {
		var list podList
		if !d.get(subject, fmt.Sprintf("/api/v1/pods?limit=%d&continue=%s", podPage, url.QueryEscape(next)), &list) {
			break
		}

		for _, p := range list.Items {
			pods++
			policy := cmp.Or(p.Spec.DNSPolicy, "ClusterFirst")
			policies[policy]++

			value := "5 (default)"
			if policy == "ClusterFirst" && p.Spec.HostNetwork {
				policy = "Default" // to the kubelet
			}
			if policy == "Default" || policy == "None" {
				value = "of the node or of the pod"
			}

			if c := p.Spec.DNSConfig; c != nil {
				custom++
				searches[len(c.Searches)]++
				for _, o := range c.Options {
					if o.Name == "ndots" {
						value = o.Value
					}
				}
			}

			if _, known := ndots[value]; !known && len(ndots) > 20 {
				value = "other"
			}
			ndots[value]++
		}
		if next = list.Metadata.Continue; next == "" {
			break
		}
	}

	if pods == 0 {
		return
	}
	d.add(subject, Info, "", "%d pods: dnsPolicy %s; dnsConfig in %d", pods, counts(policies), custom)

	step := ""
	if n := ndots["5 (default)"]; n > pods/2 {
		step = "a lookup of a name outside the cluster sends six queries more:" +
			" set ndots to 2 in dnsConfig, or use the directive autopath"
	}
	d.add(subject, Info, step, "ndots %s", counts(ndots))

	for _, n := range slices.Sorted(maps.Keys(searches)) {
		if n > 3 {
			d.add(subject, Warning,
				"shorten dnsConfig.searches: each domain costs two queries for a name that does not exist",
				"%d pods have %d search domains of their own", searches[n], n)
		}
	}
}

// counts returns "5 in 10, 2 in 3" with the largest number first.
func counts(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(m[b]-m[a], strings.Compare(a, b))
	})
	for i, k := range keys {
		keys[i] = k + " in " + strconv.Itoa(m[k])
	}
	return strings.Join(keys, ", ")
}

// A need is a permission that a command or the server needs.
type need struct {
	apiserver.Permission
	purpose, level string
}

func needs() []need {
	var list []need
	for _, p := range apiserver.Watched() {
		list = append(list, need{p, "seamark diff and the server", Error})
	}
	const records = "the directive records, for objects with records"
	for _, verb := range []string{"list", "watch"} {
		list = append(list,
			need{apiserver.Permission{Verb: verb, Resource: "pods"}, "the option pods verified", Info},
			need{apiserver.Permission{Verb: verb, Resource: "configmaps"}, records, Info},
			need{apiserver.Permission{Verb: verb, Group: "externaldns.k8s.io", Resource: "dnsendpoints"}, records, Info})
	}
	return append(list,
		need{apiserver.Permission{Verb: "create", Resource: "events"}, records, Info},
		need{apiserver.Permission{Verb: "get", Resource: "configmaps", Namespace: "kube-system"},
			"seamark check --from-cluster", Warning},
		need{apiserver.Permission{
			Verb: "create", Resource: "pods", Subresource: "portforward", Namespace: "kube-system",
		}, "seamark diff --transport port-forward", Warning})
}

// examinePermissions finds the permissions that the account lacks.
func (d *examination) examinePermissions() {
	const subject = "permissions"
	missing := 0
	for _, n := range needs() {
		allowed, err := d.api.Allowed(d.ctx, "", n.Permission)
		if err != nil {
			d.add(subject, Info, "kubectl auth can-i --list", "not examined: %v", err)
			return
		}
		if !allowed {
			missing++
			_, resource, _ := strings.Cut(n.String(), " ")
			next := fmt.Sprintf("kubectl create clusterrole seamark-%s-%s --verb=%s --resource=%s,"+
				" and bind it to the account", n.Verb, n.Resource, n.Verb, resource)
			d.add(subject, n.level, next, "the account may not %v, which %s needs", n.Permission, n.purpose)
		}
	}
	if missing == 0 {
		d.add(subject, Info, "", "the account has all permissions that Seamark's commands and the server need")
	}
}
