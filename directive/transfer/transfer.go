// Package transfer implements the transfer directive: zone transfers to other servers.
//
// Setup reads the options (setup.go). Transfer answers AXFR and IXFR from the
// handlers of the server block that are a zone.Transferable. A notifier (notify.go)
// sends NOTIFY messages when the versions of their zones change.
package transfer

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/tsig"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A Transfer lets other servers copy zones: the transfer directive. Its reference page is
// docs/reference/directives/transfer.md.
type Transfer struct {
	uses     []*use
	zones    wire.ZoneMap[*use]
	handlers []zone.Transferable // set before the first query
	limits                       // of whole zones
	long     limits              // of differences that need several messages
	log      *slog.Logger
}

// A limits limits concurrent transfers.
type limits struct {
	running *slots.Pool // all of them
	unnamed *slots.Pool // those of clients that the Corefile does not name
	strange *slots.Pool // those of strangers among them
}

// A use is one transfer directive in a Corefile.
type use struct {
	directive corefile.Directive
	zones     []wire.Name
	any       bool // to *
	clients   []netip.Addr
	targets   []netip.AddrPort // of NOTIFY
	dial      dialFunc         // for NOTIFY
	key       *tsig.Ref        // signs NOTIFY
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

const (
	// maxRunning is the number of transfers of whole zones at the same time, and maxLong that of differences
	// that need several messages. Each holds about 64 KB. Followers that a busy machine has delayed have more
	// differences: they must not wait for servers that read a whole zone, or they would be delayed even more.
	maxRunning = 16
	maxLong    = 128
	// maxRunningPerClient is how many of them one client has: a few that read slowly keep no
	// others from a transfer, and a client with many zones takes turns with others.
	maxRunningPerClient = 4
	// maxRunningStrangers is how many of them clients have that only "to *" permits: however many
	// addresses read slowly, the servers that the Corefile names get their transfers.
	maxRunningStrangers = maxRunning / 2
	// maxRunningUnnamed is how many of them clients have whose address the Corefile does not name. Clients
	// with a key are among them, since one key can be used from many addresses.
	maxRunningUnnamed = maxRunning * 3 / 4
	// timeout bounds the time of a transfer, and of waiting for others.
	timeout = 5 * time.Minute
	// partSize is the size of the messages of a transfer. Names can be compressed in the
	// first 16 KB of a message only.
	partSize = 16 << 10
)

// ServeDNS leaves transfers to Resolve.
func (t *Transfer) ServeDNS(q *dns.Query) dns.Verdict {
	if !q.Type.IsTransfer() {
		return dns.Next
	}
	u := t.find(wire.Name(q.Name()))
	if u == nil {
		return dns.Next
	}

	if !u.permits(q.Peer.Addr()) || !q.Streams() && q.Type == wire.TypeAXFR {
		q.Fail(wire.Refused)
		return dns.Done
	}

	if t.version(wire.Name(q.Name())) == nil {
		return dns.Next
	}
	q.Timeout = timeout
	return dns.Wait
}

// find returns the directive with the longest zone that contains name, or nil.
func (t *Transfer) find(name wire.Name) *use {
	u, _ := t.zones.LongestOf([]byte(name))
	return u
}

// Transfers implements [zone.Transferrer].
func (t *Transfer) Transfers(origin wire.Name) bool { return t.find(origin) != nil }

// permits reports whether the client may transfer the zone.
func (u *use) permits(client netip.Addr) bool {
	return u.any || u.names(client)
}

// names reports whether the Corefile names the client.
func (u *use) names(client netip.Addr) bool { return slices.Contains(u.clients, client.WithZone("")) }

// version returns the version of a zone to transfer, or nil.
func (t *Transfer) version(origin wire.Name) zone.Version {
	for _, h := range t.handlers {
		if v := h.Version(origin); v != nil {
			return v
		}
	}
	return nil
}

// Resolve sends the zone.
func (t *Transfer) Resolve(ctx context.Context, q *dns.Query) error {
	origin := wire.Name(q.Name())
	s := &stream{ctx: ctx, q: q, limits: &t.long, named: t.find(origin).names(q.Peer.Addr())}
	defer s.end()

	v := t.version(origin)
	send, kind, ok := s.choose(v)
	if kind == "AXFR" {
		s.limits = &t.limits
		if err := s.begin(); err != nil {
			return err
		}
		v = t.version(origin) // waiting may have taken minutes
		send, kind, ok = s.choose(v)
	}
	switch {
	case v == nil:
		return fmt.Errorf("zone %s has no data to transfer", origin)
	case !ok:
		q.Fail(wire.FormErr)
		return nil
	}

	serial, _ := v.Serial()
	q.AA = true
	if send(); s.err != nil {
		t.log.Warn("transfer: Failed to send zone",
			"zone", origin, "client", q.Peer.Addr(), "serial", serial, "error", s.err)
		return s.err
	}
	level := slog.LevelInfo
	if kind != "AXFR" {
		level = slog.LevelDebug // a zone may change every few milliseconds
	}
	t.log.Log(ctx, level, "transfer: Sent zone",
		"zone", origin, "client", q.Peer.Addr(), "serial", serial, "kind", kind, "count", s.count)
	return nil
}

// enter blocks until the client has the slots that a transfer needs: the more is known of it, the fewer. The caller
// calls leave then.
func (l *limits) enter(ctx context.Context, client netip.Addr, named, signed bool) (leave func(), err error) {
	pools := []*slots.Pool{l.strange, l.unnamed, l.running}
	switch {
	case named:
		pools = pools[2:]
	case signed:
		pools = pools[1:]
	}

	release := func(held []*slots.Pool) {
		for _, p := range held {
			p.Release(client)
		}
	}
	for i, p := range pools {
		if err := p.Acquire(ctx, client); err != nil {
			release(pools[:i])
			return nil, err
		}
	}
	return func() { release(pools) }, nil
}

// newLimits returns the limits for a number of transfers: see maxRunning.
func newLimits(n int) limits {
	return limits{
		running: slots.New(n, maxRunningPerClient),
		unnamed: slots.New(n*maxRunningUnnamed/maxRunning, maxRunningPerClient),
		strange: slots.New(n*maxRunningStrangers/maxRunning, maxRunningPerClient),
	}
}

// choose returns the function that sends the reply, and its kind: the whole zone, the differences
// from the client's version, or the SOA record if the client has the present version or uses UDP
// (RFC 1995 §2). ok is false if the query is malformed, or v is nil.
func (s *stream) choose(v zone.Version) (send func(), kind string, ok bool) {
	if v == nil {
		return nil, "", false
	}
	serial, _ := v.Serial()
	send, kind = func() { s.sendZone(v) }, "AXFR"
	if s.q.Type != wire.TypeIXFR {
		return send, kind, true
	}
	has, ok := clientSerial(s.q.Packet())
	if !ok {
		return nil, "", false
	}

	if has == serial || zone.SerialLess(serial, has) || !s.q.Streams() {
		return func() { s.write(v.SOA()) }, "SOA", true
	}
	if d, ok := v.(zone.Differ); ok {
		if changes, ok := d.Since(has); ok {
			return func() { s.sendChanges(v, changes) }, "IXFR", true
		}
	}
	return send, kind, true
}

// A stream writes records to the messages of one transfer.
type stream struct {
	ctx    context.Context
	q      *dns.Query
	limits *limits
	named  bool // the Corefile names the client
	count  int
	err    error
	leave  func() // nil until begin
}

// begin blocks until the client has a slot. A reply of one message needs none: thousands of servers may follow a
// zone, and wait for no other that reads a whole one.
func (s *stream) begin() error {
	if s.leave != nil {
		return nil
	}
	if err := s.q.Block(); err != nil {
		return err
	}
	leave, err := s.limits.enter(s.ctx, s.q.Peer.Addr(), s.named, s.q.Signature != nil)
	if err != nil {
		return fmt.Errorf("too many transfers are running: %w", err)
	}
	s.leave = leave
	s.q.Answer.Buf = append(make([]byte, 0, 3*partSize), s.q.Answer.Buf...)
	return nil
}

// end releases the slot.
func (s *stream) end() {
	if s.leave != nil {
		s.leave()
	}
}

// sendZone writes all records, and the SOA record again.
func (s *stream) sendZone(v zone.Version) {
	var soa []byte
	for record := range v.Records {
		if soa == nil {
			soa = slices.Clone(record)
		}
		if !s.write(record) {
			return
		}
	}
	s.write(soa)
}

// sendChanges writes differences between two SOA records (RFC 1995 §4).
func (s *stream) sendChanges(v zone.Version, changes iter.Seq[[]byte]) {
	s.write(v.SOA())
	for record := range changes {
		if !s.write(record) {
			return
		}
	}
	s.write(v.SOA())
}

// write adds one record, and sends the message before if it is full.
func (s *stream) write(record []byte) bool {
	a := &s.q.Answer
	if !a.Empty() && len(a.Buf)+len(record) > partSize {
		if s.err = s.begin(); s.err == nil {
			s.err = s.ctx.Err()
		}
		if s.err == nil {
			s.err = s.q.SendPart()
		}
		if s.err != nil {
			return false
		}
	}
	a.Append(wire.Answers, record, 1)
	s.count++
	return true
}

// clientSerial returns the serial number in the authority section of an IXFR query.
func clientSerial(packet []byte) (serial uint32, ok bool) {
	if binary.BigEndian.Uint16(packet[6:]) != 0 || binary.BigEndian.Uint16(packet[8:]) == 0 {
		return 0, false
	}
	_, off, ok := wire.ReadName(nil, packet, wire.HeaderLen)
	if !ok {
		return 0, false
	}
	r, ok := wire.ReadRecord(packet, off+4)
	if !ok || r.Type != wire.TypeSOA {
		return 0, false
	}

	// Five numbers follow two names, which may be compressed.
	at := r.RData
	for range 2 {
		if _, at, ok = wire.ReadName(nil, packet, at); !ok {
			return 0, false
		}
	}
	if at+20 != r.Next {
		return 0, false
	}
	return binary.BigEndian.Uint32(packet[at:]), true
}
