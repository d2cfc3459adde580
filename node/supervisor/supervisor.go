// Package supervisor runs the server of a node's cache in a child process, the worker, and
// keeps what has to survive the worker's end: the sockets for queries, in which queries
// wait for the next worker, and the capture of the node's queries. The command node calls
// it, in both processes: Run in the supervisor, Connect in the worker. It knows neither
// DNS nor how queries are captured.
//
// The supervisor starts a worker again when that has ended, with a growing delay if it
// happens often. It opens the gate, which sends the node's queries to the worker, while the
// worker's heartbeat is recent. Otherwise the gate is closed, and the cluster's DNS servers
// answer.
//
// The two processes share a page of memory with the heartbeat and the numbers of the
// supervisor's metrics; behind it is a text that one worker keeps for the next. They exchange
// messages over a Unix socket, with > from the worker:
//
//	< socket...   a file each: the sockets that the worker before has used
//	< end
//	> hello       the worker handles signals from now on
//	> open        the configuration is valid: add the addresses to the node
//	< state...    a file each: the memory that the Capture shares with workers, if it has any
//	< end         or refused, with an error
//	> socket...   a file each: the sockets that the worker reads; again after each reload
//	> end
//	< end
//	> serving
//	> stopping    because of a signal, or because another process has taken over
//	< end         the gate is closed, and the supervisor has closed its sockets
//
// If the supervisor ends, the kernel kills the worker.
package supervisor

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/seamark/seamark/sys/filepages"
)

// A Capture sends the node's queries to the worker. Its methods are called by one
// goroutine.
type Capture interface {
	// Enable opens the gate: the worker answers the node's queries.
	Enable()
	// Suspend closes the gate until Enable is called: the cluster's DNS servers answer.
	Suspend()
	// Disable closes the gate for good. If another instance takes over, its gate is opened
	// first.
	Disable()
	// Files returns the files that workers get.
	Files() []*os.File
	// Close releases everything.
	Close()
}

// Options configure Run.
type Options struct {
	Log *slog.Logger
	// Restrict reduces the privileges of the thread that calls it, from which workers are started:
	// they begin with its privileges. An error ends Run. It may be nil.
	Restrict func() error
	// Pass is passed to workers: see Passed. It is not empty.
	Pass string
	// Attach is called for each worker with the end of a connection, whose other end the worker gets by
	// Attached; on a goroutine of its own, which has all privileges. It returns when the connection ends.
	// It may be nil.
	Attach func(f *os.File)
	// Open prepares the node for the first worker, which is about to listen. The function
	// count adds n to a number that the worker reads: Worker.Count. Any goroutine may call
	// it.
	Open func(count func(index int, n uint64)) (Capture, error)
}

// maxCounts is the number of counters that a Capture may use.
const maxCounts = 16

// An Exit is the exit status of a worker: the supervisor ends as the worker did.
type Exit struct {
	Code   int
	Signal int // that has ended the worker; 0 if it has exited
}

func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("signal %d", e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// State is what a worker knows of its supervisor, for metrics.
type State struct {
	Restarts     uint64        // of workers
	Open         bool          // the gate is open
	HeartbeatAge time.Duration // as the supervisor has seen it last
}

// environment is the variable that makes a process a worker, and has Options.Pass.
const environment = "SEAMARK_WORKER"

// Passed returns Options.Pass of the supervisor, before Connect; "" if the process is not a worker.
func Passed() string { return os.Getenv(environment) }

// ReleaseMemory releases the memory that only the start of the process needs, after three
// seconds, and from then on what is not in use, from time to time. Run calls it for the
// supervisor.
func ReleaseMemory() {
	time.AfterFunc(filepages.Delay, func() { releaseAgain(filepages.Find()) })
}

// releaseAgain returns garbage and free memory of the heap to the kernel, and pages of the
// program's file, and plans the next time. Where queries allocate nothing, Go's garbage
// collector runs every two minutes, and the pages that it reads stay. So it runs before they
// are released.
func releaseAgain(pages filepages.Pages) {
	debug.FreeOSMemory()
	pages.Release()
	time.AfterFunc(filepages.Interval, func() { releaseAgain(pages) })
}
