// Package dnstest runs the scripts of testdata/script: a Corefile, the objects
// of a cluster, questions, and the answers as dig would print them. The README
// there describes the language. Its callers are tests: those beside it, against
// a folder of manifests, and those of the module kubetest, which bring a live
// API server along (Env.Live). No other code may import it.
//
// The server under test is the real one, from the Corefile's text to sockets on
// the loopback interface. Questions and expectations are read, and replies
// printed, by another DNS library, so that a mistake of our own code cannot hide
// itself.
package dnstest
