package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// newHarnessWithDialer is like newHarness, with a dialer that fails with an error unless that is 0.
// failed counts that.
func newHarnessWithDialer(t *testing.T, text string) (r *harness, failure *atomic.Uintptr, failed *atomic.Int32) {
	t.Helper()
	failure, failed = new(atomic.Uintptr), new(atomic.Int32)
	return newHarnessWith(t, text, func(ctx context.Context, network, address string) (net.Conn, error) {
		if number := failure.Load(); number != 0 {
			failed.Add(1)
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("socket", syscall.Errno(number))}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}), failure, failed
}

// newHarnessWith is like newHarness, with a dialer.
func newHarnessWith(t *testing.T, text string, dial dialFunc) *harness {
	t.Helper()
	b, err := setup(".:53 {\n"+text+"\n}\n", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	b.Dial = dial
	r := &harness{t: t}
	r.serve(b, nil)
	t.Cleanup(func() {
		r.lot.Close(t.Context())
		r.start.Stop()
	})
	return r
}

var localErrors = []syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EPERM, syscall.EACCES,
}

// An error of this machine is not the upstream's: it is neither down nor suspect.
func TestLocalErrorsNotCountedAgainstUpstream(t *testing.T) {
	for _, number := range localErrors {
		for _, proto := range []dns.Proto{dns.UDP, dns.TCP} {
			t.Run(fmt.Sprint(number, proto), func(t *testing.T) {
				t.Parallel()
				up := newFakeUpstream(t, answerWithAddress("1"))
				r, failure, failed := newHarnessWithDialer(t, "forward . "+up.addr+" {\n health_check 10ms\n unanswered 0s\n}")
				u := r.forward[0].set.current.Load().all[0]
				failure.Store(uintptr(number))
				for range 10 {
					if m, err := r.ask(query("a.example.", mdns.TypeA), proto); m.Rcode != mdns.RcodeServerFailure || !isLocal(err) {
						t.Errorf("got error %v and\n%v\nwant SERVFAIL and %v", err, m, number)
					}
				}
				if u.down() || u.suspect(time.Now()) || u.checking.Load() {
					t.Errorf("got down %v, suspect %v, health checks %v, want none", u.down(), u.suspect(time.Now()), u.checking.Load())
				}

				// Health checks that have another reason do not count it either.
				before := failed.Load()
				u.startChecks()
				chaintest.Eventually(t, "five checks", func() bool { return failed.Load() >= before+5 })
				if n := u.failedChecks.Load(); n != 0 || u.down() {
					t.Errorf("got %d failed checks, want none", n)
				}
				failure.Store(0)
				chaintest.Eventually(t, "the checks end", func() bool { return !u.checking.Load() })
				if m, _ := r.ask(query("b.example.", mdns.TypeA), proto); brief(m) != "192.0.2.1" {
					t.Errorf("got %v, want an answer", m)
				}
			})
		}
	}
}

// If no socket can be opened, the ones that are open are used, also those due to be replaced.
func TestOpenSocketUsedWithoutAnother(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r, failure, _ := newHarnessWithDialer(t, "forward . "+up.addr)
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
	u := r.forward[0].set.current.Load().all[0]
	failure.Store(uintptr(syscall.EMFILE))
	for i := range 5 {
		u.mu.Lock()
		for _, s := range u.sockets {
			s.uses = 0
		}
		u.mu.Unlock()
		r.wantAnswer(fmt.Sprintf("n%d.example.", i), mdns.TypeA, "192.0.2.1")
	}
	if _, _, ports := up.counts(); ports != 1 {
		t.Errorf("got queries from %d ports, want 1", ports)
	}

	failure.Store(0)
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
	if _, _, ports := up.counts(); ports != 2 {
		t.Errorf("got queries from %d ports, want 2: the old socket is replaced", ports)
	}
}

