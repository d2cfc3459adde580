// Package freeport reserves ports and addresses for the servers that tests start. Only tests import it.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// lowest is the first port that Reserve returns.
const lowest = 10_000

// Reserve returns a port that is free for UDP and TCP at every address, and that no other
// test gets before t ends, not even in another process. On Linux it is below the range from
// which the system chooses ports of clients: one of that range may be in use again by the
// time the server listens.
func Reserve(t testing.TB) string {
	t.Helper()
	var err error
	for range 100 {
		port := strconv.Itoa(lowest + rand.IntN(firstOfClients()-lowest))
		// A name without a file, which the system frees when the process ends.
		var reserved net.Listener
		if reserved, err = net.Listen("unix", "@seamark-test-port-"+port); err != nil {
			continue
		}
		if err = probe(port); err != nil {
			_ = reserved.Close()
			continue
		}
		t.Cleanup(func() { _ = reserved.Close() })
		return port
	}
	t.Fatalf("no free port in 100 attempts: %v", err)
	return ""
}

// Address returns a loopback address of IPv4 that no other test gets before t ends, not even in another process:
// for servers whose clients have no option for the port.
func Address(t testing.TB) string {
	t.Helper()
	var err error
	for range 100 {
		address := fmt.Sprintf("127.%d.%d.%d", 128+rand.IntN(127), rand.IntN(256), 1+rand.IntN(254))
		var reserved net.Listener
		if reserved, err = net.Listen("unix", "@seamark-test-address-"+address); err == nil {
			t.Cleanup(func() { _ = reserved.Close() })
			return address
		}
	}
	t.Fatalf("no address in 100 attempts: %v", err)
	return ""
}

// probe returns an error if the port is in use. A child of this process that was forked meanwhile, and does not
// execute its program yet, would have the sockets for a moment longer.
func probe(port string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	tcp, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	return udp.Close()
}

// firstOfClients returns the lowest port that the system chooses for clients.
func firstOfClients() int {
	first := 0
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &first)
	}
	if err != nil || first < lowest+1000 {
		return 32_768 // the default
	}
	return first
}
