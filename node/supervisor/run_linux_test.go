package supervisor

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/server/handover"
)

// A fakeCapture records the calls of its methods.
type fakeCapture struct {
	mu    sync.Mutex
	calls []string
}

func (c *fakeCapture) Enable()  { c.add("enable") }
func (c *fakeCapture) Suspend() { c.add("suspend") }
func (c *fakeCapture) Disable() { c.add("disable") }
func (c *fakeCapture) Close()   { c.add("close") }

func (c *fakeCapture) Files() []*os.File { return nil }

func (c *fakeCapture) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}

// A fakeNode runs a supervisor with workers that the test controls, on the clock of
// synctest.
type fakeNode struct {
	*testing.T
	s       *supervisor
	capture *fakeCapture
	openErr error
	mu      sync.Mutex
	started []*fakeWorker
	signals chan os.Signal
	exit    chan Exit
	zero    time.Time
	beat    atomic.Int64 // time of the last heartbeat, since zero
}

type fakeWorker struct {
	*worker
	n        *fakeNode
	at       time.Time // of the start
	received []syscall.Signal
	replies  chan error
	beats    atomic.Bool
	ended    chan struct{}
}

func newFakeNode(t *testing.T) *fakeNode {
	n := &fakeNode{T: t, capture: new(fakeCapture), signals: make(chan os.Signal), exit: make(chan Exit, 1), zero: time.Now().Add(-time.Hour)}
	n.s = &supervisor{
		Options: Options{Log: slog.New(slog.DiscardHandler), Open: func(func(int, uint64)) (Capture, error) {
			n.capture.add("open")
			return n.capture, n.openErr
		}},
		shared: new(shared), age: func() time.Duration { return time.Since(n.zero) - time.Duration(n.beat.Load()) }, start: n.start,
	}
	go func() {
		exit, err := n.s.run(n.signals)
		if err != nil {
			t.Error(err)
		}
		n.exit <- exit
	}()
	synctest.Wait()
	return n
}

func (n *fakeNode) start([]socket) (*worker, error) {
	w := &fakeWorker{n: n, at: time.Now(), replies: make(chan error, 1), ended: make(chan struct{})}
	w.worker = &worker{
		events: make(chan event), forget: func() {},
		reply: func(_ uint64, err error) { w.replies <- err },
		send: func(s syscall.Signal) {
			if w.received = append(w.received, s); s == unix.SIGKILL {
				go w.end(syscall.WaitStatus(unix.SIGKILL))
			}
		},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.started = append(n.started, w)
	return w.worker, nil
}

// last returns the worker that was started last.
func (n *fakeNode) last() *fakeWorker {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.started[len(n.started)-1]
}

// count returns the number of workers that were started.
func (n *fakeNode) count() int {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.started)
}

func (w *fakeWorker) message(kind handover.Kind) { w.events <- event{kind: kind}; synctest.Wait() }

// serve makes the worker serve, with heartbeats until it ends.
func (w *fakeWorker) serve() {
	w.n.Helper()
	w.message(handover.Hello)
	for _, kind := range []handover.Kind{kindOpen, handover.End} {
		w.message(kind)
		if err := <-w.replies; err != nil {
			w.n.Fatal(err)
		}
	}
	w.beats.Store(true)
	go w.beat()
	synctest.Wait()
	w.message(handover.Serving)
}

// beat sends heartbeats until the worker stops or ends.
func (w *fakeWorker) beat() {
	for w.beats.Load() {
		w.n.beat.Store(int64(time.Since(w.n.zero)))
		select {
		case <-time.After(200 * time.Millisecond):
		case <-w.ended:
			return
		}
	}
}

func (w *fakeWorker) end(status syscall.WaitStatus) {
	w.beats.Store(false)
	close(w.ended)
	w.events <- event{kind: kindEnded, status: status}
}

func (n *fakeNode) calls(want ...string) {
	n.Helper()
	synctest.Wait()
	n.capture.mu.Lock()
	defer n.capture.mu.Unlock()
	if !slices.Equal(n.capture.calls, want) {
		n.Errorf("calls of the capture: got %v, want %v", n.capture.calls, want)
	}
	n.capture.calls = nil
}

func (n *fakeNode) ends(want Exit) {
	n.Helper()
	synctest.Wait()
	select {
	case got := <-n.exit:
		if got != want {
			n.Errorf("exit: got %v, want %v", got, want)
		}
	default:
		n.Fatalf("exit: got none, want %v", want)
	}
}

// stop ends the supervisor by a signal that the worker handles.
func (n *fakeNode) stop() {
	n.Helper()
	w := n.last()
	n.signals <- unix.SIGTERM
	synctest.Wait()
	if !slices.Contains(w.received, unix.SIGTERM) {
		n.Errorf("signals of the worker: got %v, want SIGTERM", w.received)
	}
	w.message(kindStopping)
	<-w.replies
	w.end(0)
	n.ends(Exit{})
}

func exited(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }

