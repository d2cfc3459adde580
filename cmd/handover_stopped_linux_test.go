package cmd_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/seamark/seamark/server/handover"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// everyTransport is a Corefile with an address for each transport of queries.
const everyTransport = `.:%s tls://.:%s https://.:%s quic://.:%s https3://.:%s {
    bind 127.0.0.1
    tls cert.pem key.pem
    handover seamark.sock
    timeouts {
        idle 2m
    }
    hosts {
        192.0.2.1 %s
    }
}
`

// A stage is a message of a hand-over at which a process is stopped.
type stage struct {
	sender string // of the message: old or new
	kind   handover.Kind
	nth    int    // of this kind by the sender, from 1
	stops  string // the process that is stopped before the message arrives
}

// A handoverRelay passes the messages of a hand-over between two processes, and stops one of them at a stage.
type handoverRelay struct {
	stage
	old, next *handover.Conn
	reached   chan struct{} // closed at the stage
	resume    chan struct{} // closed when the process goes on
	goOn      func()        // closes resume
	stop      func()
	running   sync.WaitGroup
}

// relayHandover begins to listen in a directory for the process that replaces old.
func relayHandover(t *testing.T, dir string, s stage, old *process) (r *handoverRelay, next *process) {
	t.Helper()
	path := filepath.Join(dir, "seamark.sock")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	l, err := handover.Listen(path, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next = launch(t, program.Command(t, dir, "-conf", "Corefile"), os.Stderr, "")

	r = &handoverRelay{stage: s, reached: make(chan struct{}), resume: make(chan struct{})}
	r.goOn = sync.OnceFunc(func() { close(r.resume) })
	r.next = <-l.Requests
	if err := r.next.Accept(); err != nil {
		t.Fatal(err)
	}
	if r.old, err = handover.Dial(path + ".old"); err != nil || r.old == nil {
		t.Fatalf("got no connection to the old process, and error %v", err)
	}
	stopped := map[string]*process{"old": old, "new": next}[s.stops]
	r.stop = func() {
		stopped.signal(syscall.SIGSTOP)
		program.AwaitState(t, stopped.Process.Pid, "T")
	}
	r.running.Go(func() { r.pass("old", r.old, r.next) })
	r.running.Go(func() { r.pass("new", r.next, r.old) })
	t.Cleanup(func() { r.goOn(); r.old.Close(); r.next.Close(); r.running.Wait() })
	return r, next
}

// pass passes the messages of one process until the connection ends.
func (r *handoverRelay) pass(sender string, from, to *handover.Conn) {
	defer to.Close()
	for n := 0; ; {
		m, err := from.Receive(5*time.Minute, handover.DNS, handover.HTTP, handover.State, handover.Successors,
			handover.End, handover.Serving, handover.Connection, handover.Taken)
		if refused, ok := errors.AsType[*handover.RefusedError](err); ok {
			m, err = handover.Message{Kind: handover.Refused, Error: refused.Reason}, nil
		}
		if err != nil {
			return
		}
		if sender == r.sender && m.Kind == r.kind {
			if n++; n == r.nth {
				r.stop()
				close(r.reached)
				if r.stops == sender {
					<-r.resume // it sends nothing
				}
			}
		}
		err = to.Send(m, time.Minute)
		if m.File != nil {
			_ = m.File.Close()
		}
		if err != nil {
			return
		}
	}
}

// everyClient sends queries over each transport.
type everyClient struct {
	t                             *testing.T
	port, tls, https, doq, https3 string
	quic                          quicClient
}

// answered fails the test unless a query over each transport is answered, over new connections.
func (c *everyClient) answered(when string) {
	c.t.Helper()
	secure := &tls.Config{InsecureSkipVerify: true}
	direct := func(network, port string) error {
		client := dns.Client{Net: network, Timeout: time.Minute, TLSConfig: secure}
		m, _, err := client.Exchange(new(dns.Msg).SetQuestion(serviceName, dns.TypeA), "127.0.0.1:"+port)
		if err == nil && len(m.Answer) != 1 {
			err = fmt.Errorf("got %v, want one address", m)
		}
		return err
	}
	through := func(t http.RoundTripper, port string) error {
		client := &http.Client{Transport: t, Timeout: time.Minute}
		defer client.CloseIdleConnections()
		return exchangeHTTPS(client, http.MethodPost, "127.0.0.1:"+port, serviceName)
	}
	overQUIC := func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
		defer cancel()
		client := quicClient{at: "127.0.0.1:" + c.doq}
		err := client.ask(ctx)
		if client.conn != nil {
			_ = client.conn.CloseWithError(0, "")
		}
		return err
	}
	h3 := &http3.Transport{TLSClientConfig: secure.Clone(), QUICConfig: &quic.Config{HandshakeIdleTimeout: time.Minute}}
	defer h3.Close()

	start := time.Now()
	var running sync.WaitGroup
	for transport, ask := range map[string]func() error{
		"UDP":    func() error { return direct("udp", c.port) },
		"TCP":    func() error { return direct("tcp", c.port) },
		"TLS":    func() error { return direct("tcp-tls", c.tls) },
		"HTTPS":  func() error { return through(&http.Transport{TLSClientConfig: secure.Clone()}, c.https) },
		"QUIC":   overQUIC,
		"HTTP/3": func() error { return through(h3, c.https3) },
	} {
		running.Go(func() {
			if err := ask(); err != nil {
				c.t.Errorf("%s, %s: %v", transport, when, err)
			}
			c.t.Logf("%s, %s: %v", transport, when, time.Since(start).Round(time.Millisecond))
		})
	}
	running.Wait()
}

