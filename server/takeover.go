package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/server/handover"
	"github.com/seamark/seamark/sys/pidfd"
	"github.com/seamark/seamark/transport"
)

const (
	// messageTimeout is how long a process waits for a message that the other one
	// sends at once.
	messageTimeout = 5 * time.Second
	// stateTimeout bounds the transfer of one State.
	stateTimeout = 10 * time.Second
	// releaseTimeout is how long the new process waits until the old one has released its exclusive sockets.
	// One that is stopped meanwhile does not read them.
	releaseTimeout = passTimeout + time.Second
)

// A takeover holds the sockets, data and connections that a starting process receives
// from the server that it replaces. The methods of a nil takeover do nothing.
type takeover struct {
	log        *slog.Logger
	conn       *handover.Conn // nil if the old process has ended
	addresses  []netip.AddrPort
	http       map[string]*os.File // by address
	states     map[string]*os.File // by name
	successors *os.File            // the socket of the directive handover
}

// TakeOver receives the sockets and states of the server at the other end of conn. Start makes the plan
// serve with them, and FinishTakeover makes the other process stop. If that ends before it has sent all,
// the plan starts with the received data: the other addresses are free. After an error, or one of Start,
// the other process serves on when the caller closes conn.
func (p *Plan) TakeOver(conn *handover.Conn) (err error) {
	in := p.opts.Inherited
	if in == nil {
		in = new(transport.Inherited)
	}
	if p.taken, err = receiveTakeover(conn, in, p.opts.Log); err == nil {
		p.opts.Inherited = in
	}
	return err
}

// FinishTakeover is called when the plan serves. It receives the open connections, and returns the socket
// of the directive handover, which is nil if the old process has ended before it has sent it. After an error
// the old process serves on, and the caller must stop the plan by Leave.
func (p *Plan) FinishTakeover() (successors *os.File, err error) {
	t := p.taken
	p.taken = nil
	if err = t.finish(p); err != nil {
		p.start.Yield()
		return t.successors, err
	}

	for _, l := range p.delayed {
		l.Serve()
	}
	p.start.Resume()
	return t.successors, nil
}

// receiveTakeover receives the sockets and states that the process at the other end of conn sends, and adds
// the sockets to in.
func receiveTakeover(conn *handover.Conn, in *transport.Inherited, log *slog.Logger) (*takeover, error) {
	log.Info("Taking over from another process", "pid", conn.PID)
	t := &takeover{log: log, conn: conn, http: map[string]*os.File{}, states: map[string]*os.File{}}
	for {
		m, err := conn.Receive(messageTimeout,
			handover.DNS, handover.HTTP, handover.State, handover.Successors, handover.End)
		if errors.Is(err, io.EOF) {
			t.oldEnded()
			m.Kind, err = handover.End, nil
		}
		if err == nil && m.Kind == handover.DNS {
			err = in.Add(false, m.File)
		}
		if err != nil {
			conn.Close()
			return nil, err
		}

		switch m.Kind {
		case handover.HTTP:
			t.http[m.Name] = m.File
		case handover.State:
			_ = m.File.SetReadDeadline(time.Now().Add(stateTimeout))
			t.states[m.Name] = m.File
		case handover.Successors:
			t.successors = m.File
		case handover.End:
			t.addresses = in.Addresses(false)
			return t, nil
		}
	}
}

// oldEnded records that the old process has ended, and waits until the kernel has closed all its sockets, whose
// addresses are free then.
func (t *takeover) oldEnded() {
	t.log.Warn("Old process ended during the hand-over", "pid", t.conn.PID)
	t.conn.Close()
	pidfd.Await(t.conn.PID, handover.EndTimeout)
	t.conn = nil
}

// oldAnswers reports whether the old process still answers queries. The error is that it goes on alone.
func (t *takeover) oldAnswers() (bool, error) {
	if t == nil || t.conn == nil {
		return false, nil
	}

	// It sends nothing else before it receives serving.
	_, err := t.conn.Receive(time.Millisecond, handover.End)
	switch refused, ok := errors.AsType[*handover.RefusedError](err); {
	case ok:
		return true, refused
	case !errors.Is(err, os.ErrDeadlineExceeded):
		t.oldEnded()
	}
	return t.conn != nil, nil
}

