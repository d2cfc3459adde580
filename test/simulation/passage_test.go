package simulation

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seamark/seamark/server/handover"
)

// A passage is the connection between two processes of which one replaces the other: packets in memory,
// each with a file. The packets are late, and the passage ends after some of them if one process dies.
type passage struct {
	ends    [2]*passageEnd
	written func(handover.Message) // is called before a message is sent
	after   int                    // the number of packets after which a process dies; negative if none does
	die     func()

	stopAfter int                   // the number of packets after which the process that sends the next one is stopped
	stopFor   time.Duration         // in the middle of it; 0 without a stop
	stopped   [2]func(stopped bool) // is called when the process of an end is stopped, and when it goes on

	mu sync.Mutex
	*rand.Rand
	sent int
}

// A passageEnd is what one process has of a passage. It is the handover.Socket of its Conn.
type passageEnd struct {
	passage *passage
	other   *passageEnd
	packets chan parcel
	closed  chan struct{}
	once    sync.Once

	mu       sync.Mutex
	deadline time.Time // of reads
}

// A parcel is a packet and the control message with its file.
type parcel struct {
	data, oob []byte
	delay     time.Duration
}

// newPassage returns a passage whose first end is that of the old process.
func newPassage(r *rand.Rand) *passage {
	p := &passage{Rand: r, after: -1}
	for i := range p.ends {
		p.ends[i] = &passageEnd{passage: p, packets: make(chan parcel, 1000), closed: make(chan struct{})}
	}
	p.ends[0].other, p.ends[1].other = p.ends[1], p.ends[0]
	return p
}

// stop makes the passage stop the process that sends a packet after a number of them, as SIGSTOP and SIGCONT
// do: the other one waits meanwhile.
func (p *passage) stop(after int, d time.Duration) { p.stopAfter, p.stopFor = after, d }

// next returns the delay of the next packet, which an end sends. It stops or kills the process that is due to be.
func (p *passage) next(end *passageEnd) time.Duration {
	p.mu.Lock()
	dies, stops := p.sent == p.after, p.sent == p.stopAfter
	p.sent++
	delay := time.Duration(1+p.IntN(20_000)) * time.Microsecond
	p.mu.Unlock()
	if stops && p.stopFor > 0 {
		stop := p.stopped[slices.Index(p.ends[:], end)]
		stop(true)
		time.Sleep(p.stopFor)
		stop(false)
	}
	if dies {
		p.die()
	}
	return delay
}

// WriteMsgUnix implements handover.Socket. The receiver gets a copy of the file.
func (e *passageEnd) WriteMsgUnix(b, oob []byte, _ *net.UnixAddr) (n, oobn int, err error) {
	var m handover.Message
	if err := json.Unmarshal(b, &m); err != nil {
		return 0, 0, err
	}
	delay := e.passage.next(e)
	if isClosed(e.closed) || isClosed(e.other.closed) {
		return 0, 0, os.NewSyscallError("sendmsg", syscall.EPIPE)
	}
	e.passage.written(m)
	passed, err := duplicate(oob)
	if err != nil {
		return 0, 0, err
	}
	e.other.packets <- parcel{append([]byte(nil), b...), passed, delay}
	return len(b), len(oob), nil
}

// ReadMsgUnix implements handover.Socket.
func (e *passageEnd) ReadMsgUnix(b, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	e.mu.Lock()
	timeout := time.NewTimer(time.Until(e.deadline))
	e.mu.Unlock()
	defer timeout.Stop()

	var p parcel
	select {
	case <-e.closed:
		return 0, 0, 0, nil, net.ErrClosed
	case p = <-e.packets:
	case <-e.other.closed:
		select {
		case p = <-e.packets: // sent before the other process has ended
		default:
			return 0, 0, 0, nil, io.EOF
		}
	case <-timeout.C:
		return 0, 0, 0, nil, os.ErrDeadlineExceeded
	}
	time.Sleep(p.delay)
	return copy(b, p.data), copy(oob, p.oob), 0, nil, nil
}

func (e *passageEnd) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deadline = t
	return nil
}

func (e *passageEnd) SetWriteDeadline(time.Time) error { return nil }

// Close closes the files that were not received, too.
func (e *passageEnd) Close() error {
	e.once.Do(func() {
		close(e.closed)
		for {
			select {
			case p := <-e.packets:
				closeFiles(p.oob)
			default:
				return
			}
		}
	})
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
