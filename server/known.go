package server

// unsupported lists the directives of CoreDNS 1.14 that this server lacks. A
// Corefile that uses one gets an error that says so.
const unsupported = `geoip proxyproto tls quic grpc_server https https3 trace dnstap tsig dnssec transfer
route53 azure clouddns auto secondary grpc on sign nomad`
