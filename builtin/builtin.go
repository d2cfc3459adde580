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
	"github.com/seamark/seamark/directive/dynupdate"
	"github.com/seamark/seamark/directive/etcd"
	"github.com/seamark/seamark/directive/file"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/forward/stubzones"
	"github.com/seamark/seamark/directive/gateway"
	"github.com/seamark/seamark/directive/geoip"
	"github.com/seamark/seamark/directive/hosts"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/directive/kubernetes"
	"github.com/seamark/seamark/directive/nftset"
	"github.com/seamark/seamark/directive/policy"
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
		// The server and its addresses, and settings of each query.
		{Name: "root", Usage: "root PATH", Setup: directive.SetupRoot,
			Brief: "set the directory of relative file names"},
		{Name: "metadata", Usage: "metadata [ZONES...]", Setup: directive.SetupMetadata,
			Brief: "pass values about a query between directives"},
		{Name: "geoip", Usage: "geoip DBFILE", Setup: geoip.Setup,
			Brief: "look up the location and the network of clients"},
		{Name: "cancel", Usage: "cancel [TIMEOUT]", Setup: directive.SetupCancel,
			Brief: "limit how long a query may wait"},
		{Name: "proxyproto", Usage: "proxyproto", Setup: directive.SetupProxyproto,
			Brief: "take the addresses of clients from a load balancer"},
		{Name: "tls", Usage: "tls CERT KEY [CA]", Setup: directive.SetupTLS,
			Brief: "set the certificate of encrypted listeners"},
		{Name: "quic", Usage: "quic", Setup: directive.SetupQUIC,
			Brief: "limit the connections of DNS over QUIC"},
		{Name: "grpc_server", Usage: "grpc_server", Setup: directive.SetupGRPCServer,
			Brief: "limit the connections of DNS over gRPC"},
		{Name: "https", Usage: "https", Setup: directive.SetupHTTPS,
			Brief: "limit the connections of DNS over HTTPS"},
		{Name: "https3", Usage: "https3", Setup: directive.SetupHTTPS3,
			Brief: "limit the connections of DNS over HTTP/3"},
		{Name: "timeouts", Usage: "timeouts", Setup: directive.SetupTimeouts,
			Brief: "limit how long TCP clients may take"},
		{Name: "multisocket", Usage: "multisocket [N]", Setup: directive.SetupMultisocket,
			Brief: "set the number of UDP sockets"},
		{Name: "reload", Usage: "reload [INTERVAL [JITTER]]", Setup: directive.SetupReload,
			Brief: "apply changes of the Corefile while the server runs"},
		{Name: "handover", Usage: "handover PATH", Setup: directive.SetupHandover,
			Brief: "let a new process replace this one without losing a query"},
		{Name: "capture", Usage: "capture METHOD", Setup: directive.SetupCapture,
			Brief: "select how queries of pods reach the cache of a node"},
		{Name: "kubedns_config", Usage: "kubedns_config NAMESPACE/NAME|DIR", Setup: kubedns.Setup, Answers: true,
			Brief: "apply kube-dns's ConfigMap"},
		{Name: "nsid", Usage: "nsid [DATA]", Setup: directive.SetupNSID,
			Brief: "identify the server to clients that ask for it"},
		{Name: "bufsize", Usage: "bufsize [SIZE]", Setup: directive.SetupBufsize,
			Brief: "limit the size of replies over UDP"},
		{Name: "bind", Usage: "bind ADDRESS|INTERFACE...", Setup: directive.SetupBind,
			Brief: "select the addresses to listen on"},
		{Name: "debug", Usage: "debug", Setup: directive.SetupDebug,
			Brief: "turn on debug logging"},

		// Reports about the process and about queries, and limits under load.
		{Name: "trace", Usage: "trace [ENDPOINT-TYPE] [ENDPOINT]", Setup: trace.Setup,
			Brief: "send the course of queries to a collector of traces"},
		{Name: "ready", Usage: "ready [ADDRESS]", Setup: directive.SetupReady,
			Brief: "report readiness over HTTP"},
		{Name: "kubedns_status", Usage: "kubedns_status [ADDRESS]", Setup: directive.SetupKubednsStatus,
			Brief: "serve kube-dns's status pages"},
		{Name: "lameduck", Usage: "lameduck DURATION", Setup: directive.SetupLameduck,
			Brief: "delay a shutdown while the server keeps answering"},
		{Name: "health", Usage: "health [ADDRESS]", Setup: directive.SetupHealth,
			Brief: "report over HTTP that the process is alive"},
		{Name: "pprof", Usage: "pprof [ADDRESS]", Setup: directive.SetupPprof,
			Brief: "serve profiles of the process over HTTP"},
		{Name: "admin", Usage: "admin [ADDRESS|unix PATH]", Setup: admin.Setup,
			Brief: "look into the running server with a browser or the command line"},
		{Name: "shed", Usage: "shed", Setup: directive.SetupShed,
			Brief: "count queries rejected under overload"},
		{Name: "ratelimit", Usage: "ratelimit RATE", Setup: directive.SetupRateLimit,
			Brief: "limit UDP replies to each client network"},
		{Name: "prometheus", Usage: "prometheus [ADDRESS]", Setup: directive.SetupPrometheus,
			Brief: "count queries and serve metrics over HTTP"},
		{Name: "skydns_metrics", Usage: "skydns_metrics ADDRESS [PATH]", Setup: directive.SetupSkyDNSMetrics,
			Brief: "count queries under the metric names of SkyDNS and kube-dns"},
		{Name: "errors", Usage: "errors [stdout]", Setup: directive.SetupErrors,
			Brief: "log queries that failed"},
		{Name: "log", Usage: "log [NAMES...] [FORMAT]", Setup: directive.SetupLog,
			Brief: "log queries"},
		{Name: "dnstap", Usage: "dnstap [listen] SOCKET [full] [WRITEBUFFER [QUEUE]]", Setup: directive.SetupDnstap,
			Brief: "send queries and replies to receivers of dnstap"},

		// What depends on answers as clients get them.
		{Name: "nftset", Usage: "nftset FAMILY TABLE SET...", Setup: nftset.Setup,
			Brief: "add the addresses of answers to sets of nftables"},

		// Answers that need no zone, policy, and changes of queries and answers.
		{Name: "local", Usage: "local", Setup: directive.SetupLocal, Answers: true,
			Brief: "answer names that must not leave the machine"},
		{Name: "dns64", Usage: "dns64 [PREFIX]", Setup: dns64.Setup,
			Brief: "synthesize AAAA records from A records for IPv6-only clients"},
		{Name: "siit", Usage: "siit", Setup: dns64.SetupSIIT,
			Brief: "synthesize A records from AAAA records for servers that have only IPv6"},
		{Name: "any", Usage: "any", Setup: directive.SetupAny,
			Brief: "answer queries of type ANY with a single small record"},
		{Name: "chaos", Usage: "chaos [VERSION [AUTHORS...]]", Setup: directive.SetupChaos, Answers: true,
			Brief: "answer queries about the server in class CH"},
		{Name: "loadbalance", Usage: "loadbalance [round_robin | weighted FILE]", Setup: directive.SetupLoadbalance,
			Brief: "change the order of addresses in answers"},
		{Name: "tsig", Usage: "tsig [ZONES...]", Setup: tsig.Setup,
			Brief: "verify the signatures of queries, and sign the replies"},
		{Name: "rewrite", Usage: "rewrite [continue|stop] FIELD [MATCH] FROM TO [OPTIONS]", Setup: rewrite.Setup,
			Brief: "rewrite queries and their answers"},
		{Name: "acl", Usage: "acl [ZONES...]", Setup: directive.SetupACL, Answers: true,
			Brief: "decide which clients may query which names"},
		{Name: "policy", Usage: "policy", Setup: policy.Setup,
			Brief: "decide which names a pod may resolve"},
		{Name: "autopath", Usage: "autopath [ZONE...] RESOLV-CONF", Setup: autopath.Setup,
			Brief: "follow the client's search path on the server"},
		{Name: "cache", Usage: "cache [TTL] [ZONES...]", Setup: cache.Setup,
			Brief: "cache the answers of other servers"},
		{Name: "header", Usage: "header", Setup: directive.SetupHeader,
			Brief: "set and clear header flags of queries and replies"},
		{Name: "dnssec", Usage: "dnssec [ZONES...]", Setup: dnssec.Setup,
			Brief: "sign answers"},
		{Name: "minimal", Usage: "minimal", Setup: directive.SetupMinimal,
			Brief: "remove records that an answer does not need"},
		{Name: "template", Usage: "template CLASS TYPE [ZONES...]", Setup: template.Setup, Answers: true,
			Brief: "answer with records generated from the query"},
		{Name: "transfer", Usage: "transfer [ZONES...]", Setup: transfer.Setup,
			Brief: "let other servers copy zones"},

		// Data.
		{Name: "dynupdate", Usage: "dynupdate [ZONE]", Setup: dynupdate.Setup, Answers: true,
			Brief: "answer from a zone that clients update"},
		{Name: "hosts", Usage: "hosts [FILE [ZONES...]]", Setup: hosts.Setup, Answers: true,
			Brief: "answer from hosts files, inline lines or a ConfigMap"},
		{Name: "records", Usage: "records [ZONES...]", Setup: records.Setup, Answers: true,
			Brief: "answer from records in the Corefile"},
		{Name: "gateway", Usage: "gateway [ZONES...]", Setup: gateway.Setup, Answers: true,
			Brief: "answer the hosts of Gateways, Routes and Ingresses with addresses inside of the cluster"},
		{Name: "k8s_external", Usage: "k8s_external [ZONE...]", Setup: kubernetes.SetupExternal, Answers: true,
			Brief: "answer names of Services with their external addresses"},
		{Name: "federation", Usage: "federation [ZONES...]", Setup: kubernetes.SetupFederation, Answers: true,
			Brief: "answer federated names of Services"},
		{Name: "kubernetes", Usage: "kubernetes [ZONES...]", Setup: kubernetes.Setup, Answers: true,
			Brief: "answer names of a Kubernetes cluster or of a directory of manifests"},
		{Name: "file", Usage: "file DBFILE [ZONES...]", Setup: file.Setup, Answers: true,
			Brief: "answer from zone files"},
		{Name: "auto", Usage: "auto [ZONES...]", Setup: file.SetupAuto, Answers: true,
			Brief: "answer from the zone files of a directory"},
		{Name: "secondary", Usage: "secondary [ZONES...]", Setup: secondary.Setup, Answers: true,
			Brief: "answer from copies of other servers' zones"},
		{Name: "etcd", Usage: "etcd [ZONES...]", Setup: etcd.Setup, Answers: true,
			Brief: "answer from SkyDNS messages in etcd"},

		// Other servers.
		{Name: "screen", Usage: "screen", Setup: screen.Setup, Answers: true,
			Brief: "restrict forwarded queries and filter the answers of upstreams"},
		{Name: "loop", Usage: "loop", Setup: directive.SetupLoop,
			Brief: "exclude upstreams that send queries back to this server"},
		{Name: "stub_zones", Usage: "stub_zones", Setup: stubzones.Setup, Answers: true,
			Brief: "forward zones of ConfigMaps to the servers that they name"},
		{Name: "forward", Usage: "forward FROM TO...", Setup: forward.Setup, Answers: true,
			Brief: "forward queries to other servers"},
		{Name: "grpc", Usage: "grpc FROM TO...", Setup: forward.SetupGRPC, Answers: true,
			Brief: "forward queries to other servers over gRPC"},

		// Answers to all queries that are left.
		{Name: "erratic", Usage: "erratic [ZONES...]", Setup: directive.SetupErratic, Answers: true,
			Brief: "misbehave on purpose, to test clients"},
		{Name: "whoami", Usage: "whoami", Setup: directive.SetupWhoami, Answers: true,
			Brief: "answer with the client's address and port"},

		// No handlers.
		{Name: "on", Usage: "on EVENT COMMAND [ARGS...] [&]", Setup: directive.SetupOn,
			Brief: "run commands when the server starts or stops"},
		{Name: "sign", Usage: "sign DBFILE [ZONES...]", Setup: file.SetupSign,
			Brief: "sign zone files"},
		{Name: "view", Usage: "view NAME", Setup: directive.SetupView,
			Brief: "restrict a server block to some queries"},
	}
}
