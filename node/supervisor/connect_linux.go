package supervisor

import (
	"errors"
	"fmt"
	"os"
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
	file    *os.File // of the Capture; nil if there is none
	replies chan handover.Message
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

	w := &Worker{conn: conn, replies: make(chan handover.Message)}
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
		if m.Kind == handover.State {
			w.file = m.File // before the reply that ask waits for
			continue
		}
		w.replies <- m
	}
}

// ask sends a message and waits for the reply.
func (w *Worker) ask(kind handover.Kind) error {
	if err := w.conn.Send(handover.Message{Kind: kind}, sendTimeout); err != nil {
		return err
	}
	select {
	case m := <-w.replies:
		if m.Kind == handover.Refused {
			return errors.New(m.Error)
		}
		return nil
	case <-time.After(replyTimeout):
		return fmt.Errorf("the supervisor did not answer %s within %s", kind, replyTimeout)
	}
}

// Sockets returns the sockets of the worker before, for one call.
func (w *Worker) Sockets() []*os.File { return w.sockets }

// Open makes the supervisor prepare the node. The configuration is valid.
func (w *Worker) Open() error { return w.ask(kindOpen) }

// File returns the file of Capture.File, after Open; nil if there is none.
func (w *Worker) File() *os.File { return w.file }

// Keep makes the supervisor keep copies of the sockets, in place of earlier ones.
func (w *Worker) Keep(sockets []*os.File) error {
	// An earlier call may have failed between two sockets.
	if err := w.conn.Send(handover.Message{Kind: handover.Begin}, sendTimeout); err != nil {
		return err
	}
	for _, f := range sockets {
		if err := w.conn.Send(handover.Message{Kind: handover.DNS, File: f}, sendTimeout); err != nil {
			return err
		}
	}
	return w.ask(handover.End)
}

// Beat records that the worker makes progress.
func (w *Worker) Beat() { w.page.beat.Store(monotonic()) }

// Serving makes the supervisor open the gate.
func (w *Worker) Serving() {
	w.Beat()
	_ = w.conn.Send(handover.Message{Kind: handover.Serving}, sendTimeout) // if it fails, the process ends
}

// Stopping makes the supervisor close the gate and its sockets.
func (w *Worker) Stopping() { _ = w.ask(kindStopping) }

// Count returns a number that the Capture has counted.
func (w *Worker) Count(index int) uint64 { return w.page.counts[index].Load() }

// State returns the supervisor's state.
func (w *Worker) State() State {
	return State{Restarts: w.page.restarts.Load(), Open: w.page.open.Load(), HeartbeatAge: w.page.age()}
}
