//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// burst is the number of datagrams per system call.
	burst = 16
	// slots is the number of outstanding queries of a socket.
	slots = 4096
)

// A client is a connected UDP socket of the generator.
type client struct {
	fd      int
	next    uint16 // the ID of the next query
	pending []pending
	out     int // outstanding queries
	owed    int // queries that are due
}

// A pending query is identified by its ID.
type pending struct {
	lookup int32
	id     uint16
	waits  bool
	at     time.Duration // the time when it was sent or, with a rate, due
	sent   time.Duration
}

// A generator sends queries and reads answers on one thread. With a rate, the
// schedule does not depend on the server, and latency counts from the time when a
// query was due: a server that stalls is not spared queries.
type generator struct {
	load
	clients []*client
	polls   []unix.PollFd
	at      int // index of the next lookup
	tally   tally

	start, end time.Duration
	scheduled  int // queries due so far
	turn       int // index of the client that sends next

	in, out     [burst]unix.Mmsghdr
	inIO, outIO [burst]unix.Iovec
	inRoom      [burst][4096]byte
	outRoom     [burst][512]byte
}

func (l load) runUDP(ctx context.Context) (*tally, error) {
	g := &generator{load: l}
	defer func() {
		for _, c := range g.clients {
			unix.Close(c.fd)
		}
	}()

	for i := range l.sockets {
		fd, err := dialFrom(l, i)
		if err != nil {
			return nil, fmt.Errorf("opening a socket to %s: %w", l.to, err)
		}
		g.clients = append(g.clients, &client{fd: fd, pending: make([]pending, slots)})
		g.polls = append(g.polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}

	for i := range burst {
		g.inIO[i].Base = &g.inRoom[i][0]
		g.inIO[i].SetLen(len(g.inRoom[i]))
		g.in[i].Hdr.Iov = &g.inIO[i]
		g.in[i].Hdr.SetIovlen(1)
		g.outIO[i].Base = &g.outRoom[i][0]
		g.out[i].Hdr.Iov = &g.outIO[i]
		g.out[i].Hdr.SetIovlen(1)
	}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	release, err := pinThread(l.cpu)
	if err != nil {
		return nil, err
	}
	defer release()

	// Timers of a thread are late by 50 µs by default.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	return &g.tally, g.generate(ctx)
}

// dialFrom opens the i-th socket, in its namespace if there are any.
func dialFrom(l load, i int) (fd int, err error) {
	if len(l.namespaces) == 0 {
		return dial(l)
	}
	err = within(l.namespaces[i%len(l.namespaces)], func() error {
		fd, err = dial(l)
		return err
	})
	return fd, err
}

func dial(l load) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	// The kernel may grant less without an error; root may exceed the limit.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) != nil {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(l.to.Port()), Addr: l.to.Addr().As4()}); err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

func (g *generator) generate(ctx context.Context) error {
	g.start = clock()
	g.end = g.start + g.time
	if g.rate == 0 {
		for i, c := range g.clients {
			c.owed = g.window / len(g.clients)
			if i < g.window%len(g.clients) {
				c.owed++
			}
		}
	}

	swept := g.start
	for now := g.start; now < g.end; now = clock() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if g.rate > 0 {
			g.due(now)
		}

		for _, c := range g.clients {
			if err := g.send(c, now); err != nil {
				return err
			}
		}

		if err := g.receive(g.untilNext(now)); err != nil {
			return err
		}

		if now-swept > patience/4 {
			swept = now
			g.sweep(now - patience)
		}
	}

	g.tally.elapsed = clock() - g.start
	return g.drain()
}

// due assigns the queries that have become due to the clients in turn.
func (g *generator) due(now time.Duration) {
	total := int(float64(now-g.start) / float64(time.Second) * g.rate)
	for ; g.scheduled < total; g.scheduled++ {
		g.clients[g.turn].owed++
		g.turn = (g.turn + 1) % len(g.clients)
	}
}

// untilNext returns the time until the next query is due.
func (g *generator) untilNext(now time.Duration) time.Duration {
	if g.rate == 0 {
		return 10 * time.Millisecond
	}
	next := g.start + time.Duration(float64(g.scheduled+1)/g.rate*float64(time.Second))
	return min(max(next-now, 0), 10*time.Millisecond)
}

