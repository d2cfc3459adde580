//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const dnsPort, metricsPort = 1053, 9153

// replicaAddress returns a loopback address that no other run uses at the same time.
func replicaAddress(i int) string { return address(127, 1, os.Getpid()%(1<<14)<<8|i+1) }

// replicaAddresses returns the addresses of the replicas.
func (r *run) replicaAddresses() (all []string) {
	for i := range r.replicas {
		all = append(all, replicaAddress(i))
	}
	return all
}

// resolver returns the replica that stands for the ClusterIP of the cluster's DNS.
func (r *run) resolver() string { return fmt.Sprintf("%s:%d", replicaAddress(0), dnsPort) }

// outside returns the server for names outside the cluster.
func (r *run) outside() string { return fmt.Sprintf("%s:%d", replicaAddress(r.replicas), dnsPort) }

// startReplicas starts the replicas, with the Corefile of kubeadm, and the server for names
// outside the cluster, and waits until the replicas answer.
func (r *run) startReplicas(dir string) error {
	const kubernetes = "kubernetes cluster.local in-addr.arpa ip6.arpa {\n kubeconfig %s\n pods insecure\n fallthrough in-addr.arpa ip6.arpa\n ttl %d\n}\nprometheus %s:%d\n"
	for i, a := range append(r.replicaAddresses(), replicaAddress(r.replicas)) {
		directives := "template IN A {\n answer \"{{ .Name }} 300 IN A 192.0.2.1\"\n}\ntemplate ANY ANY {\n authority \". 300 IN SOA ns. admin. 1 60 60 60 300\"\n}\n"
		if i < r.replicas {
			directives = fmt.Sprintf(kubernetes, r.kubeconfig, ownTTL-1, a, metricsPort)
		}

		file := filepath.Join(dir, a)
		if err := os.WriteFile(file, fmt.Appendf(nil, ".:%d {\nbind %s\n%s}\n", dnsPort, a, directives),
			0o600); err != nil {
			return err
		}

		c := exec.Command(r.seamark, "serve", "--conf", file)
		c.Stderr, c.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return err
		}

		r.processes = append(r.processes, c)
	}

	deadline := time.Now().Add(patience)
	for _, a := range r.replicaAddresses() {
		for portOf(fmt.Sprintf("%s:%d", a, dnsPort), marker, 0) == 0 {
			if time.Now().After(deadline) {
				return errors.New("a replica does not answer")
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

func (r *run) stopReplicas() {
	for _, c := range r.processes {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = c.Wait()
	}
}

// replicaUsage returns the number of queries that the replicas have received, and their
// processor time.
func (r *run) replicaUsage() (queries int64, cpu time.Duration) {
	for i, a := range r.replicaAddresses() {
		cpu += processorTime(r.processes[i].Process.Pid)
		reply, err := http.Get(fmt.Sprintf("http://%s:%d/metrics", a, metricsPort))
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		queries += sum(string(text), "coredns_dns_requests_total")
	}
	return queries, cpu
}
