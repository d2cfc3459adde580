package node

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/observe/traffic"
)

// tail returns the events of the admin API, which end with the test.
func (n *testNode) tail(p *nodeProcess, address string) *bufio.Reader {
	n.t.Helper()
	var c net.Conn
	n.eventually("admin API", p, func() (ok bool) {
		var err error
		n.do(func() { c, err = net.Dial("tcp", address) })
		return err == nil
	})
	n.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(c, "GET /v1/tail HTTP/1.0\r\nHost: localhost\r\n\r\n")
	lines := bufio.NewReader(c)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			n.t.Fatalf("tail: got %q and error %v", line, err)
		}
		if strings.TrimSpace(line) == "" {
			return lines
		}
	}
}

// kernelEvent returns a channel that receives the first event of the kernel, or an error.
func kernelEvent(lines *bufio.Reader) <-chan string {
	found := make(chan string, 1)
	go func() {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				found <- err.Error()
				return
			}
			if strings.Contains(line, `"kernel":true`) {
				found <- line
				return
			}
		}
	}()
	return found
}

const adminAddress = "127.0.0.1:8053"

// startWithAdmin starts a node with the admin API, the capabilities of deploy/node and the sandbox.
func (n *testNode) startWithAdmin(capture string) *nodeProcess {
	n.args = n.files(cached)
	return n.startChanged(func(c *exec.Cmd) { confined(c, deployed) }, capture, "-sandbox=required", "-admin="+adminAddress,
		"-metrics-listen-address=127.0.0.1:9353")
}

// clientQueries returns the number of a client's queries in the list of the admin API; 0 before there is a list.
func (n *testNode) clientQueries(p *nodeProcess, address, client string) float64 {
	n.t.Helper()
	_, body, _ := strings.Cut(n.page(p, address, "/v1/top?by=clients"), "\n\n")
	var list traffic.Top
	if json.Unmarshal([]byte(body), &list) != nil {
		return 0
	}
	for _, e := range list.Entries {
		if e.Key == client {
			return e.Count
		}
	}
	return 0
}

// With the capabilities of deploy/node and the sandbox, the list of clients counts a sample of the queries that the
// kernel answers.
func TestNodeRepeatClients(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		p := n.startWithAdmin(capture)
		c := n.dial("udp", clusterDNS)
		client := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().String()
		n.eventually("more queries of the client than have reached the server", p, func() bool {
			n.ask(c, "start.example.")
			return n.clientQueries(p, adminAddress, client) > n.total(p, "seamark_node_capture_query_packets_total")+10
		})
		n.end(p, syscall.SIGTERM)
	})
}

// With the capabilities of deploy/node and the sandbox, tail has a sample of the queries that the kernel answers, with the
// pod that has sent them.
func TestNodeRepeatSamples(t *testing.T) {
	eachProgramCapture(t, func(n *testNode, capture string) {
		p := n.startWithAdmin(capture)
		c := n.dial("udp", clusterDNS)
		n.eventually("repeated replies", p, func() bool {
			n.ask(c, "start.example.")
			return n.total(p, repeatedReplies) > 0
		})

		line := kernelEvent(n.tail(p, adminAddress))
		var got traffic.Event
		n.eventually("event of the kernel", p, func() bool {
			n.ask(c, "start.example.")
			select {
			case text := <-line:
				if err := json.Unmarshal([]byte(text), &got); err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				return true
			default:
				return false
			}
		})
		want := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		if got.Client != want || got.Name != "start.example." || got.Source != "cache" || got.Weight < 1 || got.RCode != "NOERROR" {
			t.Errorf("got %+v, want a query of %s for start.example.", got, want)
		}
		n.end(p, syscall.SIGTERM)
	})
}
