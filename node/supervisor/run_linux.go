package supervisor

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/server/handover"
	"github.com/seamark/seamark/sys/clock"
)

const (
	// checkInterval is the time between two checks of the heartbeat.
	checkInterval = 250 * time.Millisecond
	// staleAfter is the age of the heartbeat at which the gate is closed.
	staleAfter = 1200 * time.Millisecond
	// hungAfter is the age of the heartbeat at which a worker that serves is killed. One that starts may wait
	// for an API server, while the gate is closed.
	hungAfter = 15 * time.Second
)

// The kinds of messages that package handover does not know, and the end of a worker.
const (
	kindOpen     handover.Kind = "open"
	kindStopping handover.Kind = "stopping"
	kindEnded    handover.Kind = "ended"
)

// Run runs workers until one ends with status 0 or after a signal, or the first one ends
// before it serves. The signals of the process pass to the worker. caught is called when
// they do, and reports whether the process received a signal to end before that.
func Run(o Options, caught func() bool) (Exit, error) {
	received := make(chan os.Signal, 8)
	signal.Notify(received, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGUSR1)
	defer signal.Stop(received)
	if caught() {
		return Exit{}, nil
	}
	runtime.GOMAXPROCS(1) // each of the others has a cache of memory
	ReleaseMemory()
	page, err := newPage()
	if err != nil {
		return Exit{}, err
	}
	defer page.close()

	starter := newThread()
	defer close(starter)
	if o.Restrict != nil {
		starter.do(func() { err = o.Restrict() })
		if err != nil {
			return Exit{}, err
		}
	}

	s := &supervisor{
		Options: o, shared: page.shared, age: page.age,
		start: func(sockets []socket) (w *worker, err error) {
			starter.do(func() { w, err = startWorker(page, o.Pass, sockets, o.Attach) })
			return w, err
		},
	}
	return s.run(received)
}

// A supervisor is the state of Run, whose goroutine uses it.
type supervisor struct {
	Options
	start  func([]socket) (*worker, error)
	shared *shared
	age    func() time.Duration // of the heartbeat

	worker  *worker // nil if none runs
	capture Capture // nil until the first worker asks for it
	sockets []socket
	open    bool           // the gate is open
	end     syscall.Signal // the last signal to end; 0 if there was none
	served  bool           // a worker has served
	stopped bool           // a worker has stopped for a signal, or another process has taken over
	backoff backoff
	restart *time.Timer // of the next worker
}

// A worker is a process that has been started.
type worker struct {
	events chan event // messages, and at last its end
	reply  func(id uint64, err error)
	share  func(id uint64, f *os.File)
	send   func(syscall.Signal)
	forget func() // releases what send needs, after the end

	connected bool      // it handles signals
	serving   time.Time // when it began to serve; zero if it does not yet
	trusted   time.Time // when the gate may be opened
	killed    bool
}

// An event is a message of a worker or its end.
type event struct {
	kind    handover.Kind
	id      uint64             // of a request
	sockets []socket           // of End
	status  syscall.WaitStatus // of kindEnded
}

// run starts the first worker at once.
func (s *supervisor) run(signals <-chan os.Signal) (Exit, error) {
	defer s.close()

	s.restart = time.NewTimer(0)
	check := time.NewTimer(clock.UntilNext(checkInterval))
	defer check.Stop()

	for {
		var events chan event
		if s.worker != nil {
			events = s.worker.events
		}

		select {
		case received := <-signals:
			if ends := s.pass(received.(syscall.Signal)); ends && s.worker == nil {
				return Exit{}, nil
			}
		case e := <-events:
			if e.kind != kindEnded {
				s.handle(e)
				continue
			}
			if exit, ends := s.ended(e.status); ends {
				return exit, nil
			}
		case <-s.restart.C:
			if err := s.startNext(); err != nil {
				return Exit{}, err
			}
		case <-check.C:
			s.check()
			check.Reset(clock.UntilNext(checkInterval))
		}
	}
}

func (s *supervisor) close() {
	closeSockets(s.sockets)
	if s.capture != nil {
		s.capture.Close()
	}
}

// pass passes a signal to the worker. It reports whether the signal ends the supervisor.
func (s *supervisor) pass(received syscall.Signal) (ends bool) {
	ends = received != unix.SIGHUP && received != unix.SIGUSR1
	if ends {
		s.end = received
	}
	// A worker that does not handle signals yet reads the configuration later.
	if w := s.worker; w != nil && (ends || w.connected) {
		w.send(received)
	}
	return ends
}

