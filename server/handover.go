package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/server/handover"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/transport"
)

const (
	// lockTimeout is how long a start waits for another one at the same socket.
	lockTimeout = 90 * time.Second
	// startTimeout is how long a process waits until its replacement is ready.
	startTimeout = takeoverWait + 10*time.Second
	// passTimeout is how long parked queries may delay the hand-over of their
	// connections.
	passTimeout = 5 * time.Second
)

// successors is the socket of the directive handover.
type successors struct {
	path string
	*handover.Listener
}

// requests returns the channel of processes that want to replace this one.
func (s *successors) requests() <-chan *handover.Conn {
	if s == nil || s.Listener == nil {
		return nil
	}
	return s.Requests
}

// remove closes the socket and removes its file.
func (s *successors) remove() {
	if s != nil && s.Listener != nil {
		s.Close()
		_ = os.Remove(s.path)
	}
}

func (r *Run) rejected(err error) {
	r.Log.Error("Rejected a process that wants to replace this one", "error", err)
}

// setHandover sets the path of the directive handover.
func (p *Plan) setHandover() (errs []error) {
	for _, s := range Find[successorSocket](p) {
		path, remain, from := s.Handover()
		if p.handover != "" && p.handover != path {
			errs = append(errs, from.Errorf("another server block has handover %s: give it once", p.handover))
		}
		p.handover, p.remain = path, p.remain || remain
	}
	return errs
}

// takeOver prepares a start with the directive handover: it takes over from the server
// that listens at the plan's path, or listens there. unlock allows other processes to
// start.
func (r *Run) takeOver(ctx context.Context, plan *Plan) (unlock func(), err error) {
	path := plan.handover
	if path == "" {
		return func() {}, nil
	}

	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if unlock, err = watch.Lock(ctx, path); err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}

	conn, err := handover.Dial(path)
	switch {
	case conn != nil:
		err = plan.TakeOver(conn)
	case err == nil:
		err = r.listenForSuccessors(path)
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	return unlock, nil
}

// wasKilled reports whether the file of a socket is there, before its process is looked for: if no process listens
// at it, its process has not removed it, and was killed, perhaps just now.
func wasKilled(path string) bool {
	_, err := os.Lstat(path)
	return path != "" && err == nil
}

// startAgain starts a plan again while addresses are in use, of which the process that was killed may still have
// some. err is that of the start before. It returns the plan of the last attempt.
func (r *Run) startAgain(ctx context.Context, plan *Plan, err error) (*Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, handover.EndTimeout)
	defer cancel()
	if errors.Is(err, syscall.EADDRINUSE) {
		r.Log.Warn("An address is in use, perhaps of a process that was killed: trying again", "error", err)
	}
	for errors.Is(err, syscall.EADDRINUSE) {
		select {
		case <-ctx.Done():
			return plan, err
		case <-time.After(50 * time.Millisecond):
		}

		next, failed := r.Check()
		if failed != nil {
			return plan, failed
		}
		plan, err = next, next.Start(context.WithoutCancel(ctx), nil)
	}
	return plan, err
}

// finishTakeover makes the old process stop when the plan answers queries. After an error the old one serves
// on, and the plan has stopped.
func (r *Run) finishTakeover(ctx context.Context, plan *Plan) error {
	if err := r.pidFile().write(); err != nil {
		r.Log.Error("Writing the pidfile failed, it has the process ID of the old process", "error", err)
	}
	successors, err := plan.FinishTakeover()
	if err != nil {
		if refused, ok := errors.AsType[*handover.RefusedError](err); ok && r.PID == 0 {
			err = errors.Join(err, pidFile{r.PIDFile, refused.PID}.write())
		}
		plan.Leave(context.WithoutCancel(ctx))
		_ = successors.Close()
		return err
	}

	if path := plan.handover; successors != nil {
		r.reopenSuccessors(path, successors)
	} else if err := r.listenForSuccessors(path); err != nil { // the old process ended early
		r.Log.Error("Other processes cannot replace this one", "file", path, "error", err)
	}
	return nil
}

func (r *Run) listenForSuccessors(path string) error {
	l, err := handover.Listen(path, r.rejected)
	if err == nil {
		r.successors = &successors{path, l}
	}
	return err
}

// reopenSuccessors listens on the socket of another process, or on a copy of this
// one's.
func (r *Run) reopenSuccessors(path string, f *os.File) {
	l, err := handover.ListenFile(f, r.rejected)
	if err != nil {
		r.Log.Error("Other processes cannot replace this one", "file", path, "error", err)
		return
	}
	r.successors = &successors{path, l}
}

