package secondary

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/zone"
)

// A zoneCopy keeps the copy of one zone up to date. A reload of the Corefile keeps it if
// its options are the same.
type zoneCopy struct {
	options
	clients   []*client
	log       *slog.Logger
	health    conditions
	followers *zone.Followers
	notified  follow.Signal // a NOTIFY message arrived
	task      follow.Task

	accept    func(z *zone.Zone) error // of catalogs and members: takes a version, or rejects it; else nil
	transfers *slots.Pool              // limits concurrent transfers, by primary; nil for no limit
	server    *server
	catalog   *catalog     // whose zone this is, or nil
	share     *share       // of a member: what it uses of the budget; else nil
	room      *room        // its memory
	before    *zoneCopy    // the stopped copy whose state this one takes over, or nil
	last      *schedule    // the state of run after it has ended
	metrics   *zoneMetrics // of the zone, or of a member's catalog; nil without
	made      time.Time

	current atomic.Pointer[zone.Zone] // nil without data, and after it has expired
	history atomic.Pointer[version]   // the same version, or the next one, with its history
	sends   atomic.Bool               // other servers may copy the zone from here
	failing atomic.Bool               // the last refresh has failed
	loaded  atomic.Bool               // what another process passed, or the file, is served if there is any
	tried   chan struct{}             // closed when the zone is served, or the primaries were asked, for the first time

	interval atomic.Int64                   // see follows
	expires  atomic.Int64                   // the option expire; 0 is that of the SOA record
	followed atomic.Pointer[netip.AddrPort] // the primary with which a connection is open, or nil

	mu      sync.Mutex  // for current, when it is changed, and the rest
	expiry  *time.Timer // calls expire
	checked time.Time   // the last time that a primary answered
	since   time.Time   // when the version began to serve
	until   time.Time   // when the zone expires
}

// Limits of the timers. firstRetry is the first interval between attempts without data, as in
// CoreDNS, and between attempts to reach a primary; intervals double, without data up to
// lastRetry, otherwise up to RETRY.
const (
	minTimer   = time.Second
	maxTimer   = 30 * 24 * time.Hour
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
	// saveInterval is the shortest time between two writes of the file.
	saveInterval = 30 * time.Second
	// stampPart of the time until a version expires is how much earlier it may expire after a crash than
	// its primary has confirmed.
	stampPart = 8
	// rest is the factor by which a secondary waits longer after a transfer than the
	// transfer took, so that frequent changes of a large zone do not occupy a processor.
	// maxRest bounds the time, since a transfer may take long because the primary is slow.
	rest    = 4
	maxRest = time.Minute
)

// newCopy returns a copy without data. Start starts it.
func newCopy(o options, clients []*client, log *slog.Logger, r room, of *server) *zoneCopy {
	return &zoneCopy{
		options: o, clients: clients, log: log, room: &r, server: of, followers: new(zone.Followers),
		notified: follow.NewSignal(), health: (*health.Board)(nil), tried: make(chan struct{}), made: time.Now(),
	}
}

func (c *zoneCopy) start() { c.task.Go(c.run) }

// run follows the zone until ctx ends.
func (c *zoneCopy) run(ctx context.Context) {
	s := schedule{copy: c, retry: firstRetry}
	defer func() { c.last = &s }()
	defer c.share.stop()
	defer c.room.stop()
	defer c.stopExpiry()
	defer c.server.copies.add(c)()
	defer s.disconnect()

	if c.before != nil {
		s.takeOver(c.before.last)
		c.before = nil
	} else {
		s.load()
	}
	c.loaded.Store(true)
	tried := sync.OnceFunc(func() { close(c.tried) })
	if c.current.Load() != nil {
		tried()
	}
	defer func() {
		s.unsaved = s.unsaved || s.checked.After(s.stamped)
		s.save()
	}()

	for {
		took := s.refresh(ctx)
		tried()
		if ctx.Err() != nil {
			return
		}
		releaseGarbage()
		if !clock.Sleep(ctx, min(took*rest, maxRest)) || !s.wait(ctx) {
			return
		}
	}
}

// A schedule is the state of run.
type schedule struct {
	copy       *zoneCopy
	zone       *zone.Zone // the last version, also after it has expired
	journal    zone.Journal
	session    session
	checked    time.Time  // the last time that a primary answered
	asked      time.Time  // the last time that primaries were asked
	notified   *zone.Zone // the version before the last check that a NOTIFY message caused
	next       time.Time  // of the next refresh
	retry      time.Duration
	unsaved    bool
	stamped    time.Time // checked, as the file has it
	saved      time.Time
	failed     string // the last error that was logged
	ixfrFailed string // the last error of IXFR that was logged
}

// takeOver continues with the data of another copy of the zone.
func (s *schedule) takeOver(from *schedule) {
	if s.zone, s.checked = from.zone, from.checked; s.zone != nil {
		s.unsaved = true
		s.copy.share.hold(s.zone.Bytes())
		s.copy.room.takeOver(s.zone)
		if s.copy.current.Load() != nil {
			s.install(s.zone)
		}
	}
}

