package doctor

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/seamark/seamark/operate/canary"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/sys/health"
)

const subjectServer = "DNS server"

// examineServer finds the server behind the Service, its version and its replicas.
func (d *examination) examineServer() {
	s := d.dnsService()
	if s == nil {
		return
	}
	selector := canary.Selector(s.Spec.Selector)
	pods := d.pods(subjectServer, s.Metadata.Namespace, selector)
	if d.refused[subjectServer] {
		return
	}

	d.examineReadiness(s, pods, selector)
	d.examineImages(pods)
	if !slices.Contains(s.Spec.Ports, port{"TCP", 53}) {
		d.add(subjectServer, Warning, "add port 53/TCP to the Service",
			"the Service has no port 53/TCP, which large answers need")
	}

	d.get(subjectServer, deployments(s.Metadata.Namespace, selector), &d.servers)
	var beside, labelled workloads
	d.get(subjectServer, deployments("kube-system", servers.Selector), &beside)
	if d.Server != "seamark" && len(beside.Items) > 0 {
		d.add(subjectServer, Info, "seamark canary status", "Seamark runs beside it: the Deployment %s",
			beside.Items[0].Metadata.Name)
	}
	d.get(subjectServer, deployments("kube-system", "k8s-app=kube-dns"), &labelled)
	if n := len(labelled.Items); n > 1 {
		d.add(subjectServer, Error,
			"remove the label k8s-app=kube-dns from all Deployments but one: pods keep it in their template",
			"%d Deployments have the label k8s-app=kube-dns:"+
				" kubeadm upgrade fails with \"multiple DNS addon deployments found\"", n)
	}
}

// deployments returns the path of the first Deployments of a namespace with labels.
func deployments(namespace, selector string) string {
	return "/apis/apps/v1/namespaces/" + url.PathEscape(namespace) +
		"/deployments?limit=10&labelSelector=" + url.QueryEscape(selector)
}

// dnsService returns the Service of the DNS server, nil if there is none with a selector.
func (d *examination) dnsService() *service {
	s, found := new(service), false
	for _, path := range []string{
		"kube-system/services/kube-dns", "openshift-dns/services/dns-default",
		"kube-system/services/rke2-coredns-rke2-coredns",
	} {
		found = d.get(subjectServer, "/api/v1/namespaces/"+path, s)
		if found || d.refused[subjectServer] {
			break
		}
	}
	switch {
	case d.refused[subjectServer]:
	case !found:
		d.add(subjectServer, Warning,
			"compare the nameserver in a pod's /etc/resolv.conf with the addresses of the Services",
			"no Service kube-dns in kube-system: the DNS server may run outside the cluster, as Cloud DNS of GKE does")
	case len(s.Spec.Selector) == 0:
		d.add(subjectServer, Warning, "find the endpoints with kubectl get endpointslices",
			"the Service %s/%s has no selector", s.Metadata.Namespace, s.Metadata.Name)
	default:
		return s
	}
	return nil
}

// examineReadiness examines whether pods are behind the Service, and who owns them.
func (d *examination) examineReadiness(s *service, pods []pod, selector string) {
	ready, owners := 0, map[string]bool{}
	for _, p := range pods {
		if p.Status.Conditions.Ready() {
			ready++
		}
		for _, o := range p.Metadata.OwnerReferences {
			owners[o.Kind] = true
		}
	}
	kinds := ""
	if len(owners) > 0 {
		kinds = " (" + strings.Join(slices.Sorted(maps.Keys(owners)), ", ") + ")"
	}
	d.add(subjectServer, Info, "compare its answers: seamark diff --against "+s.Spec.ClusterIP+
		", or with --transport port-forward from outside the cluster",
		"the Service %s/%s has the address %s and %d pods, %d of them ready%s",
		s.Metadata.Namespace, s.Metadata.Name, s.Spec.ClusterIP, len(pods), ready, kinds)

	kubectl := "kubectl -n " + s.Metadata.Namespace
	switch {
	case len(pods) == 0:
		d.add(subjectServer, Error, kubectl+" get pods -l "+selector, "no pod is behind the Service")
	case ready == 0:
		d.add(subjectServer, Error, kubectl+" describe pods -l "+selector, "no pod is ready")
	case ready < 2:
		d.add(subjectServer, Warning, "run two replicas before you replace the server",
			"a single pod is ready: a restart interrupts DNS")
	}
}

