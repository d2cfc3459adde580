package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Remote has another process write to sets: the one that calls Serve with the other end of its connection.
// Its methods are safe for concurrent use, and return within replyTimeout if that process hangs.
type Remote struct {
	sets []Set
	conn connection // nil if there is no other process

	mu      sync.Mutex  // of a request and its reply
	asked   uint32      // the number of the last request
	retry   time.Time   // when to ask again a process that has not answered
	replies chan []byte // closed at the end of the connection
	changes atomic.Uint64
}

// A connection keeps the boundaries of messages: it is a socket of type SOCK_SEQPACKET.
type connection interface {
	io.ReadWriter
	SetWriteDeadline(time.Time) error
}

const (
	// replyTimeout is how long a request may wait for its reply. The kernel needs milliseconds, and longer
	// while it has large transactions of other processes.
	replyTimeout = 2 * time.Second
	// retryInterval is how long a process is not asked that has not answered.
	retryInterval = time.Second
)

// The kinds of messages. Requests are from the Remote. The number of a request follows, and its reply has it, too.
const (
	inspectRequest = 1 + iota // the index of a set
	_                         // its reply: a key and a problem
	addRequest                // elements
	_                         // its reply: a result for each
	changedEvent              // Changes is another number
)

const (
	elementSize = 2 + 16 + 16 + 8 + 8
	resultSize  = 2 + 8
	headerSize  = 1 + 4 // the kind and the number of the request
	maxMessage  = headerSize + MaxElements*elementSize
)

// The flags of an element in a message.
const (
	flagRenew = 1 << iota
	flagClient
	flagIPv4
)

// NewRemote returns a Remote for these sets, which Serve has, too, in the same order.
func NewRemote(conn *os.File, sets []Set) *Remote {
	if conn == nil {
		return &Remote{sets: sets}
	}
	return newRemote(conn, sets)
}

func newRemote(conn connection, sets []Set) *Remote {
	r := &Remote{sets: sets, conn: conn, replies: make(chan []byte, 1)}
	go r.receive() // until the other process ends
	return r
}

// receive passes replies on, and counts changes.
func (r *Remote) receive() {
	defer close(r.replies)
	for {
		buf := make([]byte, maxMessage)
		n, err := r.conn.Read(buf)
		switch {
		case err != nil || n == 0:
			r.changes.Add(1)
			return
		case buf[0] == changedEvent:
			r.changes.Add(1)
		default:
			r.replies <- buf[:n]
		}
	}
}

// Close does nothing: the connection lasts as long as the process.
func (*Remote) Close() {}

// Changes is [Kernel.Changes].
func (r *Remote) Changes() uint64 { return r.changes.Load() }

// ask sends a request, and returns the rest of its reply, which has size bytes; nil if there is none.
func (r *Remote) ask(kind byte, body []byte, size int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil || time.Now().Before(r.retry) {
		return nil
	}

	r.asked++
	header := binary.BigEndian.AppendUint32([]byte{kind}, r.asked)
	timeout := time.NewTimer(replyTimeout)
	defer timeout.Stop()
	_ = r.conn.SetWriteDeadline(time.Now().Add(replyTimeout))
	if _, err := r.conn.Write(append(header, body...)); err != nil {
		r.retry = time.Now().Add(retryInterval)
		return nil
	}

	header[0]++
	for {
		select {
		case reply, ok := <-r.replies:
			if ok && !bytes.HasPrefix(reply, header) {
				continue // to a request that has not waited for it
			}
			if len(reply) != len(header)+size {
				return nil
			}
			return reply[len(header):]
		case <-timeout.C:
			r.retry = time.Now().Add(retryInterval)
			return nil
		}
	}
}

// Inspect is [Kernel.Inspect].
func (r *Remote) Inspect(s Set) (Key, Problem) {
	i := slices.Index(r.sets, s)
	if i < 0 {
		return NoKey, NotListed
	}
	reply := r.ask(inspectRequest, []byte{byte(i)}, 3)
	if reply == nil {
		return NoKey, Gone
	}
	return Key(reply[0]), Problem(binary.BigEndian.Uint16(reply[1:]))
}

// Add is [Kernel.Add].
func (r *Remote) Add(elements []Element) []Result {
	results := make([]Result, len(elements))
	var request []byte
	var of []int
	for i, e := range elements {
		at := slices.Index(r.sets, e.Set)
		if at < 0 {
			results[i].Problem = NotListed
			continue
		}
		request, of = appendElement(request, e, at), append(of, i)
	}
	if len(of) == 0 {
		return results
	}

	reply := r.ask(addRequest, request, len(of)*resultSize)
	for n, i := range of {
		if reply == nil {
			results[i].Problem = Gone
			continue
		}
		one := reply[n*resultSize:]
		results[i] = Result{Problem(binary.BigEndian.Uint16(one)), time.Duration(binary.BigEndian.Uint64(one[2:]))}
	}
	return results
}