// refresh queries the primaries in turn until one answers. It returns how long that took.
func (s *schedule) refresh(ctx context.Context) time.Duration {
	c := s.copy
	if c.transfers != nil {
		primary := c.clients[0].addr.Addr()
		if c.transfers.Acquire(ctx, primary) != nil {
			return 0
		}
		defer c.transfers.Release(primary)
	}

	s.asked = time.Now()
	var errs []error
	before, answered := s.zone, time.Time{}
	var older error // of a primary that has an older version
	for _, from := range s.order() {
		received, err := s.refreshFrom(ctx, from)
		if ctx.Err() != nil {
			return 0
		}
		if err != nil && !errors.As(err, new(olderSerialError)) {
			errs = append(errs, &primaryError{from.addr.String(), err})
			continue
		}
		answered = received
		if older = err; older == nil { // else the next primary may have a newer version
			break
		}
	}
	if answered.IsZero() {
		s.scheduleRetry(errs)
		return 0
	}

	// What is reported depends on whether the zone is served now.
	if older != nil {
		s.warn(older)
	} else {
		s.failed = ""
		c.failing.Store(false)
		c.health.Clear(c, "transfer")
	}
	s.next = time.Now().Add(s.pause(s.zone != before))
	s.retry = firstRetry
	return time.Since(answered)
}

// refreshFrom serves the version of one primary if it is newer. An error reports that the primary
// has not confirmed the present version either, an olderSerialError that it has an older one. received is
// when the transfer began.
func (s *schedule) refreshFrom(ctx context.Context, from *client) (received time.Time, err error) {
	c := s.copy
	start := time.Now() // what the primary sends is not older
	z, in, ixfrErr, err := from.fetch(ctx, s, c.share, c.room)
	defer c.room.release()
	if ctx.Err() != nil {
		return start, ctx.Err()
	}
	s.warnIXFR(from, ixfrErr)
	if z != nil {
		err = c.admit(z)
	}
	c.share.release()

	if err != nil && !errors.Is(err, errUnchanged) {
		return start, err
	}

	s.checked = start
	switch {
	case z != nil:
		s.journal = s.journalTo(z, in).Within(c.room.journal)
		s.install(z)
		s.unsaved = true
		s.logTransfer(from, z, in)
		if time.Since(s.saved) > saveInterval {
			s.save()
		}
	case c.current.Load() == nil: // it had expired
		s.install(s.zone)
	default:
		s.setExpiry()
	}

	// The file tells until when the version may be served.
	if s.checked.Sub(s.stamped) > c.expiresAfter(s.zone)/stampPart {
		s.unsaved = true
	}

	if !errors.As(err, new(olderSerialError)) {
		err = nil
	}
	if in == nil { // the primary has no newer version
		return start, err
	}
	return in.received, err
}

// admit returns an error if a new version cannot be served.
func (c *zoneCopy) admit(z *zone.Zone) error {
	before := c.room.version
	err := c.room.install(z)
	if err == nil && c.accept != nil {
		if err = c.accept(z); err != nil {
			c.room.hold(c.room.version, before)
		}
	}
	return err
}

// scheduleRetry sets the time of the next refresh after the errors of all primaries.
func (s *schedule) scheduleRetry(errs []error) {
	err := errors.Join(errs...)
	s.warn(err)
	s.copy.metrics.failed()
	switch {
	case isRefused(err):
		s.next = time.Now().Add(jitter(fullRetry))
		if errors.Is(err, errBudget) {
			s.copy.share.await(s.copy.notify)
		}
	case s.zone == nil || s.copy.follows() > 0:
		s.next = time.Now().Add(jitter(s.retry))
		s.retry = min(2*s.retry, lastRetry)
	default:
		wait := s.copy.timer(s.zone, soaRetry)
		if unanswered(errs) {
			wait = min(s.retry, wait)
			s.retry = 2 * wait
		}
		s.next = time.Now().Add(jitter(wait))
	}
}

// unanswered reports whether no primary replied, so that another attempt costs little.
func unanswered(errs []error) bool {
	for _, err := range errs {
		if !errors.As(err, new(unansweredError)) {
			return false
		}
	}
	return true
}

// A primaryError is the error of one primary.
type primaryError struct {
	addr string
	err  error
}

func (e *primaryError) Error() string { return e.addr + ": " + e.err.Error() }
func (e *primaryError) Unwrap() error { return e.err }

// warn logs an error unless it is the last one again.
func (s *schedule) warn(err error) {
	s.copy.failing.Store(true)
	if s.failed != err.Error() {
		s.failed = err.Error()
		s.copy.log.Warn("secondary: Failed to transfer zone", "zone", s.copy.origin, "error", err)
	}
	if s.copy.current.Load() == nil {
		s.copy.report(health.Critical, "transfer", "cannot be transferred and is not served: %v", err)
	} else {
		s.copy.report(health.Warning, "transfer", "cannot be transferred, and the last version serves: %v", err)
	}
}

