package server

import (
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/server/handover"
	"github.com/seamark/seamark/transport"
)

const (
	// messageTimeout is how long a process waits for a message that the other one
	// sends at once.
	messageTimeout = 5 * time.Second
	// stateTimeout bounds the transfer of one State.
	stateTimeout = 10 * time.Second
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
// of the directive handover, which is nil if the old process has ended before it has sent it.
func (p *Plan) FinishTakeover() (successors *os.File) {
	t := p.taken
	p.taken = nil
	t.finish(p)
	return t.successors
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

// oldEnded records that the old process has ended.
func (t *takeover) oldEnded() {
	t.log.Warn("Old process ended during the hand-over", "pid", t.conn.PID)
	t.conn.Close()
	t.conn = nil
}

// oldAnswers reports whether the old process still answers queries.
func (t *takeover) oldAnswers() bool {
	if t == nil || t.conn == nil {
		return false
	}
	// It sends nothing before it receives serving.
	if _, err := t.conn.Receive(time.Millisecond, handover.End); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.oldEnded()
	}
	return t.conn != nil
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
// makes the old process stop.
func (t *takeover) finish(p *Plan) {
	defer func() {
		for _, l := range p.delayed {
			l.Serve()
		}
	}()

	p.opts.Inherited.CloseOwn()
	t.closeFiles(t.http)
	t.closeFiles(t.states)
	if t.conn == nil {
		return
	}

	defer t.conn.Close()
	pid := t.conn.PID
	passed, lost, err := t.receiveConnections(p)
	if err != nil {
		t.log.Warn("Hand-over incomplete, continuing to serve", "pid", pid, "error", err)
	}
	t.log.Info("Took over from another process", "pid", pid, "connections", passed, "lost", lost)
}

func (t *takeover) receiveConnections(p *Plan) (passed, lost int, err error) {
	unused := slices.DeleteFunc(t.addresses, func(a netip.AddrPort) bool { return p.listener(a) != nil })
	if err := t.conn.Send(handover.Message{Kind: handover.Serving, Unused: unused}, messageTimeout); err != nil {
		return 0, 0, err
	}

	for {
		m, err := t.conn.Receive(passTimeout+messageTimeout, handover.Connection, handover.End)
		if err != nil {
			return passed, lost, err
		}
		if m.Kind == handover.End {
			return passed, lost, t.conn.Send(handover.Message{Kind: handover.Taken}, messageTimeout)
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
