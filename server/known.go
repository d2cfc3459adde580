package server

// known lists the words that CoreDNS 1.14 has, so that a Corefile which uses
// one that we lack is told so, and not that it is misspelled.
var known = []string{
	"root", "metadata", "geoip", "cancel", "proxyproto", "tls", "quic", "grpc_server", "https", "https3",
	"timeouts", "multisocket", "reload", "nsid", "bufsize", "bind", "debug", "trace", "ready", "health",
	"pprof", "shed", "prometheus", "errors", "log", "dnstap", "local", "dns64", "any", "chaos",
	"loadbalance", "tsig", "rewrite", "autopath", "acl", "cache", "header", "dnssec", "minimal",
	"template", "transfer", "hosts", "route53", "azure", "clouddns", "k8s_external", "kubernetes",
	"file", "auto", "secondary", "etcd", "loop", "forward", "grpc", "erratic", "whoami", "on", "sign",
	"view", "nomad",
}
