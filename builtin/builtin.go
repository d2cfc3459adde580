// Package builtin lists the directives of this binary. The list is registry and
// order at once; package cmd hands it to the server. Nothing else may be here.
package builtin

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive"
	"github.com/seamark/seamark/directive/autopath"
	"github.com/seamark/seamark/directive/cache"
	"github.com/seamark/seamark/directive/dns64"
	"github.com/seamark/seamark/directive/etcd"
	"github.com/seamark/seamark/directive/file"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/hosts"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/directive/kubernetes"
	"github.com/seamark/seamark/directive/records"
	"github.com/seamark/seamark/directive/rewrite"
	"github.com/seamark/seamark/directive/screen"
	"github.com/seamark/seamark/directive/template"
)

// Directives lists every word a Corefile may use. Order is meaning: a query
// meets the handlers top to bottom, whatever order the Corefile has. It is
// CoreDNS's order with one difference: policy comes before memory, so acl judges
// the name that rewrite has made, above autopath and cache. builtin_test.go pins
// the whole of it.
func Directives() []config.Directive {
	return []config.Directive{
		{Name: "root", Brief: "name the folder of relative paths", Setup: directive.SetupRoot},
		{Name: "metadata", Brief: "let directives tell each other what they know of a query", Setup: directive.SetupMetadata},
		{Name: "cancel", Brief: "give up queries that take too long", Setup: directive.SetupCancel},
		{Name: "timeouts", Brief: "say how long TCP clients may take", Setup: directive.SetupTimeouts},
		{Name: "multisocket", Brief: "say how many sockets read queries", Setup: directive.SetupMultisocket},
		{Name: "reload", Brief: "look for a changed Corefile and serve it", Setup: directive.SetupReload},
		{Name: "kubedns_config", Brief: "serve what the ConfigMap of kube-dns says", Setup: kubedns.Setup},
		{Name: "nsid", Brief: "tell clients which server they have reached", Setup: directive.SetupNSID},
		{Name: "bufsize", Brief: "bound the size of replies over UDP", Setup: directive.SetupBufsize},
		{Name: "bind", Brief: "listen on some addresses instead of on all", Setup: directive.SetupBind},
		{Name: "debug", Brief: "show debug lines in the log", Setup: directive.SetupDebug},
		{Name: "ready", Brief: "say over HTTP whether there are answers yet", Setup: directive.SetupReady},
		{Name: "kubedns_status", Brief: "serve kube-dns's pages for its probe and for the names it knows", Setup: directive.SetupKubednsStatus},
		{Name: "lameduck", Brief: "go on answering for a while after being told to stop", Setup: directive.SetupLameduck},
		{Name: "health", Brief: "say over HTTP that the process lives", Setup: directive.SetupHealth},
		{Name: "pprof", Brief: "serve profiles of the process", Setup: directive.SetupPprof},
		{Name: "shed", Brief: "count queries that are given up under too much load", Setup: directive.SetupShed},
		{Name: "prometheus", Brief: "count queries and serve the server's metrics", Setup: directive.SetupPrometheus},
		{Name: "skydns_metrics", Brief: "count queries under the names of SkyDNS and kube-dns", Setup: directive.SetupSkyDNSMetrics},
		{Name: "errors", Brief: "log queries that failed", Setup: directive.SetupErrors},
		{Name: "log", Brief: "log queries", Setup: directive.SetupLog},
		{Name: "local", Brief: "answer names that should never leave a machine", Setup: directive.SetupLocal},
		{Name: "dns64", Brief: "make AAAA records of A records, for clients without IPv4", Setup: dns64.Setup},
		{Name: "any", Brief: "answer questions for ANY with next to nothing", Setup: directive.SetupAny},
		{Name: "chaos", Brief: "tell the server's version, authors and host in class CH", Setup: directive.SetupChaos},
		{Name: "loadbalance", Brief: "change the order of addresses in answers", Setup: directive.SetupLoadbalance},
		{Name: "rewrite", Brief: "change questions, and their answers back", Setup: rewrite.Setup},
		{Name: "acl", Brief: "decide who may ask what", Setup: directive.SetupACL},
		{Name: "autopath", Brief: "walk the search path of a client's resolver in its stead", Setup: autopath.Setup},
		{Name: "cache", Brief: "keep the answers of other servers", Setup: cache.Setup},
		{Name: "header", Brief: "set and clear flags of queries and replies", Setup: directive.SetupHeader},
		{Name: "minimal", Brief: "take out of replies what their answer does not need", Setup: directive.SetupMinimal},
		{Name: "template", Brief: "answer with records made from the question", Setup: template.Setup},
		{Name: "hosts", Brief: "answer from lines in the form of /etc/hosts: inline, of files, of a ConfigMap", Setup: hosts.Setup},
		{Name: "records", Brief: "answer from records in the Corefile", Setup: records.Setup},
		{Name: "k8s_external", Brief: "answer names of Services with their addresses outside the cluster", Setup: kubernetes.SetupExternal},
		{Name: "federation", Brief: "lead from the federated names of Services to this cluster's or to others'", Setup: kubernetes.SetupFederation},
		{Name: "kubernetes", Brief: "answer the names of a Kubernetes cluster, or of a folder of manifests", Setup: kubernetes.Setup},
		{Name: "file", Brief: "answer from zone files", Setup: file.Setup},
		{Name: "etcd", Brief: "answer from SkyDNS's messages in etcd", Setup: etcd.Setup},
		{Name: "screen", Brief: "say what other servers may be asked, and may answer", Setup: screen.Setup},
		{Name: "loop", Brief: "leave out upstreams that lead back here", Setup: directive.SetupLoop},
		{Name: "forward", Brief: "ask other servers", Setup: forward.Setup},
		{Name: "erratic", Brief: "answer badly on purpose, to try clients on", Setup: directive.SetupErratic},
		{Name: "whoami", Brief: "answer with the client's own address", Setup: directive.SetupWhoami},
		{Name: "view", Brief: "choose between server blocks of one zone by a condition", Setup: directive.SetupView},
	}
}
