package supervisor

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/server/handover"
)

// A worker whose Keep fails between two sockets serves on, and the next call passes its own sockets
// alone.
func TestKeepAfterFailure(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*handover.Conn
	for i, fd := range fds {
		if ends[i], err = handover.FileConn(os.NewFile(uintptr(fd), "worker")); err != nil {
			t.Fatal(err)
		}
	}
	supervised := &worker{events: make(chan event)}
	go supervised.run(ends[0], 1<<30) // no such process: it has ended
	supervised.reply = func(error) { _ = ends[0].Send(handover.Message{Kind: handover.End}, sendTimeout) }
	w := &Worker{conn: ends[1], replies: make(chan handover.Message)}
	go func() {
		for range 2 {
			if m, err := w.conn.Receive(replyTimeout, handover.End); err == nil {
				w.replies <- m
			}
		}
	}()

	file := func() *os.File {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	closed := file()
	_ = closed.Close()
	if err := w.Keep([]*os.File{file(), file(), closed, file()}); err == nil {
		t.Fatal("Keep of a closed file: got no error")
	}

	kept := make(chan error, 1)
	go func() { kept <- w.Keep([]*os.File{file()}) }()
	e := <-supervised.events
	if e.kind != handover.End || len(e.sockets) != 1 {
		t.Errorf("after a failure: got %s with %d sockets, want an end with one", e.kind, len(e.sockets))
	}
	supervised.reply(nil)
	if err := <-kept; err != nil {
		t.Errorf("Keep after a failure: %v", err)
	}
	closeSockets(e.sockets)

	ends[1].Close()
	if e := <-supervised.events; e.kind != kindEnded {
		t.Errorf("at the end: got %s, want %s", e.kind, kindEnded)
	}
}