// examineImages finds the program and its version.
func (d *examination) examineImages(pods []pod) {
	images := map[string]bool{}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			if name, version := serverOf(c.Image); name != "" {
				images[c.Image] = true
				d.Server, d.Version = name, version
			}
		}
	}

	names := strings.Join(slices.Sorted(maps.Keys(images)), ", ")
	switch {
	case len(images) > 1:
		d.add(subjectServer, Warning, "wait until the rollout is complete, or look for a second Deployment",
			"the pods have several images: %s", names)
	case d.Server == "" && len(pods) > 0:
		d.add(subjectServer, Warning, "", "the image is not one of CoreDNS, kube-dns or Seamark: %s", pods[0].images())
	case d.Server != "":
		next := ""
		if d.Server == "kube-dns" {
			next = "convert its configuration: seamark convert"
		}
		d.add(subjectServer, Info, next, "it is %s, version %s (%s)", d.Server, cmp.Or(d.Version, "not known"), names)
	}
}

func (p pod) images() string {
	var names []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Image)
	}
	return strings.Join(names, ", ")
}

// serverOf returns the DNS server of an image and the version in its tag.
func serverOf(image string) (server, version string) {
	image, _, _ = strings.Cut(image, "@") // a digest
	name := image[strings.LastIndexByte(image, '/')+1:]
	name, tag, _ := strings.Cut(name, ":")
	for _, server := range []string{"kube-dns", "coredns", "seamark"} {
		if strings.Contains(name, server) {
			return server, strings.TrimPrefix(tag, "v")
		}
	}
	return "", ""
}

// examineProxy finds the mode of kube-proxy, which decides how queries reach the pods.
func (d *examination) examineProxy() {
	const subject = "kube-proxy"
	var m configMap
	mode := ""
	if d.get(subject, "/api/v1/namespaces/kube-system/configmaps/kube-proxy", &m) {
		for _, text := range m.Data {
			for line := range strings.Lines(text) {
				if value, ok := strings.CutPrefix(strings.TrimSpace(line), "mode:"); ok {
					mode = cmp.Or(strings.Trim(strings.TrimSpace(value), `"'`), "iptables")
				}
			}
		}
	}

	// The flag of a pod takes precedence over the ConfigMap.
	pods := d.pods(subject, "kube-system", "k8s-app in (kube-proxy)")
	if len(pods) == 0 {
		pods = d.pods(subject, "kube-system", "component in (kube-proxy)")
	}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			for _, arg := range append(c.Command, c.Args...) {
				if value, ok := strings.CutPrefix(arg, "--proxy-mode="); ok {
					mode = value
				}
			}
		}
	}

	switch {
	case mode == "ipvs":
		d.add(subject, Warning, "keep the old pods until clients have stopped sending: "+health.Page("how-to/upgrade.md"),
			"mode ipvs: UDP queries of a client may go to a removed pod for up to 5 minutes")
	case mode != "":
		d.add(subject, Info, "", "mode %s", mode)
	case len(pods) > 0:
		d.add(subject, Info, "", "mode not set: iptables by default")
	case len(d.pods(subject, "kube-system", "k8s-app in (cilium)")) > 0:
		d.add(subject, Info, "", "there is none; Cilium forwards the queries")
	case !d.refused[subject]:
		d.add(subject, Info, "", "not found: k3s runs it in its own process, and other network plugins replace it")
	}
}

// examineNodeCache looks for NodeLocal DNSCache, which receives the queries of its node.
func (d *examination) examineNodeCache() {
	const subject = "node-local cache"
	pods := d.pods(subject, "kube-system", "k8s-app in (node-local-dns)")
	if d.refused[subject] {
		return
	}
	if len(pods) == 0 {
		d.add(subject, Info, "", "there is none: pods send their queries to the Service")
		return
	}
	d.add(subject, Warning,
		"compare with the pods of the server, not with the cache: seamark diff --transport port-forward",
		"NodeLocal DNSCache runs in %d or more pods: cached answers hide a change of the server for up to 30 s",
		len(pods))
}