func appendElement(b []byte, e Element, set int) []byte {
	flags := byte(0)
	if e.Renew {
		flags |= flagRenew
	}
	client := [16]byte{}
	if e.Client.IsValid() {
		flags |= flagClient
		client = e.Client.As16()
	}
	if e.IP.Is4() {
		flags |= flagIPv4
	}
	ip := e.IP.As16()

	b = append(append(append(b, byte(set), flags), client[:]...), ip[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Need))
	return binary.BigEndian.AppendUint64(b, uint64(e.Timeout))
}

// readElement returns the element in b, which may be anything that a process without privileges sends. It
// reports false if no Remote sends it.
func readElement(b []byte, sets []Set) (e Element, ok bool) {
	at, flags := int(b[0]), b[1]
	if at >= len(sets) {
		return e, false
	}
	ip := netip.AddrFrom16([16]byte(b[18:34]))
	client := netip.AddrFrom16([16]byte(b[2:18]))
	if flags&flagIPv4 != 0 {
		if !ip.Is4In6() || flags&flagClient != 0 && !client.Is4In6() {
			return e, false
		}
		ip, client = ip.Unmap(), client.Unmap()
	}

	need, timeout := binary.BigEndian.Uint64(b[34:]), binary.BigEndian.Uint64(b[42:])
	e = Element{
		Set: sets[at], IP: ip, Renew: flags&flagRenew != 0,
		Need: time.Duration(need), Timeout: time.Duration(timeout),
	}
	if flags&flagClient != 0 {
		e.Client = client
	}
	return e, timeout > 0 && timeout <= uint64(MaxTimeout) && need <= timeout
}

// Serve writes for a Remote until its process ends. It opens the kernel at the first request.
func Serve(conn *os.File, sets []Set) {
	defer conn.Close()
	var kernel *Kernel
	defer func() {
		if kernel != nil {
			kernel.Close()
		}
	}()

	// One event suffices until the next request: the process knows no element that was written before it.
	var notified atomic.Bool
	changed := func() {
		if notified.CompareAndSwap(false, true) {
			_, _ = conn.Write([]byte{changedEvent})
		}
	}

	buf := make([]byte, maxMessage)
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		notified.Store(false)

		problem := None
		if kernel == nil {
			if kernel, err = Open(changed); err != nil {
				kernel, problem = nil, err.(Problem)
			}
		}
		reply := answer(buf[:n], sets, kernel, problem)
		if reply == nil {
			return // it is no Remote
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

// answer returns the reply to a request; nil if no Remote sends it. kernel is nil if it has a problem.
func answer(request []byte, sets []Set, kernel *Kernel, problem Problem) []byte {
	if len(request) < headerSize {
		return nil
	}
	reply := slices.Clone(request[:headerSize])
	reply[0]++
	switch body := request[headerSize:]; {
	case request[0] == inspectRequest && len(body) == 1 && int(body[0]) < len(sets):
		key := NoKey
		if kernel != nil {
			key, problem = kernel.Inspect(sets[body[0]])
		}
		return binary.BigEndian.AppendUint16(append(reply, byte(key)), uint16(problem))

	case request[0] == addRequest && len(body)%elementSize == 0:
		var elements []Element
		for one := range slices.Chunk(body, elementSize) {
			e, ok := readElement(one, sets)
			if !ok {
				return nil
			}
			elements = append(elements, e)
		}
		return addAll(reply, elements, kernel, problem)
	}
	return nil
}

// addAll adds elements, and appends the results to the reply.
func addAll(reply []byte, elements []Element, kernel *Kernel, problem Problem) []byte {
	results := slices.Repeat([]Result{{Problem: problem}}, len(elements))
	if kernel != nil {
		results = kernel.Add(elements)
	}
	for _, r := range results {
		reply = binary.BigEndian.AppendUint16(reply, uint16(r.Problem))
		reply = binary.BigEndian.AppendUint64(reply, uint64(r.Left))
	}
	return reply
}

// maxSets is the largest number of sets of a Remote.
const maxSets = 255

// ParseSets reads a list of sets, FAMILY/TABLE/SET,... It is empty for "".
func ParseSets(text string) (all []Set, err error) {
	if text == "" {
		return nil, nil
	}
	for _, word := range strings.Split(text, ",") {
		parts := strings.Split(word, "/")
		if len(parts) != 3 {
			return nil, fmt.Errorf("want FAMILY/TABLE/SET, got %q", word)
		}
		s := Set{parts[0], parts[1], parts[2]}
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", word, err)
		}
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if len(all) > maxSets {
		return nil, fmt.Errorf("want at most %d sets, got %d", maxSets, len(all))
	}
	return all, nil
}
