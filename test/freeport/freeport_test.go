package freeport

import (
	"net"
	"os/exec"
	"sync"
	"testing"
)

// Ports are different, free, and below those of clients. One is free for others after its
// test.
func TestReserve(t *testing.T) {
	seen := map[string]bool{}
	var last string
	t.Run("test", func(t *testing.T) {
		for range 200 {
			last = Reserve(t)
			if seen[last] {
				t.Fatalf("got port %s twice", last)
			}
			seen[last] = true
			if err := probe(last); err != nil {
				t.Error(err)
			}
		}
		if l, err := net.Listen("unix", "@seamark-test-port-"+last); err == nil {
			l.Close()
			t.Errorf("port %s is not reserved", last)
		}
	})
	l, err := net.Listen("unix", "@seamark-test-port-"+last)
	if err != nil {
		t.Fatalf("port %s is reserved after the test: %v", last, err)
	}
	l.Close()
	client, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if port := client.LocalAddr().(*net.UDPAddr).Port; port < firstOfClients() {
		t.Errorf("got port %d of a client, want at least %d", port, firstOfClients())
	}
}

// A port that is in use is not free.
func TestProbeInUse(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:"+Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:"+Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, at := range []net.Addr{tcp.Addr(), udp.LocalAddr()} {
		if _, port, _ := net.SplitHostPort(at.String()); probe(port) == nil {
			t.Errorf("%s %s: got no error, want that it is in use", at.Network(), at)
		}
	}
}

// Addresses are different, and a server can listen at them. One is free for others after its test.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	var last string
	t.Run("test", func(t *testing.T) {
		for range 200 {
			last = Address(t)
			if seen[last] {
				t.Fatalf("got address %s twice", last)
			}
			seen[last] = true
		}
		if l, err := net.Listen("unix", "@seamark-test-address-"+last); err == nil {
			l.Close()
			t.Errorf("address %s is not reserved", last)
		}
		l, err := net.Listen("tcp", net.JoinHostPort(last, Reserve(t)))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
	l, err := net.Listen("unix", "@seamark-test-address-"+last)
	if err != nil {
		t.Fatalf("address %s is reserved after the test: %v", last, err)
	}
	l.Close()
}

// A reserved port can be listened on at once, also while the process starts others.
func TestReservedPortIsFreeBesideForks(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		t.Skipf("this system has no program that ends at once: %v", err)
	}
	_ = exec.Command(program).Run() // the first one of a process forks once more, without the lock
	ended := make(chan struct{})
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					_ = exec.Command(program).Run()
				}
			}
		})
	}
	for range 300 {
		l, err := net.Listen("tcp", "127.0.0.1:"+Reserve(t))
		if err != nil {
			t.Error(err)
			break
		}
		_ = l.Close()
	}
	close(ended)
	forks.Wait()
}
