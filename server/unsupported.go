package server

import (
	"slices"
	"strings"
)

// unsupported lists the directives of CoreDNS 1.15 that Seamark does not have. They, and the plugins that
// people compile into CoreDNS, have an error message of their own: see replacements.
const unsupported = `route53 azure clouddns nomad`

// A replacement is what to use in place of plugins.
type replacement struct{ plugins, advice string }

// replacements lists what to use in place of the plugins of unsupported, and of those that people compile
// into CoreDNS. The table of docs/how-to/from-coredns.md has the same rows.
var replacements = [...]replacement{
	{"route53 azure clouddns amazondns",
		"use forward to the provider's resolver, or a copy of the zones with file or secondary"},
	{"nomad consul docker dockerdiscovery", "use hosts or file, with a file that a template of the scheduler writes"},

	// Names of a cluster.
	{"k8s_crd", "use records with objects and dnsendpoints"},
	{"k8s_gateway", "use gateway with external for the hosts of Ingresses and Gateways, k8s_external for the " +
		"addresses of Services, and records with objects for DNSEndpoints"},
	{"kubernetai", "use kubernetes, one in each server block"},
	{"multicluster lighthouse", "use the option multicluster of kubernetes"},
	{"kubenodes kubeforward mdns", "use hosts, with a file or a ConfigMap"},
	{"k8s_cache", "use cache"},
	{"k8s_event", "use prometheus and log"},
	{"k8s_dns_chaos", "use erratic"},

	// Other servers.
	{"fanout", "use forward, which sends a query without a reply to the next upstream, and with the option " +
		"failover one with a bad reply, too"},
	{"alternate", "use the option next of forward"},
	{"unbound recursor", "use forward to a resolver"},

	// Data and policy.
	{"netbox git redis redisc rediscluster mysql pdsql mongo s3 gslb", "use file, auto or hosts, with files that " +
		"a job writes, or etcd"},
	{"rrl", "use ratelimit"},
	{"ads block blocklist warnlist", "use hosts, template or screen, which can refuse names"},
	{"firewall opa themis", "use acl, policy or view"},
	{"finalize", "nothing is needed: targets of CNAME records are followed"},
	{"metadata_edns0", "use rewrite edns0"},
}

// instead returns what to use in place of a plugin, "" for other words.
func instead(plugin string) (advice string) {
	for _, r := range replacements {
		if slices.Contains(strings.Fields(r.plugins), plugin) {
			return r.advice
		}
	}
	return ""
}