// warnIXFR logs the error of IXFR for which the whole zone was requested, unless it is the
// last one again.
func (s *schedule) warnIXFR(from *client, err error) {
	if err == nil || errors.Is(err, errWholeZone) || errors.As(err, new(rcodeError)) || s.ixfrFailed == err.Error() {
		return
	}
	s.ixfrFailed = err.Error()
	s.copy.log.Warn("secondary: Rejected differences and requested the whole zone",
		"zone", s.copy.origin, "address", from.addr, "error", err)
}

// logTransfer logs a new version. A zone may change every few milliseconds.
func (s *schedule) logTransfer(from *client, z *zone.Zone, in *incoming) {
	serial, _ := z.Serial()
	level, kind := slog.LevelInfo, "AXFR"
	if in.changes != nil {
		level, kind = slog.LevelDebug, "IXFR"
	}

	c := s.copy
	c.metrics.transferred(in.changes != nil)
	c.log.Log(c.task.Context(), level, "secondary: Transferred zone",
		"zone", c.origin, "address", from.addr, "serial", serial, "kind", kind)
	if in.outside > 0 {
		c.log.Warn("secondary: Ignored records outside the zone",
			"zone", c.origin, "address", from.addr, "count", in.outside)
	}
}

// install serves a version until it expires.
func (s *schedule) install(z *zone.Zone) {
	c := s.copy
	s.zone = z
	c.mu.Lock()
	c.history.Store(&version{z, s.journal})
	c.current.Store(z)
	c.since = time.Now()
	c.health.Clear(c, "expired")
	c.mu.Unlock()
	s.setExpiry()
	c.followers.Changed(c.origin)
}

// setExpiry sets the time when the zone expires, which may be during a transfer.
func (s *schedule) setExpiry() {
	c := s.copy
	c.mu.Lock()
	defer c.mu.Unlock()

	c.checked, c.until = s.checked, s.checked.Add(c.expiresAfter(s.zone))
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.expiry = time.AfterFunc(time.Until(c.until), c.expire)
}

// expire stops serving the zone (RFC 1035 §3.3.13).
func (c *zoneCopy) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) || c.current.Swap(nil) == nil {
		return
	}

	c.log.Error("secondary: Zone expired", "zone", c.origin, "data_age", time.Since(c.checked).Round(time.Second))
	c.health.Clear(c, "transfer") // it says that the last version serves
	c.report(health.Critical, "expired", "has expired and is not served")
}

// report adds a condition of the zone, which a name identifies.
func (c *zoneCopy) report(severity health.Severity, name, format string, args ...any) {
	if c.task.Context().Err() != nil {
		return // another copy may have taken over the zone
	}
	origin, alert := c.origin.String(), ""
	switch {
	case severity == health.Critical:
		alert = alertNotServed
	case name == "transfer":
		alert = alertNotRefreshed
	}
	c.health.Set(c, name, health.Condition{
		Severity: severity, Alert: alert, Object: origin, Text: "the zone " + origin + " " + fmt.Sprintf(format, args...),
		Next: "check the primary servers, and the options of secondary",
	})
}

// stopExpiry ends the timer of setExpiry: another copy may take over the zone.
func (c *zoneCopy) stopExpiry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.until = time.Now().Add(maxTimer) // expire may run already
}

// Distances of the times of a SOA record from its end, in bytes.
const soaRefresh, soaRetry, soaExpire = 16, 12, 8

// timer returns one of the times of the SOA record, by its distance from the end.
func timer(z *zone.Zone, fromEnd int) time.Duration {
	soa := z.SOA()
	d := time.Duration(binary.BigEndian.Uint32(soa[len(soa)-fromEnd:])) * time.Second
	return min(max(d, minTimer), maxTimer)
}

// jitter returns a duration that is shorter by up to a tenth, so that many secondaries do
// not ask at the same time.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/10+1) }

// wait blocks until the next refresh, or a NOTIFY message. It returns false when ctx ends.
func (s *schedule) wait(ctx context.Context) bool {
	for {
		wake := s.next
		var save time.Time
		if s.unsaved && s.copy.file != "" {
			if save = s.saved.Add(saveInterval); save.Before(wake) {
				wake = save
			}
		}

		t := time.NewTimer(time.Until(wake))
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-s.copy.notified:
			t.Stop()
			if s.isFollowing() {
				continue
			}
			return s.awaitCheck(ctx)
		case <-t.C:
		}

		now := time.Now()
		if !save.IsZero() && !now.Before(save) {
			s.save()
		}
		if !now.Before(s.next) {
			return true
		}
	}
}

// notify makes run refresh the zone.
func (c *zoneCopy) notify() {
	c.notified.Send()
}

// Yield implements config.Yielder: see files.
func (c *zoneCopy) Yield() {}

// Resume implements config.Yielder. The other process may have received NOTIFY messages, and have served
// a newer version.
func (c *zoneCopy) Resume() { c.notify() }

// Stop implements config.Stopper.
func (c *zoneCopy) Stop() {
	stopAll([]*zoneCopy{c})
	c.metrics.stop()
}
