package tcx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/mdlayher/netlink"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"golang.org/x/sys/unix"
)

const (
	// checkInterval is the time between two looks at interfaces without replies.
	checkInterval = 250 * time.Millisecond
	// listInterval is the time between two lists of all interfaces and their programs.
	// Changes of interfaces are reported, foreign programs are not.
	listInterval = 30 * time.Second
	// attachWait is how long Open waits for the first list: the kernel needs 5 s for 200
	// interfaces with TCX, and during an upgrade the other instance captures meanwhile.
	attachWait = 10 * time.Second
	// receiveBuffer holds the messages of some thousand changes.
	receiveBuffer = 4 << 20
)

// A Capture holds the programs and their links to interfaces, which the kernel removes
// with the process.
type Capture struct {
	options   Options
	program   *program
	marks     marks
	heartbeat *os.File
	replies   []*os.File // replyFiles
	events    *netlink.Conn
	requests  *netlink.Conn
	task      *follow.Task

	mu     sync.Mutex // of closed
	closed bool

	// Of the goroutine run.
	known    map[int]device    // all interfaces
	attached map[int]*attached // by the index of the interface
	refused  map[int]string    // the reason that was logged
	free     []uint32          // unused slots
	silent   uint64            // the counter at the last look
	quiet    map[paused]struct{}
}

// Open loads the programs and attaches them to the selected interfaces, now and when one
// appears. Nothing is captured before Enable.
func Open(o Options) (_ *Capture, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := checkCapabilities(); err != nil {
		return nil, err
	}
	o.Times = o.Times.orDefaults()
	c := &Capture{
		options: o, known: map[int]device{}, attached: map[int]*attached{}, refused: map[int]string{},
		quiet: map[paused]struct{}{},
	}
	defer func() {
		if err != nil {
			c.release()
		}
	}()

	if c.program, err = load(o.Pairs, o.Port, o.Times); err != nil {
		_, err = loadSupport(err)
		return nil, err
	}
	for slot := range uint32(c.program.limit) {
		c.free = append(c.free, uint32(c.program.limit)-1-slot)
	}
	if c.marks, err = mark(c.program); err != nil {
		return nil, err
	}

	if c.heartbeat, err = fileOf(c.program.heartbeat, "heartbeat"); err != nil {
		return nil, err
	}
	if c.program.unrepeated != nil {
		o.Log.Warn("The kernel repeats no replies, as it has no array for them", "error", c.program.unrepeated)
	}
	if c.replies, err = c.program.replyFiles(); err != nil {
		return nil, err
	}

	if c.events, err = openLinks(unix.RTMGRP_LINK); err != nil { // before the first list
		return nil, err
	}
	_ = c.events.SetReadBuffer(receiveBuffer)
	if c.requests, err = openLinks(0); err != nil {
		return nil, err
	}

	changes, ready := make(chan []netlink.Message), make(chan struct{})
	c.task = follow.Go(func(ctx context.Context) { c.receive(ctx, changes) })
	c.task.Go(func(ctx context.Context) { c.run(ctx, changes, ready) })
	select {
	case <-ready:
	case <-time.After(attachWait):
	}
	return c, nil
}

// fileOf returns a copy of a map's descriptor.
func fileOf(m *ebpf.Map, name string) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating the descriptor of the %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// replyFiles is the number of files for OpenReplies: the replies, and the samples of them.
const replyFiles = 2

// replyFiles returns the files for OpenReplies, none if no replies can be repeated.
func (p *program) replyFiles() (files []*os.File, err error) {
	if p.replies == nil {
		return nil, nil
	}
	for _, m := range [replyFiles]struct {
		m    *ebpf.Map
		name string
	}{{p.replies, "replies"}, {p.samples, "samples"}} {
		f, err := fileOf(m.m, m.name)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// ReplyFiles returns the files for OpenReplies, none if the kernel has no memory for replies. They stay open
// until Close. The process that has got them before has to have ended.
func (c *Capture) ReplyFiles() []*os.File {
	if len(c.replies) > 0 {
		if err := abandonClaims(c.replies[0]); err != nil {
			c.options.Log.Warn("Places of replies that a process was writing when it ended stay unused", "error", err)
		}
	}
	return c.replies
}

// Heartbeat returns the file for OpenBeat. It stays open until Close.
func (c *Capture) Heartbeat() *os.File { return c.heartbeat }

// Counters returns the present numbers, and zeros after Close.
func (c *Capture) Counters() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Counters{}
	}
	return c.program.page.Counters()
}