// A process that is stopped during a hand-over keeps the other one from no transport, whatever the stage. The
// connections of the old one over QUIC are closed without an error when it goes on.
func TestHandoverStoppedProcess(t *testing.T) {
	long(t)
	for name, s := range map[string]stage{
		"old process passes its sockets":             {"old", handover.DNS, 1, "old"},
		"old process has passed its sockets":         {"old", handover.End, 1, "old"},
		"old process learns that the new one serves": {"new", handover.Serving, 1, "old"},
		"old process has passed connections":         {"old", handover.End, 2, "old"},
		"old process learns that it is replaced":     {"new", handover.Taken, 1, "old"},
		"new process receives sockets":               {"old", handover.End, 1, "new"},
		"new process has begun to serve":             {"new", handover.Serving, 1, "new"},
		"new process has received connections":       {"old", handover.End, 2, "new"},
		"new process takes over":                     {"new", handover.Taken, 1, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stoppedHandover(t, s)
		})
	}
}

func stoppedHandover(t *testing.T, s stage) {
	dir := t.TempDir()
	writeCertificate(t, dir)
	c := &everyClient{t: t, port: freeport.Reserve(t), tls: freeport.Reserve(t), https: freeport.Reserve(t), doq: freeport.Reserve(t), https3: freeport.Reserve(t)}
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(everyTransport, c.port, c.tls, c.https, c.doq, c.https3, serviceName))
	old := serve(t, dir, "", "-conf", "Corefile")
	c.quic.at = "127.0.0.1:" + c.doq
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := c.quic.ask(ctx); err != nil {
		t.Fatal(err)
	}

	r, next := relayHandover(t, dir, s, old)
	<-r.reached
	serves := s.kind == handover.Serving || s.kind == handover.Taken || s.nth == 2 // the new process does
	switch {
	case s.stops == "new":
		if err := c.quic.ask(ctx); err != nil || c.quic.connections != 1 {
			t.Errorf("connection of the old process: got error %v and %d connections, want that it is used", err, c.quic.connections)
		}
		c.answered("new process is stopped")
		next.signal(syscall.SIGCONT)
		r.goOn()
	case serves:
		c.answered("old process is stopped")
		old.signal(syscall.SIGCONT)
		r.goOn()
	default: // only the old process has what is needed to answer
		if code := next.exit(); code != 1 {
			t.Errorf("exit status of the new process: got %d, want 1", code)
		}
		old.signal(syscall.SIGCONT)
		r.goOn()
		c.answered("old process goes on")
		old.stop()
		return
	}

	next.greeting()
	if code := old.exit(); code != 0 {
		t.Errorf("exit status of the old process: got %d, want 0", code)
	}
	if err := c.quic.ask(ctx); err != nil || c.quic.connections != 2 {
		t.Errorf("after the hand-over: got error %v and %d connections, want a second one after the first was closed without an error",
			err, c.quic.connections)
	}
	c.answered("after the hand-over")
	next.stop()
}
