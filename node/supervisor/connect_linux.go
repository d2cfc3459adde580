package supervisor

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/server/handover"
)

// A Worker is the supervisor, as the worker sees it. One goroutine may call its methods,
// and others Beat, Count and State.
type Worker struct {
	conn    *handover.Conn
	page    page
	sockets []*os.File
	files   []*os.File // of the Capture
	asked   uint64     // the ID of the last request
	pending atomic.Pointer[request]
}

// A request is one that waits for its reply.
type request struct {
	id    uint64
	files []*os.File // that the supervisor has sent before the reply
	reply chan handover.Message
}

// Connect connects to the supervisor. It returns nil if the process is not a worker. The
// process ends when the supervisor ends.
func Connect() (*Worker, error) {
	if os.Getenv(environment) == "" {
		return nil, nil
	}
	_ = os.Unsetenv(environment) // commands that it runs are no workers
	unix.CloseOnExec(connFD)
	unix.CloseOnExec(pageFD)

	conn, err := handover.FileConn(os.NewFile(connFD, "supervisor"))
	if err != nil {
		return nil, fmt.Errorf("connecting to the supervisor: %w", err)
	}

	w := &Worker{conn: conn}
	if w.page, err = mapPage(os.NewFile(pageFD, "page")); err != nil {
		return nil, err
	}
	for {
		m, err := conn.Receive(sendTimeout, handover.DNS, handover.End)
		if err != nil {
			return nil, err
		}
		if m.Kind == handover.End {
			break
		}
		w.sockets = append(w.sockets, m.File)
	}

	go w.receive() // until the end of the process
	return w, conn.Send(handover.Message{Kind: handover.Hello}, sendTimeout)
}

// receive receives the replies. It ends the process if the supervisor has ended: the
// kernel does not do so for all binaries with capabilities.
func (w *Worker) receive() {
	for {
		m, err := w.conn.Receive(idle, handover.End, handover.Refused, handover.State)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			os.Exit(1)
		}
		w.take(m)
	}
}

// take takes a message of the supervisor. A reply that is late must not be that to the next request,
// nor wait for one: then the end of the supervisor would not be noticed.
func (w *Worker) take(m handover.Message) {
	r := w.pending.Load()
	switch {
	case r == nil || r.id != m.ID:
		_ = m.File.Close() // an error without a file
	case m.Kind == handover.State:
		r.files = append(r.files, m.File)
	case w.pending.CompareAndSwap(r, nil):
		r.reply <- m
	}
}

// ask sends a message and waits for the reply. It returns the files that the supervisor has sent.
func (w *Worker) ask(kind handover.Kind, timeout time.Duration) ([]*os.File, error) {
	w.asked++
	r := &request{id: w.asked, reply: make(chan handover.Message, 1)}
	w.pending.Store(r)
	defer w.pending.Store(nil)

	if err := w.conn.Send(handover.Message{Kind: kind, ID: r.id}, min(timeout, sendTimeout)); err != nil {
		return nil, err
	}
	select {
	case m := <-r.reply:
		if m.Kind == handover.Refused {
			return nil, errors.New(m.Error)
		}
		return r.files, nil
	case <-time.After(timeout):
		return nil, fmt.Errorf("the supervisor did not answer %s within %s", kind, timeout.Round(time.Millisecond))
	}
}

// Sockets returns the sockets of the worker before, for one call.
func (w *Worker) Sockets() []*os.File { return w.sockets }

// Open makes the supervisor prepare the node. The configuration is valid.
func (w *Worker) Open() (err error) {
	w.files, err = w.ask(kindOpen, replyTimeout)
	return err
}

// Files returns the files of Capture.Files, after Open.
func (w *Worker) Files() []*os.File { return w.files }

// Keep makes the supervisor keep copies of the sockets, in place of earlier ones. A reload waits for it: it
// returns within keepTimeout. A supervisor that has been busy takes them later.
func (w *Worker) Keep(sockets []*os.File) error {
	end := time.Now().Add(keepTimeout)
	send := func(m handover.Message) error { return w.conn.Send(m, time.Until(end)) }

	// An earlier call may have failed between two sockets.
	err := send(handover.Message{Kind: handover.Begin})
	for i := 0; err == nil && i < len(sockets); i++ {
		err = send(handover.Message{Kind: handover.DNS, File: sockets[i]})
	}
	if err == nil {
		_, err = w.ask(handover.End, time.Until(end))
	}
	return err
}

// KeepText keeps a text for the next worker, for which it is LastText.
func (w *Worker) KeepText(text []byte) error { return w.page.keep(text) }

// LastText returns the text of KeepText of the workers before, "" if there is none.
func (w *Worker) LastText() string { return w.page.kept() }

// Beat records that the worker makes progress.
func (w *Worker) Beat() { w.page.beat.Store(monotonic()) }

// Attached returns the worker's end of the connection to Options.Attach, which there has to be. It is called once.
func (w *Worker) Attached() *os.File {
	unix.CloseOnExec(attachedFD)
	return os.NewFile(attachedFD, "attached")
}

// Serving makes the supervisor open the gate.
func (w *Worker) Serving() {
	w.Beat()
	_ = w.conn.Send(handover.Message{Kind: handover.Serving}, sendTimeout) // if it fails, the process ends
}

// Stopping makes the supervisor close the gate and its sockets.
func (w *Worker) Stopping() { _, _ = w.ask(kindStopping, replyTimeout) }

// Count returns a number that the Capture has counted.
func (w *Worker) Count(index int) uint64 { return w.page.counts[index].Load() }

// State returns the supervisor's state.
func (w *Worker) State() State {
	return State{Restarts: w.page.restarts.Load(), Open: w.page.open.Load(), HeartbeatAge: w.page.age()}
}