// send sends the due queries of a client.
func (g *generator) send(c *client, now time.Duration) error {
	for c.owed > 0 {
		n := min(c.owed, burst)
		sent := clock()
		for i := range n {
			g.fill(c, i, now, sent)
		}
		for sent := 0; sent < n; {
			k, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&g.out[sent])),
				uintptr(n-sent), 0, 0, 0)
			switch errno {
			case 0:
				sent += int(k)
			case unix.EAGAIN, unix.EINTR:
			case unix.ECONNREFUSED:
				return fmt.Errorf("%s refuses connections", g.to)
			default:
				return fmt.Errorf("sending: %w", errno)
			}
		}
		c.owed -= n
		g.tally.sent += n
	}
	return nil
}

// fill builds the i-th datagram of a burst.
func (g *generator) fill(c *client, i int, now, sent time.Duration) {
	at := now
	if g.rate > 0 { // the time when it was due: the last ones of the schedule
		at = g.start + time.Duration(float64(g.tally.sent+i+1)/g.rate*float64(time.Second))
		at = min(at, now)
	}
	p := &c.pending[c.next%slots]
	if p.waits {
		g.lose(c, p) // slots queries were sent after it
	}
	c.out++
	*p = pending{int32(g.at), c.next, true, at, sent}
	n := copy(g.outRoom[i][:], g.lookups[g.at].packet)
	binary.BigEndian.PutUint16(g.outRoom[i][:], c.next)
	g.outIO[i].SetLen(n)
	c.next++
	if g.at++; g.at == len(g.lookups) {
		g.at = 0
	}
}

// receive reads replies, and waits if there are none.
func (g *generator) receive(wait time.Duration) error {
	timeout := unix.NsecToTimespec(int64(wait))
	n, err := unix.Ppoll(g.polls, &timeout, nil)
	if err == unix.EINTR || n == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("waiting: %w", err)
	}
	for i, c := range g.clients {
		if g.polls[i].Revents == 0 {
			continue
		}
		if err := g.read(c); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) read(c *client) error {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&g.in)), burst,
			unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
		case unix.EAGAIN, unix.EINTR:
			return nil
		case unix.ECONNREFUSED:
			return fmt.Errorf("%s refuses connections", g.to)
		default:
			return fmt.Errorf("reading: %w", errno)
		}
		now := clock()
		for i := range int(n) {
			g.took(c, g.inRoom[i][:g.in[i].Len], now)
		}
		if n < burst {
			return nil
		}
	}
}

// took matches a reply with its query.
func (g *generator) took(c *client, packet []byte, now time.Duration) {
	if len(packet) < 12 {
		g.tally.wrong++
		g.tally.example = "a datagram of less than a header"
		return
	}
	id := binary.BigEndian.Uint16(packet)
	p := &c.pending[id%slots]
	if !p.waits || p.id != id {
		return // late: already counted as lost
	}
	p.waits = false
	c.out--
	if g.rate == 0 {
		c.owed++
	}
	g.tally.latencies = append(g.tally.latencies, (now - p.at).Seconds())
	g.tally.trips = append(g.tally.trips, (now - p.sent).Seconds())
	g.tally.got(g.lookups[p.lookup], packet)
}

// sweep gives up queries that were sent before a time.
func (g *generator) sweep(before time.Duration) {
	for _, c := range g.clients {
		if c.out == 0 {
			continue
		}
		for i := range c.pending {
			if p := &c.pending[i]; p.waits && p.at < before {
				g.lose(c, p)
				if g.rate == 0 {
					c.owed++
				}
			}
		}
	}
}

// lose counts a lost query, which has the longest latency.
func (g *generator) lose(c *client, p *pending) {
	p.waits = false
	c.out--
	g.tally.lost++
	g.tally.latencies = append(g.tally.latencies, patience.Seconds())
	g.tally.trips = append(g.tally.trips, patience.Seconds())
}

// drain waits for the last replies.
func (g *generator) drain() error {
	for until := clock() + patience; ; {
		out := 0
		for _, c := range g.clients {
			out += c.out
		}
		if out == 0 || clock() > until {
			break
		}
		if err := g.receive(10 * time.Millisecond); err != nil {
			return err
		}
	}
	g.sweep(clock() + time.Second)
	return nil
}

// pinThread binds the calling thread to one CPU until release is called.
func pinThread(cpu int) (release func(), err error) {
	if cpu < 0 {
		return func() {}, nil
	}
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("pinning to CPU %d: %w", cpu, err)
	}
	return func() {
		// Restoring can hardly fail, and would leave this thread on one CPU.
		_ = unix.SchedSetaffinity(0, &before)
	}, nil
}
