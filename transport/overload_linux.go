package transport

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// overloadInterval is the time between two changes of the limits. It is as long as the
	// periods in which a container may be stopped when it has used its CPU quota.
	overloadInterval = 100 * time.Millisecond

	// firstInterval is the time until the first limits are set. They follow from a small
	// sample, so the next intervals are short, too: each is twice as long as the last.
	firstInterval = 20 * time.Millisecond

	// overloadEnd is the time without a dropped query after which an overload has ended.
	overloadEnd = 5 * time.Second

	// leastPacket is the memory of the smallest packet in a socket's buffer.
	leastPacket = 768
)

// An overload limits the clients that send most when the buffers of UDP sockets
// overflow. Otherwise the kernel drops the same part of each client's queries, and one
// client that sends too many takes answers away from all others. While no buffer
// overflows it costs nothing.
//
// The kernel drops the packets above a client's share (attachFilter). If the reader received
// and discarded those queries, it would have less time for answers the more arrive.
//
// Clients may forge their address. So no client is excluded entirely, the number of
// limited ones is bounded, and a limit lasts for overloadInterval.
type overload struct {
	mu      sync.Mutex
	sockets []*socketLoad
	running bool
}

// A socketLoad observes one UDP socket.
type socketLoad struct {
	l        *Listener
	conn     any // the socket, which several readers may share
	raw      syscall.RawConn
	drops    atomic.Uint32 // as the kernel has counted them, when they were read last
	counting atomic.Bool   // an overload runs: the reader calls count
	idle     atomic.Bool   // a reader has found the socket empty

	mu       sync.Mutex
	received *tally
	shed     int
	backlog  backlog
	limited  time.Time // the last change of backlog

	shares shares // these are used by Listener.limitClients only
	since  time.Time
}

// observe returns the load of a socket that a reader is going to read. The process that
// has read it before may have left a filter.
func (o *overload) observe(l *Listener, conn any, raw syscall.RawConn) *socketLoad {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sockets {
		if s.conn == conn {
			return s
		}
	}

	s := &socketLoad{l: l, conn: conn, raw: raw, received: newTally()}
	_ = raw.Control(func(fd uintptr) {
		detachFilter(int(fd))
		m := readMemory(fd)
		s.drops.Store(m[unix.SK_MEMINFO_DROPS])
	})
	o.sockets = append(o.sockets, s)
	return s
}

// readMemory returns the state of a socket's buffers, or zeros if the kernel does not
// report it.
func readMemory(fd uintptr) (m [unix.SK_MEMINFO_VARS]uint32) {
	size := uint32(unsafe.Sizeof(m))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		clear(m[:])
	}
	return m
}

// check starts to limit clients if the socket's buffer has overflowed. The reader calls
// it when it has had packets for maxBusy. The kernel cannot tell the clients of proxies
// from each other.
func (s *socketLoad) check(fd uintptr) {
	if s.counting.Load() || s.l.proxies.Load().areUsed() {
		return
	}
	if readMemory(fd)[unix.SK_MEMINFO_DROPS] != s.drops.Load() {
		s.l.startLimiting()
	}
}

// setIdle records that the socket was empty. It writes nothing if that is known.
func (s *socketLoad) setIdle() {
	if !s.idle.Load() {
		s.idle.Store(true)
	}
}

// count counts the received packets by client, and marks the packets that are not answered.
func (s *socketLoad) count(slots []slot, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds := now.Sub(s.limited).Seconds()
	for i := range slots {
		client := ClientKey(slots[i].q.Peer.Addr())
		if s.backlog.sheds(client, seconds) {
			slots[i].shed = true
			s.shed++
		} else {
			s.received.add(client)
		}
	}
}

// startLimiting calls limitClients on another goroutine, unless it runs. A reader calls
// it, so the listener waits for the goroutine.
func (l *Listener) startLimiting() {
	o := &l.overload
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running {
		return
	}
	o.running = true

	l.o.Port.SetOverloaded(true)
	for _, s := range o.sockets {
		s.received, s.shed, s.backlog = newTally(), 0, backlog{}
		s.shares, s.since = shares{}, time.Now()
		s.idle.Store(false)
		s.counting.Store(true)
	}
	l.readers.Go(func() { l.limitClients(slices.Clone(o.sockets)) })
}

// limitClients changes the limits of the sockets in intervals until the overload has
// ended, or the listener stops.
func (l *Listener) limitClients(sockets []*socketLoad) {
	interval := firstInterval
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	start := time.Now()
	var report overloadReport
	lastDrop := start
	for time.Since(lastDrop) < overloadEnd && !l.isUDPStopping() {
		select {
		case <-l.udpStopping:
			continue
		case <-ticker.C:
		}
		if l.proxies.Load().areUsed() { // since a reload
			break
		}

		stopped, dropped := true, false
		for _, s := range sockets {
			o := s.adjust(&report)
			stopped = stopped && o.stopped()
			dropped = dropped || o.dropped > 0
		}
		if interval < overloadInterval && !stopped {
			interval = min(2*interval, overloadInterval)
			ticker.Reset(interval)
		}
		if dropped {
			lastDrop = time.Now()
			report.logStart(l)
		}
	}

	l.o.Port.SetOverloaded(false)
	for _, s := range sockets {
		s.counting.Store(false)
		_ = s.raw.Control(func(fd uintptr) { detachFilter(int(fd)) })
	}
	if time.Since(lastDrop) >= overloadEnd { // else the overload may go on
		report.logEnd(l, lastDrop.Sub(start))
	}

	l.overload.mu.Lock()
	defer l.overload.mu.Unlock()
	l.overload.running = false
}

