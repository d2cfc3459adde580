// Package process runs the scripts of testdata/process: what a process with a Corefile writes, serves
// over HTTP and refuses. With -coredns they run with CoreDNS's program in Seamark's place.
package process
