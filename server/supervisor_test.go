package server

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/corefile"
)

// A countingSupervisor counts heartbeats and kept sockets. It calls keeping before it keeps them.
type countingSupervisor struct {
	beats, sockets atomic.Int64
	keeping        func()
}

func (s *countingSupervisor) Beat() { s.beats.Add(1) }

func (s *countingSupervisor) Keep(files []*os.File) error {
	s.keeping()
	s.sockets.Store(int64(len(files)))
	return nil
}

// Heartbeats stop while a reader does not return from a handler. A reload passes the
// sockets of the new configuration, before a query that one of them has received is answered.
func TestSupervisor(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const one, two = "a {\n bind 127.0.0.1\n code 0\n}\n", "a {\n bind 127.0.0.1\n code 0\n}\nb {\n bind ::1\n code 0\n}\n"
	var s countingSupervisor
	var text atomic.Value
	text.Store(one)
	changed := make(chan struct{}, 1)
	started := make(chan struct{})
	r := Run{
		Options: onPortZero(), Supervisor: &s, Changed: changed, Started: func() { close(started) },
		Read: func() corefile.Reading { return corefile.ReadText("Corefile", []byte(text.Load().(string))) },
	}
	zone := "a."
	var last net.Conn // to the last listener
	s.keeping = func() {
		listeners := r.current.Load().listeners
		var err error
		if last, err = net.Dial("udp", listeners[len(listeners)-1].Addr().String()); err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = last.Close() })
		packet, err := new(dns.Msg).SetQuestion(zone, dns.TypeA).Pack()
		if err == nil {
			_, err = last.Write(packet)
		}
		if err != nil {
			t.Error(err)
		}
		_ = last.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := last.Read(make([]byte, 512)); err == nil {
			t.Errorf("got %d bytes of a reply before the socket is kept, want none", n)
		}
		_ = last.SetReadDeadline(time.Time{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	<-started
	sockets := s.sockets.Load()
	if sockets < 2 {
		t.Errorf("sockets: got %d, want one for TCP and at least one for UDP", sockets)
	}
	more := func(n int64) bool {
		before := s.beats.Load()
		for deadline := time.Now().Add(time.Minute); s.beats.Load() < before+n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return false
			}
		}
		return true
	}
	if !more(2) {
		t.Fatalf("heartbeats: got %d, want more", s.beats.Load())
	}
	var reader sync.Mutex // as a reader that serves
	port := r.current.Load().listeners[0].Port()
	port.AddReader(&reader)
	reader.Lock()
	before := s.beats.Load() // another one may be on its way
	for deadline := time.Now().Add(3 * beatInterval); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if s.beats.Load() > before+1 {
			t.Fatal("got heartbeats while a reader holds its lock, want none")
		}
	}
	reader.Unlock()
	if !more(2) {
		t.Error("got no heartbeats after the reader has released its lock")
	}
	port.RemoveReader(&reader)
	text.Store(two)
	zone = "b."
	changed <- struct{}{}
	for deadline := time.Now().Add(time.Minute); s.sockets.Load() != 2*sockets; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("sockets after the reload: got %d, want %d", s.sockets.Load(), 2*sockets)
		}
	}
	if _, err := last.Read(make([]byte, 512)); err != nil {
		t.Errorf("the query of before: got %v, want a reply", err)
	}
}
