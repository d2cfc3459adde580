// Package dnstest runs the scripts of testdata/script: a Corefile, Kubernetes
// objects, queries, and the expected replies in dig's format. The README there
// describes the syntax. Two tests call it: the one in this package, with a folder
// of manifests, and those of the module kubetest, with an API server (Env.Live).
// Other code must not import it.
//
// The scripts run the real server, from the Corefile's text to sockets on the
// loopback interface. Another DNS library packs the queries and unpacks the
// replies, so that a bug in package wire cannot hide itself.
package dnstest
