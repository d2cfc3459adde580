package resolvconf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A Pod is the part of a pod's spec that affects its resolv.conf.
type Pod struct {
	Namespace   string
	Policy      Policy
	HostNetwork bool
	Config      *Config // dnsConfig; nil if there is none
}

// A Kubelet is the configuration of a kubelet that affects resolv.conf.
type Kubelet struct {
	ClusterDomain string // "" for none: then nothing is searched in the cluster
	ClusterDNS    []netip.Addr
	// Node is the content of the file resolvConf; nil if resolvConf is "".
	Node *Config
	File string // name of the file resolvConf, for comments
}

// Form returns the pod's resolv.conf, and a comment for each setting of the pod
// or the node that it does not contain. The API server must accept the pod.
func (k Kubelet) Form(p Pod) (Config, []string) {
	f := forming{Kubelet: k, pod: p}
	f.checkNode()
	c := f.base()
	if p.Config != nil {
		c = c.add(*p.Config)
	}
	c.Nameservers = f.nameservers(c.Nameservers)
	c.Searches = f.searches(c.Searches)
	return c, f.comments
}

type forming struct {
	Kubelet
	pod      Pod
	comments []string
}

func (f *forming) comment(format string, args ...any) {
	f.comments = append(f.comments, fmt.Sprintf(format, args...))
}

// checkNode adds the warnings that the kubelet logs about its node every 30
// seconds.
func (f *forming) checkNode() {
	if f.Node == nil {
		return
	}
	limit := maxSearches
	if f.ClusterDomain != "" {
		limit -= 3 // for the cluster's search domains
	}
	n, chars := len(f.Node.Searches), len(strings.Join(f.Node.Searches, " "))
	switch {
	case n > limit:
		f.comment("%s: %d search domains, the kubelet accepts %d (event CheckLimitsForResolvConf)", f.File, n, limit)
	case chars > maxSearchChars:
		f.comment("%s: search domains of %d characters, the kubelet accepts %d (event CheckLimitsForResolvConf)",
			f.File, chars, maxSearchChars)
	}
}

// base returns the file without the pod's dnsConfig.
func (f *forming) base() Config {
	policy := f.pod.Policy
	if policy == ClusterFirst && f.pod.HostNetwork {
		f.comment("hostNetwork changes dnsPolicy %s to %s: to resolve the cluster's names, set %s",
			ClusterFirst, Default, ClusterFirstWithHostNet)
		policy = Default
	}
	switch {
	case policy == None:
		return Config{}
	case policy == Default:
		return f.host()
	case len(f.ClusterDNS) == 0:
		f.comment("no cluster DNS address: dnsPolicy %s falls back to %s (event MissingClusterDNS);"+
			" set the kubelet's clusterDNS with --cluster-dns", policy, Default)
		return f.host()
	}
	return f.cluster()
}

// cluster returns the file of a pod whose only nameservers are the cluster's. Of
// the node's file it contains the search domains.
func (f *forming) cluster() Config {
	c := Config{Options: []Option{{"ndots", "5"}}}
	for _, addr := range f.ClusterDNS {
		c.Nameservers = append(c.Nameservers, addr.Unmap().String())
	}
	if f.Node != nil {
		c.Searches = f.Node.Searches
	}
	if d := f.ClusterDomain; d != "" {
		c.Searches = distinct([]string{f.pod.Namespace + ".svc." + d, "svc." + d, d}, c.Searches)
	}
	return c
}

// host returns the file of a pod that resolves names as its node does.
func (f *forming) host() Config {
	if f.Node == nil {
		// Without nameservers a resolver queries its own machine. Container
		// runtimes replace an empty file by the node's, so the kubelet writes
		// this one.
		f.comment("the kubelet's resolvConf is empty: the pod's only nameserver is itself (::1 on an IPv6 node)")
		return Config{Nameservers: []string{"127.0.0.1"}, Searches: []string{"."}}
	}
	if !f.pod.HostNetwork {
		for _, s := range f.Node.Nameservers {
			f.loopback(s)
		}
	}
	return Config{
		Nameservers: slices.Clone(f.Node.Nameservers),
		Searches:    slices.Clone(f.Node.Searches),
		Options:     slices.Clone(f.Node.Options),
	}
}

// loopback adds a comment about a nameserver of the node that has a loopback
// address, which a pod without hostNetwork cannot reach.
func (f *forming) loopback(server string) {
	addr, err := netip.ParseAddr(server)
	if err != nil || !addr.Unmap().IsLoopback() {
		return
	}
	owner, file := "a resolver on the node", "a file with its upstreams"
	if stub := addr.Unmap().String(); stub == "127.0.0.53" || stub == "127.0.0.54" {
		owner, file = "systemd-resolved's stub on the node", "/run/systemd/resolve/resolv.conf"
	}
	f.comment("%s: %s is %s, but in the pod it is the pod itself: a DNS server that forwards there loops,"+
		" and other pods get no answer: set the kubelet's resolvConf to %s",
		f.File, server, owner, file)
}

func (f *forming) nameservers(all []string) []string {
	if len(all) <= maxNameservers {
		return all
	}
	f.omit("nameservers", fmt.Sprintf("more than %d", maxNameservers), all[maxNameservers:])
	return all[:maxNameservers]
}

// searches limits the search domains in the kubelet's order: it drops those after
// the 32nd, then names that are too long, then the last ones until the total
// length is within the limit.
func (f *forming) searches(all []string) []string {
	if len(all) > maxSearches {
		f.omit("search domains", fmt.Sprintf("more than %d", maxSearches), all[maxSearches:])
		all = all[:maxSearches]
	}

	var fit, long []string
	for _, s := range all {
		if len(s) > maxName {
			long = append(long, s)
		} else {
			fit = append(fit, s)
		}
	}
	if len(long) > 0 {
		f.omit("search domains", fmt.Sprintf("longer than %d characters", maxName), long)
	}

	n := len(fit)
	for len(strings.Join(fit[:n], " ")) > maxSearchChars {
		n--
	}
	if n < len(fit) {
		f.omit("search domains", fmt.Sprintf("more than %d characters in total", maxSearchChars), fit[n:])
	}
	return fit[:n]
}

func (f *forming) omit(items, reason string, omitted []string) {
	f.comment("%s: %s, omitted (event DNSConfigForming): %s", items, reason, strings.Join(omitted, " "))
}