// A worker that is killed is started again at once, and the gate stays open.
func TestWorkerKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		n.last().serve()
		n.calls("open", "enable")
		for range 10 {
			time.Sleep(2 * time.Second)
			killed := time.Now()
			n.last().end(syscall.WaitStatus(unix.SIGKILL))
			w := n.last()
			if !w.at.Equal(killed) {
				t.Errorf("start of the next worker: got %v after the end, want at once", w.at.Sub(killed))
			}
			w.serve()
		}
		n.calls()
		if got := n.s.shared.restarts.Load(); got != 10 {
			t.Errorf("restarts: got %d, want 10", got)
		}
		n.stop()
		n.calls("disable", "close")
	})
}

// A worker that is stopped closes the gate within 1.5 s, and a worker that continues opens
// it again. One that does not continue is killed.
func TestWorkerStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		w := n.last()
		w.serve()
		n.calls("open", "enable")
		for _, pause := range []time.Duration{time.Second, 1500 * time.Millisecond, 10 * time.Second} {
			w.beats.Store(false)
			time.Sleep(pause)
			if pause <= time.Second {
				n.calls()
			} else {
				n.calls("suspend")
			}
			w.beats.Store(true)
			go w.beat()
			time.Sleep(2 * checkInterval)
			if pause > time.Second {
				n.calls("enable")
			}
		}
		w.beats.Store(false)
		time.Sleep(hungAfter + time.Second)
		n.calls("suspend")
		if next := n.last(); next == w {
			t.Fatalf("worker that does not respond: got signals %v, want SIGKILL and another worker", w.received)
		}
		n.last().serve()
		n.calls("enable")
		n.stop()
	})
}

// Workers that end again and again are started after growing delays, and the gate is
// closed. It is opened again when one has served for as long as the last delay.
func TestWorkerCrashLoop(t *testing.T) {
	for name, serves := range map[string]bool{"before it serves": false, "as soon as it serves": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newFakeNode(t)
				n.last().serve()
				n.calls("open", "enable")
				time.Sleep(time.Minute)
				var delays []time.Duration
				for range 14 {
					w, ended := n.last(), time.Now()
					if serves && w.serving.IsZero() {
						w.serve()
					}
					count := n.count()
					w.end(exited(1))
					for n.count() == count {
						time.Sleep(10 * time.Millisecond)
					}
					delays = append(delays, n.last().at.Sub(ended))
				}
				if first := delays[:2]; first[0] != 0 || first[1] != 0 {
					t.Errorf("first delays: got %v, want none", first)
				}
				for i, d := range delays[4:] {
					if before := delays[3+i]; d != 2*before && d != maxDelay {
						t.Errorf("delays: got %v, want that each is twice the one before, up to %v", delays, maxDelay)
						break
					}
				}
				n.calls("suspend")
				n.last().serve()
				time.Sleep(maxDelay - time.Second)
				n.calls()
				time.Sleep(2 * time.Second)
				n.calls("enable")
				n.stop()
			})
		})
	}
}

// A worker that stops before it has opened the capture, as one does that is ended early, gets a reply.
func TestWorkerStopsBeforeOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		w := n.last()
		w.message(kindStopping)
		if err := <-w.replies; err != nil {
			t.Error(err)
		}
		n.calls()
		w.end(exited(0))
		n.ends(Exit{})
	})
}

// The exit status of the first worker is that of the supervisor if it does not serve.
func TestFirstWorkerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		n.last().end(exited(1))
		n.ends(Exit{Code: 1})
		n.calls()
	})
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		n.openErr = errors.New("no privileges")
		w := n.last()
		w.message(handover.Hello)
		w.message(kindOpen)
		if err := <-w.replies; !errors.Is(err, n.openErr) {
			t.Errorf("reply to open: got %v, want %v", err, n.openErr)
		}
		w.end(exited(1))
		n.ends(Exit{Code: 1})
	})
}

// Signals that reload pass to a worker that handles them, and signals that end to every
// worker. Without a worker they end the supervisor.
func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		w := n.last()
		n.signals <- unix.SIGHUP
		w.message(handover.Hello)
		n.signals <- unix.SIGUSR1
		n.signals <- unix.SIGINT
		synctest.Wait()
		if want := []syscall.Signal{unix.SIGUSR1, unix.SIGINT}; !slices.Equal(w.received, want) {
			t.Errorf("signals of the worker: got %v, want %v", w.received, want)
		}
		n.signals <- unix.SIGINT
		w.end(syscall.WaitStatus(unix.SIGINT))
		n.ends(Exit{Signal: int(unix.SIGINT)})
	})
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		n.signals <- unix.SIGTERM
		n.last().end(syscall.WaitStatus(unix.SIGTERM)) // before it handles signals
		n.ends(Exit{})
	})
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		n.last().serve()
		for range 3 {
			n.last().end(exited(2))
		}
		synctest.Wait()
		n.signals <- unix.SIGHUP
		n.signals <- unix.SIGTERM
		n.ends(Exit{})
	})
}

// After another process has taken over, the worker is not started again.
func TestWorkerReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		w := n.last()
		w.serve()
		w.message(kindStopping)
		<-w.replies
		n.calls("open", "enable", "disable")
		w.end(exited(2))
		time.Sleep(time.Hour)
		if n.count() != 1 {
			t.Errorf("workers: got %d, want one", n.count())
		}
		n.signals <- unix.SIGTERM
		n.ends(Exit{})
		n.calls("close")
	})
}