// moveSuccessors applies the directive handover of a plan that replaces another one.
func (r *Run) moveSuccessors(ctx context.Context, plan *Plan) {
	path := plan.handover
	if r.successors != nil && r.successors.path == path || r.successors == nil && path == "" {
		return
	}
	r.successors.remove()
	if r.successors = nil; path == "" {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, messageTimeout)
	defer cancel()
	unlock, err := watch.Lock(ctx, path)
	if err == nil {
		err = r.listenForSuccessors(path)
		unlock()
	}
	if err != nil {
		r.Log.Error("Other processes cannot replace this one", "file", path, "error", err)
	}
}

// handOver passes sockets, data and connections to the process at the other end of c,
// and reports whether that has taken over. Otherwise the plan continues to serve.
func (r *Run) handOver(ctx context.Context, plan *Plan, c *handover.Conn) bool {
	stop := context.AfterFunc(ctx, c.Close)
	socket, err := r.accept(c)
	if err != nil {
		r.rejected(err)
		r.refuse(c, stop, err)
		return false
	}

	r.Log.Info("Handing over to another process", "pid", c.PID)
	path := r.successors.path
	r.successors.Close() // the next process takes over from the new one
	r.successors.Listener = nil
	passed, err := plan.HandOver(c, socket)
	if err != nil {
		r.refuse(c, stop, err)
		if ctx.Err() != nil { // this process ends: the other one may use the file of the socket
			_ = socket.Close()
			return false
		}
		r.Log.Error("Hand-over failed, continuing to serve", "pid", c.PID, "error", err)
		r.reopenSuccessors(path, socket)
		if err := r.pidFile().write(); err != nil {
			r.Log.Error("Writing the pidfile failed, it has the process ID of another process", "error", err)
		}
		return false
	}

	stop()
	c.Close()
	_ = socket.Close()
	r.Log.Info("Handed over to another process, shutting down", "pid", c.PID, "connections", passed)
	return true
}

// accept accepts a process that wants to replace this one, and returns a copy of the socket for successors.
func (r *Run) accept(c *handover.Conn) (*os.File, error) {
	if err := c.Accept(); err != nil {
		return nil, err
	}
	return r.successors.File()
}

// refuse tells the process at the other end of c that this one goes on alone. stop ends what closes c when
// this process ends.
func (r *Run) refuse(c *handover.Conn, stop func() bool, reason error) {
	r.refusals.Go(func() {
		defer stop()
		c.Refuse(reason)
	})
}

// HandOver passes sockets, data and connections to the process at the other end of c, with the socket
// of the directive handover, and returns the number of connections. The plan serves until Leave, and
// goes on after an error, which the caller passes to c.Refuse.
func (p *Plan) HandOver(c *handover.Conn, socket *os.File) (passed int, err error) {
	if passed, err = p.handOver(c, socket); err != nil {
		for _, l := range p.sockets() {
			l.Resume()
		}
		p.start.Resume()
	}
	return passed, err
}

func (p *Plan) handOver(c *handover.Conn, socket *os.File) (passed int, err error) {
	var saving sync.WaitGroup
	defer saving.Wait()
	if err := p.sendSockets(c); err != nil {
		return 0, err
	}

	p.start.Yield()
	for name, s := range p.start.States() {
		if err := p.sendState(c, &saving, name, s); err != nil {
			return 0, err
		}
	}
	if err := c.Send(handover.Message{Kind: handover.Successors, File: socket}, messageTimeout); err != nil {
		return 0, err
	}
	if err := c.Send(handover.Message{Kind: handover.End}, messageTimeout); err != nil {
		return 0, err
	}

	// Both processes answer now: connections are passed last. From here on only the end of the new process
	// makes this one continue: a connection that cannot be passed is closed. Exclusive sockets are read until
	// the new process has taken over, which may be stopped until then.
	serving, err := c.Receive(startTimeout, handover.Serving)
	if err != nil {
		return 0, err
	}
	passed, err = p.sendConnections(c, serving.Unused)
	if err == nil {
		err = c.Send(handover.Message{Kind: handover.End}, messageTimeout)
	}
	if err != nil {
		p.opts.Log.Warn("Passing connections to another process failed", "pid", c.PID, "error", err)
	}
	if err := p.awaitTaken(c); err != nil {
		return passed, err
	}
	p.release(serving.Unused)
	return passed, nil
}

