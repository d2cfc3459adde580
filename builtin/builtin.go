// Package builtin lists the directives of this binary, in the order in which a
// query meets them. Package cmd passes the list to the server. The package has no
// other content.
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

// Directives returns every directive that a Corefile may use. A query meets the
// handlers in this order, whatever their order in the Corefile. It is CoreDNS's
// order with one difference: acl comes directly after rewrite, before autopath and
// cache, so that neither can bypass it. builtin_test.go checks the whole list.
func Directives() []config.Directive {
	return []config.Directive{
		{Name: "root", Brief: "set the directory of relative file names", Setup: directive.SetupRoot},
		{Name: "metadata", Brief: "pass values about a query between directives", Setup: directive.SetupMetadata},
		{Name: "cancel", Brief: "limit how long a query may wait", Setup: directive.SetupCancel},
		{Name: "timeouts", Brief: "limit how long TCP clients may take", Setup: directive.SetupTimeouts},
		{Name: "multisocket", Brief: "set the number of UDP sockets", Setup: directive.SetupMultisocket},
		{Name: "reload", Brief: "apply changes of the Corefile while the server runs", Setup: directive.SetupReload},
		{Name: "kubedns_config", Brief: "apply kube-dns's ConfigMap", Setup: kubedns.Setup},
		{Name: "nsid", Brief: "identify the server to clients that ask for it", Setup: directive.SetupNSID},
		{Name: "bufsize", Brief: "limit the size of replies over UDP", Setup: directive.SetupBufsize},
		{Name: "bind", Brief: "select the addresses to listen on", Setup: directive.SetupBind},
		{Name: "debug", Brief: "turn on debug logging", Setup: directive.SetupDebug},
		{Name: "ready", Brief: "report readiness over HTTP", Setup: directive.SetupReady},
		{Name: "kubedns_status", Brief: "serve kube-dns's status pages", Setup: directive.SetupKubednsStatus},
		{Name: "lameduck", Brief: "delay a shutdown while the server keeps answering", Setup: directive.SetupLameduck},
		{Name: "health", Brief: "report over HTTP that the process is alive", Setup: directive.SetupHealth},
		{Name: "pprof", Brief: "serve profiles of the process over HTTP", Setup: directive.SetupPprof},
		{Name: "shed", Brief: "count queries rejected under overload", Setup: directive.SetupShed},
		{Name: "prometheus", Brief: "count queries and serve metrics over HTTP", Setup: directive.SetupPrometheus},
		{Name: "skydns_metrics", Brief: "count queries under the metric names of SkyDNS and kube-dns", Setup: directive.SetupSkyDNSMetrics},
		{Name: "errors", Brief: "log queries that failed", Setup: directive.SetupErrors},
		{Name: "log", Brief: "log queries", Setup: directive.SetupLog},
		{Name: "local", Brief: "answer names that must not leave the machine", Setup: directive.SetupLocal},
		{Name: "dns64", Brief: "synthesize AAAA records from A records for IPv6-only clients", Setup: dns64.Setup},
		{Name: "any", Brief: "answer queries of type ANY with a single small record", Setup: directive.SetupAny},
		{Name: "chaos", Brief: "answer queries about the server in class CH", Setup: directive.SetupChaos},
		{Name: "loadbalance", Brief: "change the order of addresses in answers", Setup: directive.SetupLoadbalance},
		{Name: "rewrite", Brief: "rewrite queries and their answers", Setup: rewrite.Setup},
		{Name: "acl", Brief: "decide which clients may query which names", Setup: directive.SetupACL},
		{Name: "autopath", Brief: "follow the client's search path on the server", Setup: autopath.Setup},
		{Name: "cache", Brief: "cache the answers of other servers", Setup: cache.Setup},
		{Name: "header", Brief: "set and clear header flags of queries and replies", Setup: directive.SetupHeader},
		{Name: "minimal", Brief: "remove records that an answer does not need", Setup: directive.SetupMinimal},
		{Name: "template", Brief: "answer with records generated from the query", Setup: template.Setup},
		{Name: "hosts", Brief: "answer from hosts files, inline lines or a ConfigMap", Setup: hosts.Setup},
		{Name: "records", Brief: "answer from records in the Corefile", Setup: records.Setup},
		{Name: "k8s_external", Brief: "answer names of Services with their external addresses", Setup: kubernetes.SetupExternal},
		{Name: "federation", Brief: "answer federated names of Services", Setup: kubernetes.SetupFederation},
		{Name: "kubernetes", Brief: "answer names of a Kubernetes cluster or of a directory of manifests", Setup: kubernetes.Setup},
		{Name: "file", Brief: "answer from zone files", Setup: file.Setup},
		{Name: "etcd", Brief: "answer from SkyDNS messages in etcd", Setup: etcd.Setup},
		{Name: "screen", Brief: "restrict forwarded queries and filter the answers of upstreams", Setup: screen.Setup},
		{Name: "loop", Brief: "exclude upstreams that send queries back to this server", Setup: directive.SetupLoop},
		{Name: "forward", Brief: "forward queries to other servers", Setup: forward.Setup},
		{Name: "erratic", Brief: "misbehave on purpose, to test clients", Setup: directive.SetupErratic},
		{Name: "whoami", Brief: "answer with the client's address and port", Setup: directive.SetupWhoami},
		{Name: "view", Brief: "restrict a server block to some queries", Setup: directive.SetupView},
	}
}
