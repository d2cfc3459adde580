package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A notifier sends NOTIFY messages of one plan. Each target has a goroutine.
type notifier struct {
	uses *Transfer
	task follow.Task

	mu      sync.Mutex
	targets map[*use][]*target
	stops   []func() // of Follow
}

// newNotifier starts the goroutines of the targets.
func newNotifier(t *Transfer) *notifier {
	n := &notifier{uses: t, targets: map[*use][]*target{}}
	for _, u := range t.uses {
		for _, addr := range u.targets {
			to := &target{
				addr: addr, dial: u.dial, key: u.key, log: t.log,
				wake: follow.NewSignal(), pending: map[wire.Name]*attempt{},
			}
			n.targets[u] = append(n.targets[u], to)
			n.task.Go(to.run)
		}
	}
	return n
}

// follow sends NOTIFY messages for the zones of handlers, and answers the queries that wait for their versions.
func (n *notifier) follow(handlers []zone.Transferable, w *waiting) {
	for _, h := range handlers {
		stop := h.Follow(func(origin wire.Name) {
			w.changed(origin)
			n.changed(h, origin)
		})
		n.mu.Lock()
		n.stops = append(n.stops, stop)
		n.mu.Unlock()
	}
}

// changed sends NOTIFY messages for a zone of a handler.
func (n *notifier) changed(h zone.Transferable, origin wire.Name) {
	if u := n.uses.find(origin); u != nil {
		for _, to := range n.targets[u] {
			to.add(h, origin)
		}
	}
}

// Stop implements config.Stopper.
func (n *notifier) Stop() {
	n.mu.Lock()
	for _, stop := range n.stops {
		stop()
	}
	n.mu.Unlock()
	n.task.Stop()
}

// maxAttempts is the number of NOTIFY messages for one change. RFC 1996 §3.6 advises five
// retries.
const maxAttempts = 6

// firstTimeout is the time after which a NOTIFY message without a reply is repeated. It
// doubles with each attempt.
const firstTimeout = time.Second

// settleTime is how long after a reply a zone has to stay unchanged until the server is sent one more
// message, if the zone has changed several times before: NSD and BIND may discard changes, or
// messages about them, that arrive while they apply others, and would wait for their own timers.
const settleTime = 10 * time.Second

// A target is one server that is sent NOTIFY messages.
type target struct {
	addr  netip.AddrPort
	dial  dialFunc
	key   *tsig.Ref
	log   *slog.Logger
	wake  follow.Signal
	tasks sync.WaitGroup

	mu      sync.Mutex
	pending map[wire.Name]*attempt
}

// An attempt is the state of one zone whose NOTIFY message has no reply yet, or had one a moment ago.
type attempt struct {
	handler zone.Transferable
	id      uint16 // of the last message
	count   int    // messages sent
	next    time.Time
	err     error
	settles bool // there was a reply: next is settleTime later
	again   bool // send another message then

	session *tsig.Session // of the last message; nil without a key
}

// add makes the target send a NOTIFY message for a zone. A change while an earlier
// message waits for its reply starts again.
func (t *target) add(h zone.Transferable, origin wire.Name) {
	t.mu.Lock()
	t.pending[origin] = &attempt{handler: h, again: t.pending[origin] != nil}
	t.mu.Unlock()
	t.wake.Send()
}

// run sends messages until ctx ends. The socket is open while replies are awaited.
func (t *target) run(ctx context.Context) {
	var socket net.Conn
	closeSocket := func() {
		if socket != nil {
			_ = socket.Close()
			socket = nil
			t.tasks.Wait()
		}
	}
	defer closeSocket()

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer.C:
		}

		if wait := t.sendDue(ctx, &socket); wait >= 0 {
			timer.Reset(wait)
		} else {
			closeSocket()
		}
	}
}