// loadStates loads the states that the plan's directives can use.
func (t *takeover) loadStates(p *Plan) {
	if t == nil {
		return
	}
	for name, s := range p.start.States() {
		f, loader := t.states[name], config.Loader(nil)
		if loader, _ = s.(config.Loader); f == nil || loader == nil {
			continue
		}

		start := time.Now()
		_ = f.SetReadDeadline(start.Add(stateTimeout))
		if err := loader.LoadState(f); err != nil {
			t.log.Warn("Data of the old process are incomplete", "name", name, "error", err)
		} else {
			t.log.Info("Loaded data of the old process",
				"name", name, "duration", time.Since(start).Round(time.Millisecond))
		}
	}
	t.closeFiles(t.states)
}

func (t *takeover) closeFiles(files map[string]*os.File) {
	for name, f := range files {
		_ = f.Close()
		delete(files, name)
	}
}

// close ends the hand-over: the old process continues.
func (t *takeover) close() {
	if t != nil && t.conn != nil {
		t.conn.Close()
	}
}

// finish is called when the plan answers queries. It receives the open connections, and
// makes the old process stop. The error is that the old one goes on alone.
func (t *takeover) finish(p *Plan) error {
	p.opts.Inherited.CloseOwn()
	t.closeFiles(t.http)
	t.closeFiles(t.states)
	if t.conn == nil {
		return nil
	}

	defer t.conn.Close()
	pid := t.conn.PID
	passed, lost, err := t.receiveConnections(p)
	if refused, ok := errors.AsType[*handover.RefusedError](err); ok {
		return fmt.Errorf("the old process continues to serve: %w", refused)
	}
	if err != nil {
		t.log.Warn("Hand-over incomplete, continuing to serve", "pid", pid, "error", err)
	}

	// The last word, also after an error: the old process may have been stopped, and go on later.
	if err := t.conn.Send(handover.Message{Kind: handover.Taken}, messageTimeout); err != nil {
		t.log.Warn("Old process ended during the hand-over", "pid", pid, "error", err)
	} else if len(p.delayed) > 0 {
		t.awaitRelease()
	}
	t.log.Info("Took over from another process", "pid", pid, "connections", passed, "lost", lost)
	return nil
}

// awaitRelease blocks until the old process has released its exclusive sockets, which ends the connection.
func (t *takeover) awaitRelease() {
	for until := time.Now().Add(releaseTimeout); ; {
		m, err := t.conn.Receive(time.Until(until), handover.Connection, handover.End)
		if m.File != nil { // of a connection that comes too late
			_ = m.File.Close()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.log.Warn("Old process does not respond, reading its sockets", "pid", t.conn.PID)
		}
		if err != nil {
			return
		}
	}
}

func (t *takeover) receiveConnections(p *Plan) (passed, lost int, err error) {
	unused := slices.DeleteFunc(t.addresses, func(a netip.AddrPort) bool { return p.listener(a) != nil })
	sent := t.conn.Send(handover.Message{Kind: handover.Serving, Unused: unused}, messageTimeout)

	for {
		m, err := t.conn.Receive(passTimeout+messageTimeout, handover.Connection, handover.End)
		if err != nil { // such as a refusal, before which the old process has closed the connection
			return passed, lost, errors.Join(err, sent)
		}
		if m.Kind == handover.End {
			return passed, lost, nil
		}

		conn := transport.Conn{
			File: m.File, Unread: m.Unread, Queries: m.Queries, Client: m.Client, HeaderPending: m.Pending,
			ProxyTLVs: string(m.TLVs),
		}
		if l := p.listener(m.Address); l == nil || m.File == nil || l.Adopt(conn) != nil {
			lost++
		} else {
			passed++
		}
	}
}