// adjust observes the socket, and sets the limits of its clients accordingly.
func (s *socketLoad) adjust(report *overloadReport) observation {
	o, complete := s.takeObservation()
	if !complete {
		return o
	}

	unlimited := len(s.shares.limits) == 0
	changed, overLimit := s.shares.update(o)
	s.l.counts.shedLimit.Add(uint64(overLimit))
	s.l.counts.shedFull.Add(uint64(o.dropped - overLimit))

	report.add(o, s.shares.limits)
	if changed {
		s.limit(report, unlimited)
	}
	return o
}

// takeObservation returns what the socket has received and dropped since the last complete
// observation, and begins the next one. An observation is not complete if the socket is
// closed, or the process was stopped, after which it is continued.
func (s *socketLoad) takeObservation() (o observation, complete bool) {
	var memory [unix.SK_MEMINFO_VARS]uint32
	if s.raw.Control(func(fd uintptr) { memory = readMemory(fd) }) != nil {
		return observation{received: newTally()}, false // closed
	}
	now := time.Now() // the ticker's time may be long ago
	drops := memory[unix.SK_MEMINFO_DROPS]

	s.mu.Lock()
	defer s.mu.Unlock()
	o = observation{
		received: s.received,
		shed:     s.shed,
		dropped:  int(drops-s.drops.Load()) + s.shed,
		seconds:  now.Sub(s.since).Seconds(),
		fill:     float64(memory[unix.SK_MEMINFO_RMEM_ALLOC]) / float64(max(memory[unix.SK_MEMINFO_RCVBUF], 1)),
	}
	if o.stopped() {
		o.received = newTally() // the reader adds to the socket's
		return o, false
	}

	s.received, s.shed, s.since = newTally(), 0, now
	s.drops.Store(drops)
	o.idle = s.idle.Swap(false)
	return o, true
}

// limit makes the shares' limits effective. The filter does not apply to packets that
// wait in the buffer already: the first limits make them a backlog.
func (s *socketLoad) limit(report *overloadReport, first bool) {
	waiting := 0
	_ = s.raw.Control(func(fd uintptr) {
		report.failure = setLimits(int(fd), s.shares.limits)
		waiting = int(readMemory(fd)[unix.SK_MEMINFO_RMEM_ALLOC]) / leastPacket
	})

	s.mu.Lock()
	defer s.mu.Unlock()
	if !first {
		waiting = s.backlog.left
	}
	s.backlog, s.limited = s.shares.backlog(waiting), time.Now()
}

// setLimits replaces the socket's filter.
func setLimits(fd int, limits []limit) error {
	if len(limits) == 0 {
		detachFilter(fd)
		return nil
	}
	return attachFilter(fd, limits)
}

// An overloadReport has the numbers of an overload for the log.
type overloadReport struct {
	started bool
	dropped int
	clients map[netip.Addr]float64 // queries that the limited clients have sent; at most maxTallied
	failure error                  // of the last call of setLimits
}

func (r *overloadReport) add(o observation, limits []limit) {
	r.dropped += o.dropped
	if r.clients == nil {
		r.clients = map[netip.Addr]float64{}
	}
	for _, l := range limits {
		if _, ok := r.clients[l.client]; ok || len(r.clients) < maxTallied {
			r.clients[l.client] += l.sent * o.seconds
		}
	}
}

// heaviest returns the limited clients that have sent most.
func (r *overloadReport) heaviest() string {
	clients := slices.SortedFunc(maps.Keys(r.clients), func(a, b netip.Addr) int {
		return cmp.Compare(r.clients[b], r.clients[a])
	})
	var text []string
	for _, c := range clients[:min(len(clients), 5)] {
		if c.Is6() {
			text = append(text, c.String()+"/64")
		} else {
			text = append(text, c.String())
		}
	}
	return strings.Join(text, ", ")
}

func (r *overloadReport) logStart(l *Listener) {
	if r.started {
		return
	}
	r.started = true
	l.o.Log.Warn("Dropping UDP queries, more arrive than can be answered", "address", l.addr, "clients", r.heaviest())
	if r.failure != nil {
		l.o.Log.Warn("Limiting UDP clients failed, every client loses the same share of its queries",
			"address", l.addr, "error", r.failure)
	}
}

func (r *overloadReport) logEnd(l *Listener, duration time.Duration) {
	if r.started {
		l.o.Log.Info("All UDP queries are answered again",
			"address", l.addr, "count", r.dropped, "duration", duration, "clients", r.heaviest())
	}
}
