package supervisor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seamark/seamark/server/handover"
)

// The descriptors of a worker's connection to the supervisor, of the shared page and of the other end of what
// Options.Attach gets follow standard error.
const (
	connFD     = 3
	pageFD     = 4
	attachedFD = 5
)

const (
	// sendTimeout is how long a message may wait for room.
	sendTimeout = 5 * time.Second
	// replyTimeout is how long the supervisor may need: it waits two seconds for another
	// instance, and five for nftables.
	replyTimeout = 30 * time.Second
	// keepTimeout is how long a reload may wait for a supervisor that hangs, while the old configuration
	// serves.
	keepTimeout = 5 * time.Second
	// idle is a time after which to wait again.
	idle = time.Hour
)

// A thread calls functions on one thread of the system until it is closed. Other goroutines do not
// run there, and the runtime makes no threads from it, so that they keep their privileges.
type thread chan func()

func newThread() thread {
	t := make(thread)
	go func() {
		// Never unlocked: the thread ends with the goroutine. When the thread ends that has started a
		// worker, the kernel kills the worker.
		runtime.LockOSThread()
		for f := range t {
			f()
		}
	}()
	return t
}

// do calls f and blocks until it returns.
func (t thread) do(f func()) {
	done := make(chan struct{})
	t <- func() {
		defer close(done)
		f()
	}
	<-done
}

// startWorker starts the program again, as a worker with copies of the sockets. attach may be nil.
func startWorker(p page, pass string, sockets []socket, attach func(*os.File)) (*worker, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket for the worker: %w", err)
	}
	conn, err := handover.FileConn(os.NewFile(uintptr(fds[0]), "worker"))
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, err
	}

	files := []uintptr{0, 1, 2, connFD: uintptr(fds[1]), pageFD: p.file.Fd()}
	attached := [2]int{-1, -1}
	if attach != nil {
		attached, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			_ = unix.Close(fds[1])
			conn.Close()
			return nil, fmt.Errorf("opening a second socket for the worker: %w", err)
		}
		files = append(files, uintptr(attached[1]))
	}

	pidFD := -1
	// A process group of its own: a terminal sends signals to that of the supervisor, which
	// passes them.
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), environment+"="+pass),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL, PidFD: &pidFD},
	})
	_ = unix.Close(fds[1])
	if attach != nil {
		_ = unix.Close(attached[1])
	}
	if err != nil {
		_ = unix.Close(attached[0])
		conn.Close()
		return nil, fmt.Errorf("starting the worker: %w", err)
	}
	if attach != nil {
		go attach(os.NewFile(uintptr(attached[0]), "attached")) // until the worker ends
	}

	w := &worker{events: make(chan event)}
	w.send = func(s syscall.Signal) {
		if unix.PidfdSendSignal(pidFD, s, nil, 0) == unix.EBADF { // the kernel has no pidfd
			_ = unix.Kill(pid, s)
		}
	}
	w.reply = func(id uint64, err error) {
		m := handover.Message{Kind: handover.End, ID: id}
		if err != nil {
			m = handover.Message{Kind: handover.Refused, ID: id, Error: err.Error()}
		}
		_ = conn.Send(m, sendTimeout) // if it fails, the worker ends
	}
	w.share = func(id uint64, f *os.File) {
		_ = conn.Send(handover.Message{Kind: handover.State, ID: id, File: f}, sendTimeout)
	}

	if err := sendSockets(conn, sockets); err != nil {
		w.send(unix.SIGKILL) // it ends as one that cannot start
	}
	w.forget = func() { _ = unix.Close(pidFD) }
	go w.run(conn, pid)
	return w, nil
}

// run receives messages until the worker has ended. It ends then.
func (w *worker) run(conn *handover.Conn, pid int) {
	var sockets []socket
	ended := make(chan syscall.WaitStatus, 1)
	if os.Getpid() == 1 { // other processes may end at any time
		go func() { ended <- wait(pid) }()
	}

	for {
		m, err := conn.Receive(idle,
			handover.Hello, kindOpen, handover.Begin, handover.DNS, handover.End, handover.Serving, kindStopping)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			break
		}
		switch m.Kind {
		case handover.Begin:
			closeSockets(sockets)
			sockets = nil
			continue
		case handover.DNS:
			if s := keep(m.File); s >= 0 { // else there are no descriptors left
				sockets = append(sockets, s)
			}
			continue
		}

		w.events <- event{kind: m.Kind, id: m.ID, sockets: sockets}
		sockets = nil
	}

	conn.Close()
	closeSockets(sockets)
	if os.Getpid() != 1 {
		ended <- wait(pid)
	}
	w.events <- event{kind: kindEnded, status: <-ended}
}

// wait waits for the end of a process. Process 1 of a container also waits for processes
// whose parents have ended.
func wait(pid int) (status syscall.WaitStatus) {
	wanted := pid
	if os.Getpid() == 1 {
		wanted = -1
	}
	for {
		if ended, err := syscall.Wait4(wanted, &status, 0, nil); ended == pid || err != nil && err != unix.EINTR {
			return status
		}
	}
}

// sendSockets sends copies of the sockets.
func sendSockets(conn *handover.Conn, sockets []socket) error {
	for _, s := range sockets {
		f, err := s.copy()
		if err != nil {
			return err
		}
		err = conn.Send(handover.Message{Kind: handover.DNS, File: f}, sendTimeout)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return conn.Send(handover.Message{Kind: handover.End}, sendTimeout)
}