func (s *supervisor) startNext() error {
	w, err := s.start(s.sockets)
	switch {
	case err == nil:
		s.worker = w
	case !s.served:
		return err
	default:
		delay := max(minDelay, s.backoff.ended(time.Now(), 0))
		s.Log.Error("Worker cannot be started, trying again", "interval", delay, "error", err)
		s.restart.Reset(delay)
	}
	return nil
}

// handle handles a message of the worker.
func (s *supervisor) handle(e event) {
	w := s.worker
	switch e.kind {
	case handover.Hello:
		w.connected = true
	case kindOpen:
		w.reply(e.id, s.prepare(w, e.id))
	case handover.End:
		s.replaceSockets(e.sockets)
		enlargeBuffers(s.sockets)
		w.reply(e.id, nil)

	case handover.Serving:
		s.served = true
		w.serving = time.Now()
		w.trusted = w.serving.Add(s.backoff.delay)
		s.check()
	case kindStopping:
		s.stopped = true
		s.replaceSockets(nil)
		if s.capture != nil { // the worker may stop before it has asked for it
			s.capture.Disable()
		}
		s.setOpen(false)
		w.reply(e.id, nil)
	}
}

func (s *supervisor) replaceSockets(sockets []socket) {
	closeSockets(s.sockets)
	s.sockets = sockets
}

// prepare opens the capture when the first worker asks for it, and shares its files with each.
func (s *supervisor) prepare(w *worker, id uint64) error {
	if s.capture == nil {
		c, err := s.Open(func(index int, n uint64) { s.shared.counts[index].Add(n) })
		if err != nil {
			return err
		}
		s.capture = c
	}
	for _, f := range s.capture.Files() {
		w.share(id, f)
	}
	return nil
}

// ended handles the end of the worker. It reports whether that ends the supervisor.
func (s *supervisor) ended(status syscall.WaitStatus) (exit Exit, ends bool) {
	w := s.worker
	w.forget()
	s.worker = nil

	exit = Exit{Code: status.ExitStatus()}
	if status.Signaled() {
		exit = Exit{Signal: int(status.Signal())}
	}

	var served time.Duration
	if !w.serving.IsZero() {
		served = time.Since(w.serving)
	}

	switch {
	case status.Signaled() && status.Signal() == s.end && !w.connected:
		return Exit{}, true // it did not handle the signal yet
	case exit == Exit{} || s.end != 0 || !s.served:
		return exit, true
	case s.stopped:
		s.Log.Error("Worker ended while it was waiting for a signal", "error", exit)
		return exit, false
	}

	delay := s.backoff.ended(time.Now(), served)
	s.shared.restarts.Add(1)
	s.Log.Error("Worker ended, starting another one",
		"error", exit, "duration", served.Round(time.Millisecond), "interval", delay)
	if delay > 0 {
		s.closeGate("workers end again and again")
	}
	s.restart.Reset(delay)
	return exit, false
}

// check opens and closes the gate, and kills a worker that hangs.
func (s *supervisor) check() {
	age, w := s.age(), s.worker
	serves := w != nil && !w.serving.IsZero()
	switch {
	case s.stopped || s.capture == nil:
	case age > staleAfter:
		s.closeGate("the worker does not respond")
	case !s.open && serves && !time.Now().Before(w.trusted):
		s.capture.Enable()
		s.setOpen(true)
	}
	if serves && age > hungAfter && !w.killed {
		w.killed = true
		s.Log.Error("Worker does not respond, killing it", "duration", age.Round(time.Millisecond))
		w.send(unix.SIGKILL)
	}
}

func (s *supervisor) closeGate(reason string) {
	if !s.open {
		return
	}
	s.capture.Suspend()
	s.setOpen(false)
	s.Log.Warn("Closed the gate, queries to a ClusterIP go to the cluster's DNS servers", "reason", reason)
}

func (s *supervisor) setOpen(open bool) {
	s.open = open
	s.shared.open.Store(open)
}

// Raise ends the process by the signal that has ended the worker, if there is one and the
// process is not the first of a container, which the kernel protects.
func (e Exit) Raise() {
	if e.Signal != 0 && os.Getpid() != 1 {
		signal.Reset(syscall.Signal(e.Signal))
		_ = unix.Kill(os.Getpid(), syscall.Signal(e.Signal))
		time.Sleep(raiseTimeout) // another thread may receive the signal, after Kill has returned
	}
}

// raiseTimeout is how long Raise waits for the signal.
const raiseTimeout = time.Second
