package supervisor

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/server/handover"
)

// connected returns the two ends of a worker. The messages of its requests are in the events of
// supervised, and its replies are sent by reply.
func connected(t *testing.T) (supervised *worker, w *Worker) {
	t.Helper()
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

	supervised = &worker{events: make(chan event)}
	go supervised.run(ends[0], 1<<30) // no such process: it has ended
	supervised.reply = func(id uint64, err error) {
		m := handover.Message{Kind: handover.End, ID: id}
		if err != nil {
			m = handover.Message{Kind: handover.Refused, ID: id, Error: err.Error()}
		}
		_ = ends[0].Send(m, sendTimeout)
	}
	supervised.share = func(id uint64, f *os.File) {
		_ = ends[0].Send(handover.Message{Kind: handover.State, ID: id, File: f}, sendTimeout)
	}

	w = &Worker{conn: ends[1]}
	go func() {
		for {
			m, err := w.conn.Receive(replyTimeout, handover.End, handover.Refused, handover.State)
			if err != nil {
				return
			}
			w.take(m)
		}
	}()
	return supervised, w
}

// A reply to a request that the worker waits for no longer is not that to the next one, and its file
// is not used. Later messages are received meanwhile.
func TestLateReply(t *testing.T) {
	supervised, w := connected(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()

	late := uint64(1)
	w.asked = late // the request has ended at its time limit
	supervised.share(late, null)
	supervised.reply(late, errors.New("late"))
	supervised.reply(late, nil)
	opened := make(chan error, 1)
	go func() { opened <- w.Open() }()

	e := <-supervised.events
	supervised.share(late, null)
	supervised.reply(late, errors.New("late"))
	supervised.reply(e.id, nil)
	if err := <-opened; err != nil || len(w.Files()) > 0 {
		t.Errorf("got error %v and files %v of late replies, want none", err, w.Files())
	}

	go func() { opened <- w.Open() }()
	e = <-supervised.events
	supervised.share(e.id, null)
	supervised.share(e.id, null)
	supervised.reply(e.id, nil)
	if err := <-opened; err != nil || len(w.Files()) != 2 {
		t.Errorf("got error %v and files %v, want the two of the reply", err, w.Files())
	}
	go func() { opened <- w.Open() }()
	e = <-supervised.events
	supervised.reply(e.id, nil)
	supervised.reply(e.id, errors.New("twice"))
	if err := <-opened; err != nil {
		t.Errorf("got error %v, want nil", err)
	}
	go func() { opened <- w.Open() }()
	supervised.reply((<-supervised.events).id, errors.New("refused"))
	if err := <-opened; err == nil || err.Error() != "refused" {
		t.Errorf("got error %v, want that of the reply", err)
	}

	w.conn.Close()
	if e := <-supervised.events; e.kind != kindEnded {
		t.Errorf("at the end: got %s, want %s", e.kind, kindEnded)
	}
}

// A worker whose Keep fails between two sockets serves on, and the next call passes its own sockets
// alone.
func TestKeepAfterFailure(t *testing.T) {
	supervised, w := connected(t)
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
	supervised.reply(e.id, nil)
	if err := <-kept; err != nil {
		t.Errorf("Keep after a failure: %v", err)
	}
	closeSockets(e.sockets)

	w.conn.Close()
	if e := <-supervised.events; e.kind != kindEnded {
		t.Errorf("at the end: got %s, want %s", e.kind, kindEnded)
	}
}