// Without a UDP socket, or for a further connection, a connection that is open is used.
func TestOpenConnectionUsedWithoutAnother(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r, failure, _ := newHarnessWithDialer(t, "forward . "+up.addr)
	if m, _ := r.ask(query("a.example.", mdns.TypeA), dns.TCP); brief(m) != "192.0.2.1" {
		t.Fatalf("got %v, want an answer", m)
	}
	failure.Store(uintptr(syscall.EADDRNOTAVAIL))
	r.wantAnswer("b.example.", mdns.TypeA, "192.0.2.1")
	u := r.forward[0].set.current.Load().all[0]
	x := &exchange{request: request{question: questionOf("\x01c\x00", 1)}}
	outcomes := make(checkOutcomes, 1)
	u.send(&attempt{request: &x.request, requester: outcomes, useStream: true, fresh: true})
	if o := <-outcomes; o.err != nil {
		t.Errorf("over another connection: got %v, want a reply", o.err)
	}
	if n, tcp, _ := up.counts(); n != 3 || tcp != 3 {
		t.Errorf("got %d queries, %d over TCP, want 3 and 3", n, tcp)
	}
}

// However soon a connection cannot be made, or is closed, the attempts on it end with its error.
func TestFailedConnectionErrorKept(t *testing.T) {
	up := newFakeUpstream(t, answerWithAddress("1"))
	r, failure, _ := newHarnessWithDialer(t, "forward . "+up.addr)
	u := r.forward[0].set.current.Load().all[0]
	failure.Store(uintptr(syscall.ENOMEM))
	outcomes := make(checkOutcomes, 1)
	newAttempt := func() *attempt {
		return &attempt{request: u.options().check.request(), upstream: u, probe: true, requester: outcomes}
	}

	if s, err := u.stream(newAttempt()); s != nil || err != nil { // before send could be called
		t.Fatalf("got the connection %v and error %v, want neither", s, err)
	}
	if o := <-outcomes; !errors.Is(o.err, syscall.ENOMEM) {
		t.Errorf("new connection: got %v, want %v", o.err, syscall.ENOMEM)
	}

	// All have been closed since they were chosen.
	u.mu.Lock()
	u.streams, u.sockets = nil, nil
	for range maxSockets {
		stream, socket := &stream{upstream: u, opened: time.Now()}, &socket{upstream: u, opened: time.Now(), uses: maxUses}
		stream.close(syscall.ENOBUFS)
		socket.close(syscall.ECONNREFUSED)
		u.streams, u.sockets = append(u.streams, stream), append(u.sockets, socket)
	}
	u.mu.Unlock()
	u.sendStream(newAttempt())
	if o := <-outcomes; o.err != syscall.ENOBUFS {
		t.Errorf("closed connections: got %v, want %v", o.err, syscall.ENOBUFS)
	}
	u.sendUDP(newAttempt())
	if o := <-outcomes; o.err != syscall.ECONNREFUSED {
		t.Errorf("closed sockets: got %v, want %v", o.err, syscall.ECONNREFUSED)
	}
}

// Many clients at a time get the local error over every transport, and the upstream is not suspect.
func TestLocalErrorsOverEveryTransport(t *testing.T) {
	for _, to := range []string{
		"forward . 127.0.0.1:9", "forward . tls://127.0.0.1:9", "forward . quic://127.0.0.1:9", "forward . https://127.0.0.1:9",
		"grpc . 127.0.0.1:9",
	} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			r := newHarness(t, to)
			u := r.forward[0].set.current.Load().all[0]
			u.options().sourceAddress = netip.MustParseAddr("192.0.2.9") // which this machine does not have
			r.sendOnce()
			var clients sync.WaitGroup
			for i := range 100 {
				clients.Go(func() {
					from := fmt.Sprintf("10.0.1.%d", i)
					m, err := r.askFrom(from, query(fmt.Sprintf("n%d.example.", i), mdns.TypeA), []dns.Proto{dns.UDP, dns.TCP}[i%2])
					if m.Rcode != mdns.RcodeServerFailure || !errors.Is(err, syscall.EADDRNOTAVAIL) {
						t.Errorf("got error %v and\n%v\nwant SERVFAIL and %v", err, m, syscall.EADDRNOTAVAIL)
					}
				})
			}
			clients.Wait()
			if u.down() || u.suspect(time.Now()) || u.checking.Load() {
				t.Errorf("got down %v, suspect %v, health checks %v, want none", u.down(), u.suspect(time.Now()), u.checking.Load())
			}
		})
	}
}
