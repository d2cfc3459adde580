// Package builtin lists the directives of this binary, in the order in which a
// query meets them. Package cmd passes the list to the server. The package has no
// other content.
package builtin

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/directive"
	"github.com/seamark/seamark/directive/admin"
	"github.com/seamark/seamark/directive/autopath"
	"github.com/seamark/seamark/directive/cache"
	"github.com/seamark/seamark/directive/dns64"
	"github.com/seamark/seamark/directive/dnssec"
	"github.com/seamark/seamark/directive/etcd"
	"github.com/seamark/seamark/directive/file"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/geoip"
	"github.com/seamark/seamark/directive/hosts"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/directive/kubernetes"
	"github.com/seamark/seamark/directive/records"
	"github.com/seamark/seamark/directive/rewrite"
	"github.com/seamark/seamark/directive/screen"
	"github.com/seamark/seamark/directive/secondary"
	"github.com/seamark/seamark/directive/template"
	"github.com/seamark/seamark/directive/trace"
	"github.com/seamark/seamark/directive/transfer"
	"github.com/seamark/seamark/directive/tsig"
)

// Directives returns every directive that a Corefile may use. A query meets the
// handlers in this order, whatever their order in the Corefile. It is CoreDNS's
// order with one difference: acl comes directly after rewrite, before autopath and
// cache, so that neither can bypass it. builtin_test.go checks the whole list.
func Directives() []config.Directive {
	return []config.Directive{
		{Name: "root", Usage: "root PATH", Brief: "set the directory of relative file names",
			Setup: directive.SetupRoot},
		{Name: "metadata", Usage: "metadata [ZONES...]", Brief: "pass values about a query between directives",
			Setup: directive.SetupMetadata},
		{Name: "geoip", Usage: "geoip DBFILE", Brief: "look up the location and the network of clients",
			Setup: geoip.Setup},
		{Name: "cancel", Usage: "cancel [TIMEOUT]", Brief: "limit how long a query may wait",
			Setup: directive.SetupCancel},
		{Name: "proxyproto", Usage: "proxyproto", Brief: "take the addresses of clients from a load balancer",
			Setup: directive.SetupProxyproto},
		{Name: "tls", Usage: "tls CERT KEY [CA]", Brief: "set the certificate of encrypted listeners",
			Setup: directive.SetupTLS},
		{Name: "quic", Usage: "quic", Brief: "limit the streams of DNS over QUIC", Setup: directive.SetupQUIC},
		{Name: "grpc_server", Usage: "grpc_server", Brief: "limit the connections of DNS over gRPC",
			Setup: directive.SetupGRPCServer},
		{Name: "https", Usage: "https", Brief: "limit the connections of DNS over HTTPS", Setup: directive.SetupHTTPS},
		{Name: "https3", Usage: "https3", Brief: "limit the streams of DNS over HTTP/3", Setup: directive.SetupHTTPS3},
		{Name: "timeouts", Usage: "timeouts", Brief: "limit how long TCP clients may take",
			Setup: directive.SetupTimeouts},
		{Name: "multisocket", Usage: "multisocket [N]", Brief: "set the number of UDP sockets",
			Setup: directive.SetupMultisocket},
		{Name: "reload", Usage: "reload [INTERVAL [JITTER]]",
			Brief: "apply changes of the Corefile while the server runs", Setup: directive.SetupReload},
		{Name: "handover", Usage: "handover PATH",
			Brief: "let a new process replace this one without losing a query", Setup: directive.SetupHandover},
		{Name: "capture", Usage: "capture METHOD", Brief: "select how queries of pods reach the cache of a node",
			Setup: directive.SetupCapture},
		{Name: "kubedns_config", Usage: "kubedns_config NAMESPACE/NAME|DIR", Brief: "apply kube-dns's ConfigMap",
			Setup: kubedns.Setup, Answers: true},
		{Name: "nsid", Usage: "nsid [DATA]", Brief: "identify the server to clients that ask for it",
			Setup: directive.SetupNSID},
		{Name: "bufsize", Usage: "bufsize [SIZE]", Brief: "limit the size of replies over UDP",
			Setup: directive.SetupBufsize},
		{Name: "bind", Usage: "bind ADDRESS|INTERFACE...", Brief: "select the addresses to listen on",
			Setup: directive.SetupBind},
		{Name: "debug", Usage: "debug", Brief: "turn on debug logging", Setup: directive.SetupDebug},
		{Name: "trace", Usage: "trace [ENDPOINT-TYPE] [ENDPOINT]",
			Brief: "send the course of queries to a collector of traces", Setup: trace.Setup},
		{Name: "ready", Usage: "ready [ADDRESS]", Brief: "report readiness over HTTP", Setup: directive.SetupReady},
		{Name: "kubedns_status", Usage: "kubedns_status [ADDRESS]", Brief: "serve kube-dns's status pages",
			Setup: directive.SetupKubednsStatus},
		{Name: "lameduck", Usage: "lameduck DURATION", Brief: "delay a shutdown while the server keeps answering",
			Setup: directive.SetupLameduck},
		{Name: "health", Usage: "health [ADDRESS]", Brief: "report over HTTP that the process is alive",
			Setup: directive.SetupHealth},
		{Name: "pprof", Usage: "pprof [ADDRESS]", Brief: "serve profiles of the process over HTTP",
			Setup: directive.SetupPprof},
		{Name: "admin", Usage: "admin [ADDRESS|unix PATH]",
			Brief: "look into the running server with a browser or the command line", Setup: admin.Setup},
		{Name: "shed", Usage: "shed", Brief: "count queries rejected under overload", Setup: directive.SetupShed},
		{Name: "ratelimit", Usage: "ratelimit RATE", Brief: "limit UDP replies to each client network",
			Setup: directive.SetupRateLimit},
		{Name: "prometheus", Usage: "prometheus [ADDRESS]", Brief: "count queries and serve metrics over HTTP",
			Setup: directive.SetupPrometheus},
		{Name: "skydns_metrics", Usage: "skydns_metrics ADDRESS [PATH]",
			Brief: "count queries under the metric names of SkyDNS and kube-dns", Setup: directive.SetupSkyDNSMetrics},
		{Name: "errors", Usage: "errors [stdout]", Brief: "log queries that failed", Setup: directive.SetupErrors},
		{Name: "log", Usage: "log [NAMES...] [FORMAT]", Brief: "log queries", Setup: directive.SetupLog},
		{Name: "dnstap", Usage: "dnstap [listen] SOCKET [full] [WRITEBUFFER [QUEUE]]",
			Brief: "send queries and replies to receivers of dnstap", Setup: directive.SetupDnstap},
		{Name: "local", Usage: "local", Brief: "answer names that must not leave the machine",
			Setup: directive.SetupLocal, Answers: true},
		{Name: "dns64", Usage: "dns64 [PREFIX]",
			Brief: "synthesize AAAA records from A records for IPv6-only clients", Setup: dns64.Setup},
		{Name: "any", Usage: "any", Brief: "answer queries of type ANY with a single small record",
			Setup: directive.SetupAny},
		{Name: "chaos", Usage: "chaos [VERSION [AUTHORS...]]", Brief: "answer queries about the server in class CH",
			Setup: directive.SetupChaos, Answers: true},
		{Name: "loadbalance", Usage: "loadbalance [round_robin | weighted FILE]",
			Brief: "change the order of addresses in answers", Setup: directive.SetupLoadbalance},
		{Name: "tsig", Usage: "tsig [ZONES...]", Brief: "verify the signatures of queries, and sign the replies",
			Setup: tsig.Setup},
		{Name: "rewrite", Usage: "rewrite [continue|stop] FIELD [MATCH] FROM TO [OPTIONS]",
			Brief: "rewrite queries and their answers", Setup: rewrite.Setup},
		{Name: "acl", Usage: "acl [ZONES...]", Brief: "decide which clients may query which names",
			Setup: directive.SetupACL, Answers: true},
		{Name: "autopath", Usage: "autopath [ZONE...] RESOLV-CONF",
			Brief: "follow the client's search path on the server", Setup: autopath.Setup},
		{Name: "cache", Usage: "cache [TTL] [ZONES...]", Brief: "cache the answers of other servers",
			Setup: cache.Setup},
		{Name: "header", Usage: "header", Brief: "set and clear header flags of queries and replies",
			Setup: directive.SetupHeader},
		{Name: "dnssec", Usage: "dnssec [ZONES...]", Brief: "sign answers", Setup: dnssec.Setup},
		{Name: "minimal", Usage: "minimal", Brief: "remove records that an answer does not need",
			Setup: directive.SetupMinimal},
		{Name: "template", Usage: "template CLASS TYPE [ZONES...]",
			Brief: "answer with records generated from the query", Setup: template.Setup, Answers: true},
		{Name: "transfer", Usage: "transfer [ZONES...]", Brief: "let other servers copy zones", Setup: transfer.Setup},
		{Name: "hosts", Usage: "hosts [FILE [ZONES...]]",
			Brief: "answer from hosts files, inline lines or a ConfigMap", Setup: hosts.Setup, Answers: true},
		{Name: "records", Usage: "records [ZONES...]", Brief: "answer from records in the Corefile",
			Setup: records.Setup, Answers: true},
		{Name: "k8s_external", Usage: "k8s_external [ZONE...]",
			Brief: "answer names of Services with their external addresses", Setup: kubernetes.SetupExternal,
			Answers: true},
		{Name: "federation", Usage: "federation [ZONES...]", Brief: "answer federated names of Services",
			Setup: kubernetes.SetupFederation, Answers: true},
		{Name: "kubernetes", Usage: "kubernetes [ZONES...]",
			Brief: "answer names of a Kubernetes cluster or of a directory of manifests", Setup: kubernetes.Setup,
			Answers: true},
		{Name: "file", Usage: "file DBFILE [ZONES...]", Brief: "answer from zone files", Setup: file.Setup,
			Answers: true},
		{Name: "auto", Usage: "auto [ZONES...]", Brief: "answer from the zone files of a directory",
			Setup: file.SetupAuto, Answers: true},
		{Name: "secondary", Usage: "secondary [ZONES...]", Brief: "answer from copies of other servers' zones",
			Setup: secondary.Setup, Answers: true},
		{Name: "etcd", Usage: "etcd [ZONES...]", Brief: "answer from SkyDNS messages in etcd", Setup: etcd.Setup,
			Answers: true},
		{Name: "screen", Usage: "screen", Brief: "restrict forwarded queries and filter the answers of upstreams",
			Setup: screen.Setup, Answers: true},
		{Name: "loop", Usage: "loop", Brief: "exclude upstreams that send queries back to this server",
			Setup: directive.SetupLoop},
		{Name: "forward", Usage: "forward FROM TO...", Brief: "forward queries to other servers",
			Setup: forward.Setup, Answers: true},
		{Name: "grpc", Usage: "grpc FROM TO...", Brief: "forward queries to other servers over gRPC",
			Setup: forward.SetupGRPC, Answers: true},
		{Name: "erratic", Usage: "erratic [ZONES...]", Brief: "misbehave on purpose, to test clients",
			Setup: directive.SetupErratic, Answers: true},
		{Name: "whoami", Usage: "whoami", Brief: "answer with the client's address and port",
			Setup: directive.SetupWhoami, Answers: true},
		{Name: "on", Usage: "on EVENT COMMAND [ARGS...] [&]", Brief: "run commands when the server starts or stops",
			Setup: directive.SetupOn},
		{Name: "sign", Usage: "sign DBFILE [ZONES...]", Brief: "sign zone files", Setup: file.SetupSign},
		{Name: "view", Usage: "view NAME", Brief: "restrict a server block to some queries",
			Setup: directive.SetupView},
	}
}