// sendDue sends the messages that must be sent now. It returns the time until the next, which is
// negative if there is none.
func (t *target) sendDue(ctx context.Context, socket *net.Conn) (wait time.Duration) {
	for {
		origin, a, wait := t.due(time.Now())
		if a.id == 0 {
			return wait
		}
		if err := t.send(ctx, socket, origin, a.id, a.handler); err != nil {
			t.update(origin, a.id, func(a *attempt) { a.err = err })
		}
	}
}

// due returns a zone whose NOTIFY message must be sent now, with the attempt. Without one
// the ID is zero, and wait is the time until the next, negative if there is none.
func (t *target) due(now time.Time) (origin wire.Name, a attempt, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()

	wait = -1
	for name, a := range t.pending {
		left := a.next.Sub(now)
		switch {
		case left > 0 && (wait < 0 || left < wait):
			wait = left
		case left > 0:
		case a.settles && !a.again:
			delete(t.pending, name)
		case a.count == maxAttempts:
			delete(t.pending, name)
			if a.err == nil {
				a.err = errors.New("no reply")
			}
			t.log.Warn("transfer: Failed to notify server", "zone", name, "address", t.addr, "error", a.err)
		default:
			a.settles, a.again = false, a.again && !a.settles
			a.next = now.Add(firstTimeout << a.count)
			a.count++
			a.id, a.session = uint16(1+rand.N(0xFFFF)), nil
			return name, *a, 0
		}
	}
	return "", attempt{}, wait
}

// update changes the attempt whose last message has an ID, unless a change of the zone or a reply
// has ended it.
func (t *target) update(origin wire.Name, id uint16, change func(*attempt)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.pending[origin]; a != nil && a.id == id {
		change(a)
	}
}

// send sends one message, and opens the socket if it is nil. The message has the zone's SOA
// record (RFC 1996 §3.7), so that a server that is transferring an earlier version can know
// that it needs another transfer.
func (t *target) send(ctx context.Context, socket *net.Conn, origin wire.Name, id uint16, h zone.Transferable) error {
	if *socket == nil {
		opened, err := t.dial(ctx, "udp", t.addr.String())
		if err != nil {
			return err
		}
		*socket = opened
		t.tasks.Go(func() { t.receive(opened) })
	}

	message := wire.AppendRequest(nil, id, wire.OpcodeNotify<<11|wire.FlagAA, []byte(origin), wire.TypeSOA)
	if v := h.Version(origin); v != nil {
		message = append(message, v.SOA()...)
		message[7] = 1 // the number of records in the answer section
	}

	key, err := t.key.Key()
	if err != nil {
		return err
	}
	if key != nil {
		var session *tsig.Session
		session, message = tsig.Start(key, message, time.Now())
		t.update(origin, id, func(a *attempt) { a.session = session })
	}

	_, err = (*socket).Write(message)
	return err
}

// receive reads replies until the socket is closed.
func (t *target) receive(socket net.Conn) {
	buf := make([]byte, 2048)
	for {
		n, err := socket.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && n >= wire.HeaderLen && buf[2]&0x80 != 0 {
			t.replied(buf[:n])
		}
	}
}

// replied ends the attempt with the ID of a reply, unless the reply lacks a valid
// signature or the server does not have the zone. A server that refuses the message is not
// sent others.
func (t *target) replied(reply []byte) {
	id, code := binary.BigEndian.Uint16(reply), wire.RCode(reply[3]&15)
	t.mu.Lock()
	defer t.mu.Unlock()
	for origin, a := range t.pending {
		if a.id != id || a.count == 0 {
			continue
		}

		if a.session != nil {
			if a.err = a.session.Verify(reply, true, time.Now()); a.err != nil {
				continue
			}
		}

		if code == wire.NotAuth {
			// The server may not have the version of its catalog yet that lists the zone.
			a.err = fmt.Errorf("reply %s", code)
			continue
		}

		if code == wire.NoError {
			*a = attempt{handler: a.handler, settles: true, again: a.again, next: time.Now().Add(settleTime)}
			continue
		}
		delete(t.pending, origin)
		t.log.Warn("transfer: Failed to notify server",
			"zone", origin, "address", t.addr, "error", fmt.Errorf("reply %s", code))
	}
}