// awaitTaken blocks until the new process has taken over, or returns an error if it has ended. If it does not
// respond, it may have been stopped: this process accepts connections again until it does.
func (p *Plan) awaitTaken(c *handover.Conn) error {
	_, err := c.Receive(messageTimeout, handover.Taken)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}

	inclusive, _ := p.socketsByUse()
	for _, l := range inclusive {
		l.Resume()
	}
	for errors.Is(err, os.ErrDeadlineExceeded) {
		p.opts.Log.Warn("The process that replaces this one does not respond, both serve", "pid", c.PID)
		_, err = c.Receive(startTimeout, handover.Taken)
	}
	if err != nil {
		return err
	}

	// The new process receives no connections any more: those of this one end with it.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, l := range inclusive {
		_ = l.HandOver(ended, nil)
	}
	return nil
}

// release ends the connections of exclusive sockets, which the new process reads when the connection to this
// one has ended.
func (p *Plan) release(unused []netip.AddrPort) {
	ctx, cancel := context.WithTimeout(context.Background(), passTimeout)
	defer cancel()
	_, exclusive := p.socketsByUse()
	var releases sync.WaitGroup
	for _, l := range exclusive {
		if !slices.Contains(unused, l.Addr()) {
			releases.Go(func() { _ = l.HandOver(ctx, nil) })
		}
	}
	releases.Wait()
}

// socketsByUse returns the listeners whose sockets two processes may read at the same time, and those whose sockets
// only one may read.
func (p *Plan) socketsByUse() (inclusive, exclusive []socketListener) {
	for _, l := range p.sockets() {
		if isExclusive(l) {
			exclusive = append(exclusive, l)
		} else {
			inclusive = append(inclusive, l)
		}
	}
	return inclusive, exclusive
}

func (p *Plan) sendSockets(c *handover.Conn) error {
	send := func(m handover.Message) error {
		defer m.File.Close()
		return c.Send(m, messageTimeout)
	}

	var errs []error
	for _, l := range p.sockets() {
		files, err := l.Files()
		errs = append(errs, err)
		for _, f := range files {
			errs = append(errs, send(handover.Message{Kind: handover.DNS, File: f}))
		}
	}

	pages, err := p.start.Sockets()
	errs = append(errs, err)
	for address, f := range pages {
		errs = append(errs, send(handover.Message{Kind: handover.HTTP, Name: address, File: f}))
	}
	return errors.Join(errs...)
}

// sendState passes a pipe with the data of a State.
func (p *Plan) sendState(c *handover.Conn, saving *sync.WaitGroup, name string, s config.State) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	if err := c.Send(handover.Message{Kind: handover.State, Name: name, File: r}, messageTimeout); err != nil {
		_ = w.Close()
		return err
	}

	saving.Go(func() {
		defer w.Close()
		_ = w.SetWriteDeadline(time.Now().Add(startTimeout))
		if err := s.SaveState(w); err != nil && !errors.Is(err, syscall.EPIPE) { // the reader does not need it
			p.opts.Log.Warn("Passing data to another process failed", "name", name, "error", err)
		}
	})
	return nil
}

// sendConnections passes the open connections, except connections to unused addresses,
// whose listeners stop as usual, and those of exclusive sockets.
func (p *Plan) sendConnections(c *handover.Conn, unused []netip.AddrPort) (passed int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), passTimeout)
	defer cancel()

	// All at once: a query that waits keeps the connections of its own address only.
	inclusive, _ := p.socketsByUse()
	var passes sync.WaitGroup
	var sending sync.Mutex
	for _, l := range inclusive {
		if slices.Contains(unused, l.Addr()) {
			continue
		}
		send := func(conn transport.Conn) error {
			sending.Lock()
			defer sending.Unlock()
			if err != nil {
				return err
			}
			passed++
			err = c.Send(handover.Message{
				Kind: handover.Connection, Address: l.Addr(), File: conn.File, Unread: conn.Unread,
				Queries: conn.Queries, Client: conn.Client, Pending: conn.HeaderPending, TLVs: []byte(conn.ProxyTLVs),
			}, messageTimeout)
			return err
		}
		passes.Go(func() {
			if failed := l.HandOver(ctx, send); failed != nil {
				sending.Lock()
				err = cmp.Or(err, failed)
				sending.Unlock()
				cancel() // the others need not wait
			}
		})
	}
	passes.Wait()
	return passed, err
}
