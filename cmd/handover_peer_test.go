package cmd_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/server/handover"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/program"
)

// These tests are one of the two processes of a hand-over themselves, and end or fail at a chosen message.

// begin takes over from the process that listens in a directory, up to the message serving, and returns the
// connection to it.
func begin(t *testing.T, dir string) *handover.Conn {
	t.Helper()
	c, err := handover.Dial(filepath.Join(dir, "seamark.sock"))
	if err != nil || c == nil {
		t.Fatalf("got no connection, and error %v", err)
	}
	t.Cleanup(c.Close)
	for {
		m, err := c.Receive(time.Minute, handover.DNS, handover.HTTP, handover.State, handover.Successors, handover.End)
		if err != nil {
			t.Fatal(err)
		}
		if m.File != nil {
			_ = m.File.Close()
		}
		if m.Kind == handover.End {
			return c
		}
	}
}

func say(t *testing.T, c *handover.Conn, kinds ...handover.Kind) {
	t.Helper()
	for _, kind := range kinds {
		if err := c.Send(handover.Message{Kind: kind}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
}

// zoneSerial returns the serial number of a zone, or 0.
func zoneSerial(port, zone string) uint32 {
	reply, err := ask("udp", port, zone, dns.TypeSOA)
	if err != nil || len(reply.Answer) != 1 {
		return 0
	}
	return reply.Answer[0].(*dns.SOA).Serial
}

// A new process that ends after it has served may have served versions with the serial numbers of the time.
// Those of the old process are greater from then on.
func TestHandoverSerialAfterDeath(t *testing.T) {
	dir, port := handoverDir(t)
	text, err := os.ReadFile(filepath.Join(dir, "Corefile"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "Corefile"), strings.Replace(string(text), "    health", `    transfer {
        to *
    }
    gateway hosts.example {
        external
        apex ns1 192.0.2.53
        manifests objects
    }
    health`, 1))
	p := serve(t, dir, "", "-conf", "Corefile")
	answers(t, "127.0.0.1:"+port)
	zones := []string{"cluster.local.", "hosts.example."}
	for range 2 {
		before := map[string]uint32{}
		for _, zone := range zones {
			chaintest.Eventually(t, "a SOA record of "+zone, func() bool {
				before[zone] = zoneSerial(port, zone)
				return before[zone] > 0
			})
		}
		c := begin(t, dir)
		say(t, c, handover.Serving)
		served := uint32(time.Now().UnixMilli()*64/1000) + 64 // the first of a process: see directive/kubernetes
		c.Close()
		p.until("Hand-over failed, continuing to serve")
		for _, zone := range zones {
			if got := zoneSerial(port, zone); int32(got-served) <= 0 || int32(got-before[zone]) <= 0 {
				t.Errorf("%s: got serial number %d, want more than %d of this process and %d of the other one", zone, got, before[zone], served)
			}
		}
	}
	p.stop()
}

// Once the new process has said that it has taken over, the old one ends, although the connection has ended
// before the old one could pass its own.
func TestHandoverTakenEarly(t *testing.T) {
	dir, port := handoverDir(t)
	p := serve(t, dir, "", "-conf", "Corefile")
	answers(t, "127.0.0.1:"+port)
	for range 5 {
		client, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
	}

	c := begin(t, dir)
	say(t, c, handover.Serving, handover.Taken)
	c.Close()
	p.until("Handed over to another process, shutting down")
	if code := p.exit(); code != 0 {
		t.Errorf("exit status of the old process: got %d, want 0", code)
	}
}

// A new process that is stopped after it has begun to serve is waited for, longer than a message may take:
// then the old one ends, and not before.
func TestHandoverSlowProcess(t *testing.T) {
	long(t)
	t.Parallel()
	dir, port := handoverDir(t)
	p := serve(t, dir, "", "-conf", "Corefile")
	answers(t, "127.0.0.1:"+port)
	c := begin(t, dir)
	say(t, c, handover.Serving)
	if _, err := c.Receive(time.Minute, handover.End); err != nil {
		t.Fatal(err)
	}

	// The old process sends nothing, and goes on answering, until it hears from this one.
	if _, err := c.Receive(7*time.Second, handover.End); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v, want that the old process waits", err)
	}
	answers(t, "127.0.0.1:"+port)
	say(t, c, handover.Taken)
	if code := p.exit(); code != 0 {
		t.Errorf("exit status of the old process: got %d, want 0", code)
	}
}

// An old process that goes on alone says so, and the new one ends, also if it serves already. If the old one ends
// without a word, the new one serves.
func TestHandoverRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		old    func(t *testing.T, c *handover.Conn)
		serves bool
	}{
		{"before the end of its messages", func(_ *testing.T, c *handover.Conn) { c.Refuse(errors.New("no file descriptors")) }, false},
		{"before it knows that the new one serves", func(t *testing.T, c *handover.Conn) {
			say(t, c, handover.End)
			c.Refuse(errors.New("too late"))
		}, false},
		{"while the new one serves", func(t *testing.T, c *handover.Conn) {
			say(t, c, handover.End)
			if _, err := c.Receive(time.Minute, handover.Serving); err != nil {
				t.Error(err)
			}
			c.Refuse(errors.New("too late"))
		}, false},
		{"end while the new one serves", func(t *testing.T, c *handover.Conn) {
			say(t, c, handover.End)
			if _, err := c.Receive(time.Minute, handover.Serving); err != nil {
				t.Error(err)
			}
			c.Close()
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, port := handoverDir(t)
			l, err := handover.Listen(filepath.Join(dir, "seamark.sock"), func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			write(t, filepath.Join(dir, "pid"), fmt.Sprintln(os.Getpid()))
			p := launch(t, program.Command(t, dir, "-conf", "Corefile", "-pidfile", "pid"), os.Stderr, "")
			conn := <-l.Requests
			if err := conn.Accept(); err != nil {
				t.Fatal(err)
			}
			c.old(t, conn)

			if c.serves {
				p.greeting()
				answers(t, "127.0.0.1:"+port)
				p.stop()
				return
			}
			if code := p.exit(); code != 1 {
				t.Errorf("exit status of the new process: got %d, want 1", code)
			}
			if pid, err := os.ReadFile(filepath.Join(dir, "pid")); string(pid) != fmt.Sprintln(os.Getpid()) {
				t.Errorf("pidfile: got %q, error %v, want the process ID of the old process", pid, err)
			}
		})
	}
}
