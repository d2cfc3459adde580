// Package dnstest runs the scripts of testdata/script: a Corefile, Kubernetes
// objects, queries, and the expected replies in dig's format. The README there
// describes the syntax. Two kinds of tests call it: the test of this package, with
// a folder of manifests, and the tests of the module kubetest, with an API server
// (Env.Live). Other code must not import it.
//
// The scripts run the real server, from the Corefile's text to sockets on the
// loopback interface. Another DNS library packs the queries and unpacks the
// replies, so that a bug in package wire cannot hide itself.
package dnstest