// Enable captures new queries. The server has to listen at the aliases.
func (c *Capture) Enable() { c.program.open(true) }

// Disable captures no more new queries: they go to the cluster's DNS servers. Replies to
// earlier queries and open TCP connections still pass.
func (c *Capture) Disable() { c.program.open(false) }

// Close detaches the programs from all interfaces. No other method may be called after it,
// except Counters and Close.
func (c *Capture) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.Disable()
	_ = c.events.Close() // ends receive
	c.task.Stop()

	for index := range c.attached {
		c.detach(index)
	}
	c.release()
}

// release closes what Open has opened.
func (c *Capture) release() {
	for _, conn := range []*netlink.Conn{c.events, c.requests} {
		if conn != nil {
			_ = conn.Close()
		}
	}
	for _, f := range append(c.replies, c.heartbeat) {
		if f != nil {
			_ = f.Close()
		}
	}
	c.marks.close()
	if c.program != nil {
		c.program.close()
	}
}

// receive passes on messages about interfaces, and nil when some were lost.
func (c *Capture) receive(ctx context.Context, changes chan<- []netlink.Message) {
	for {
		messages, err := c.events.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			messages = nil
		case err != nil:
			return // the socket is closed
		}
		select {
		case changes <- messages:
		case <-ctx.Done():
			return
		}
	}
}

// run attaches and detaches the programs until ctx ends. It closes ready when it has attached
// them to all interfaces for the first time.
func (c *Capture) run(ctx context.Context, changes <-chan []netlink.Message, ready chan<- struct{}) {
	start := time.Now()
	c.list()
	close(ready)
	c.options.Log.Info("Attached the capture to interfaces of pods",
		"count", len(c.attached), "duration", time.Since(start).Round(time.Millisecond))

	list, check := time.NewTicker(listInterval), time.NewTimer(clock.UntilNext(checkInterval))
	defer list.Stop()
	defer check.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case messages := <-changes:
			if messages == nil {
				c.list()
			}
			for _, m := range messages {
				c.change(m)
			}
		case <-list.C:
			c.list()
		case now := <-check.C:
			c.watch(now)
			check.Reset(clock.UntilNext(checkInterval))
		}
		c.publish()
	}
}

// list compares the interfaces with the known ones.
func (c *Capture) list() {
	found, err := devices(c.requests)
	if err != nil {
		c.options.Log.Error("Interfaces of pods cannot be listed, trying again",
			"interval", listInterval, "error", err)
		return
	}

	gone := c.known
	c.known = map[int]device{}
	for _, d := range found {
		c.known[d.index] = d
		delete(gone, d.index)
	}
	for index := range gone {
		c.forget(index)
	}

	// The kernel reports no program that another process attaches: a list finds it.
	for _, d := range found {
		if a := c.attached[d.index]; a != nil {
			if reason := c.foreign(d.index); reason != "" {
				c.detach(d.index)
				c.refuse(d, reason)
			}
		}
		c.update(d)
	}
}

// change applies a message about an interface.
func (c *Capture) change(m netlink.Message) {
	d, ok := parseDevice(m.Data)
	switch {
	case !ok:
	case m.Header.Type == unix.RTM_DELLINK:
		delete(c.known, d.index)
		c.forget(d.index)
	case m.Header.Type == unix.RTM_NEWLINK:
		before := c.known[d.index]
		c.known[d.index] = d
		if before == d {
			return
		}
		c.update(d)
		if d.kind == "bridge" && before.mac != d.mac {
			for index := range c.attached {
				if port := c.known[index]; port.master == d.index {
					c.update(port)
				}
			}
		}
	}
}

// forget drops an interface that does not exist any more.
func (c *Capture) forget(index int) {
	c.detach(index)
	delete(c.refused, index)
}

// publish writes the numbers of interfaces for Counters.
func (c *Capture) publish() {
	count := 0
	for key := range c.quiet {
		if _, other := c.quiet[paused{key.index, family4}]; key.family == family4 || !other {
			count++
		}
	}
	c.program.page.page.interfaces.Store(uint64(len(c.attached)) | uint64(count)<<32)
}
