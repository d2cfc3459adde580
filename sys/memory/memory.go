// Package memory divides the memory of the process among the parts of the server that clients,
// upstreams, primary servers and files can fill: its consumers.
//
// A consumer calls Reserve before it keeps something, and Release when it keeps it no longer.
// If Reserve returns an error, the consumer refuses what is new, or removes what it has least
// use for, and keeps the rest. Nothing waits for memory.
//
// Each consumer has a minimum, which no other one can take, and a maximum. The memory between
// the sum of the minimums and the total is shared. Answers from the server's own data are no
// consumer: a part of the total is kept for them, for the program and for garbage.
//
// Detect finds the total. Package cmd makes the Budget of the process, package server passes it
// to listeners and directives. A nil Budget has no total, only the maximums that hold on every
// machine.
package memory

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
)

// A Consumer is a part of the server that others can fill.
type Consumer uint8

const (
	Cache     Consumer = iota // answers of other servers
	Waiting                   // queries that wait for an answer
	TCP                       // connections
	TLS                       // connections
	HTTPS                     // connections, also of gRPC
	QUIC                      // connections, also of HTTP/3
	Replies                   // that clients have not read yet
	Transfers                 // versions of zones that are being received
	Zones                     // of files, and copies of other servers' zones
	Catalogs                  // members of catalog zones
	Files                     // of hosts
	Snapshot                  // of the cluster, while it is read
	Records                   // of queries, for admin
	Upstreams                 // sockets and connections to servers that forward asks
	Listeners                 // memory in which listeners write answers
	Followers                 // servers that wait for the next version of a zone
	NumConsumers
)

// rules has the part of each consumer: percentages of the total, and bounds in bytes that
// hold whatever the total is. least is what a server with a usual configuration needs.
var rules = [NumConsumers]struct {
	name     string
	min, max int64 // percent
	least    int64 // of the minimum
	most     int64
}{
	Cache:     {"cache", 10, 12, 5 << 20, 64 << 20},
	Waiting:   {"waiting", 10, 10, 1536 << 10, 96 << 20},
	TCP:       {"tcp", 4, 12, 512 << 10, math.MaxInt64},
	TLS:       {"tls", 2, 15, 512 << 10, math.MaxInt64},
	HTTPS:     {"https", 2, 15, 512 << 10, math.MaxInt64},
	QUIC:      {"quic", 2, 15, 1 << 20, math.MaxInt64},
	Replies:   {"replies", 3, 8, 1 << 20, 16 << 20},
	Transfers: {"transfers", 3, 60, 512 << 10, 1 << 30},
	Zones:     {"zones", 6, 60, 1 << 20, math.MaxInt64},
	Catalogs:  {"catalogs", 1, 25, 256 << 10, 512 << 20},
	Files:     {"files", 2, 60, 512 << 10, math.MaxInt64},
	Snapshot:  {"snapshots", 2, 60, 512 << 10, math.MaxInt64},
	Records:   {"records", 1, 20, 512 << 10, 12 << 20},
	Upstreams: {"upstreams", 2, 15, 512 << 10, 256 << 20},
	Listeners: {"listeners", 1, 15, 384 << 10, math.MaxInt64},
	Followers: {"followers", 0, 5, 64 << 10, 64 << 20},
}

// ownPercent is the part of the total that is kept for answers from the server's own data. A
// cluster of 10,000 Services with 150,000 endpoints needs 13 MB with the program's own memory.
const (
	ownPercent = 35
	mostOwn    = 512 << 20
)

// String returns the consumer's name in logs and metrics.
func (c Consumer) String() string { return rules[c].name }

// A Budget is the memory of one server. Its methods are safe for concurrent use.
type Budget struct {
	total  int64
	own    int64 // at least
	source Source
	scale  atomic.Int64               // of the minimums: see Scaled
	most   [NumConsumers]atomic.Int64 // Max of the parts, for Max
	share  int64                      // shared, if other things need no more than own
	tight  atomic.Bool
	tights atomic.Uint64

	mu     sync.Mutex
	parts  [NumConsumers]Part
	used   [NumConsumers]func() int64 // of consumers that do not reserve
	shared int64                      // by consumers that use more than their minimum: see own.go

	clients map[netip.Addr]int64 // what each of them uses of Replies
}

// A Part is what one consumer has. All numbers are bytes but Refused, a count.
type Part struct {
	Used, Min, Max int64
	Refused        uint64
}

// New returns the budget of a total number of bytes.
func New(total int64, source Source) *Budget {
	b := &Budget{total: total, own: min(total/100*ownPercent, mostOwn), source: source}
	b.share = total - b.own
	for c := range NumConsumers {
		b.parts[c] = b.standard(c)
		b.share -= b.parts[c].Min
	}
	b.share = max(b.share, 0)
	b.shared = b.share
	b.scale.Store(fullScale)
	for c := range NumConsumers {
		b.setMax(c, b.parts[c].Max)
	}
	return b
}

func (b *Budget) setMax(c Consumer, bytes int64) {
	p := &b.parts[c]
	p.Max = min(bytes, p.Min+b.share)
	b.most[c].Store(p.Max)
}

// standard returns the part of a consumer that uses nothing.
func (b *Budget) standard(c Consumer) Part {
	r := &rules[c]
	least := min(max(b.total/100*r.min, r.least), r.most)
	return Part{Min: least, Max: max(least, min(b.total/100*r.max, r.most))}
}

// Total returns the memory that is divided, and Own the part that no consumer gets.
func (b *Budget) Total() int64 { return b.total }
func (b *Budget) Own() int64   { return b.own }

// Log logs how the total is divided, in one line.
func (b *Budget) Log(log *slog.Logger) {
	if b == nil {
		return
	}
	level := slog.LevelInfo
	if b.source == FromMachine {
		level = slog.LevelDebug // nothing limits this process
	}

	parts := make([]string, 0, NumConsumers)
	for c := range NumConsumers {
		parts = append(parts, fmt.Sprintf("%s %s", c, Size(b.Max(c))))
	}
	log.Log(context.Background(), level, "Divided the memory", "total", Size(b.total), "source", string(b.source),
		"own", Size(b.own), "parts", strings.Join(parts, ", "))
}

// Part returns the part of a consumer.
func (b *Budget) Part(c Consumer) Part {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[c]
	p.Used = b.usedBy(c)
	return p
}

// usedBy returns what a consumer uses. The caller holds the lock.
func (b *Budget) usedBy(c Consumer) int64 {
	if b.used[c] == nil {
		return b.parts[c].Used
	}
	return b.parts[c].Used + b.used[c]()
}

// Measure sets the function that returns what a consumer uses that does not reserve memory but
// keeps to Max. It must not call methods of the budget.
func (b *Budget) Measure(c Consumer, used func() int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[c] = used
}

// Max returns the largest part that a consumer can have, in bytes, if others use little.
func (b *Budget) Max(c Consumer) int64 {
	if b == nil {
		return rules[c].most
	}
	return b.most[c].Load()
}

// Raise raises the maximum of a consumer to that of the configuration, if that is more than the
// standard. The minimums stay: the consumer still gets no more than the others leave.
func (b *Budget) Raise(c Consumer, bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setMax(c, max(b.standard(c).Max, bytes))
}

// An Error reports that a consumer cannot have more memory.
type Error struct {
	Consumer Consumer
	Max      int64 // bytes that it can have, if others use little
}

// Error returns the same text as long as the cause is the same, so that it is logged once.
func (e *Error) Error() string {
	return fmt.Sprintf("no memory for more %s: they can have %s at most, and less while other parts of the server "+
		"are full: raise the memory limit", e.Consumer, Size(e.Max))
}

// Reserve reserves bytes for a consumer. It returns an *Error if the consumer has its maximum,
// or if it has its minimum and the rest is used or memory is tight.
func (b *Budget) Reserve(c Consumer, bytes int64) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.parts[c]
	if used := b.usedBy(c); used+bytes > p.Max || bytes > 0 && b.borrowed(c, used+bytes)-b.borrowed(c, used) > b.unlent() {
		p.Refused++
		return &Error{c, p.Max}
	}
	p.Used += bytes
	return nil
}

// ReserveLeast is Reserve for another thing of a consumer that has some, and may have a number in any case.
func (b *Budget) ReserveLeast(c Consumer, bytes int64, has, least int) error {
	err := b.Reserve(c, bytes)
	if err != nil && has < least {
		b.Force(c, bytes)
		err = nil
	}
	return err
}

// Exceeded reports whether a consumer has more than its maximum, or than its minimum while memory is tight: since
// Force has given it that.
func (b *Budget) Exceeded(c Consumer) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.parts[c].Max
	if b.Tight() {
		most = b.scaled(b.parts[c].Min)
	}
	return b.usedBy(c) > most
}

// Free returns how many bytes more a consumer can reserve at present.
func (b *Budget) Free(c Consumer) int64 {
	if b == nil {
		return rules[c].most
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.free(c), 0)
}

// free is Free, and negative if the consumer has been forced to have more. The caller holds the lock.
func (b *Budget) free(c Consumer) int64 {
	p, used := &b.parts[c], b.usedBy(c)
	return min(p.Max, max(used, b.scaled(p.Min))+b.unlent()) - used
}

// unlent returns how much of the shared memory is free. The caller holds the lock.
func (b *Budget) unlent() int64 {
	if b.Tight() {
		return 0
	}
	free := b.shared
	for c := range NumConsumers {
		free -= b.borrowed(c, b.usedBy(c))
	}
	return max(free, 0)
}

// borrowed returns how much of the shared memory a consumer has that uses so many bytes.
func (b *Budget) borrowed(c Consumer, used int64) int64 {
	return max(used-b.scaled(b.parts[c].Min), 0)
}

// ReserveReply is Reserve of Replies for a client, by its key of package slots. A client may have
// as much as it leaves for others: one client leaves half, two leave a third, and so on. If it
// returns nil, the caller must call ReleaseReply.
func (b *Budget) ReserveReply(client netip.Addr, bytes int64) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := &b.parts[Replies]; b.clients[client]+bytes > b.free(Replies) {
		p.Refused++
		return &Error{Replies, p.Max}
	}
	b.addReply(client, bytes)
	return nil
}

// ReleaseReply ends the use of bytes that were reserved for a client.
func (b *Budget) ReleaseReply(client netip.Addr, bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addReply(client, -bytes)
}

// addReply adds bytes for a client. The caller holds the lock.
func (b *Budget) addReply(client netip.Addr, bytes int64) {
	b.parts[Replies].Used += bytes
	if b.clients == nil {
		b.clients = map[netip.Addr]int64{}
	}
	if b.clients[client] += bytes; b.clients[client] == 0 {
		delete(b.clients, client)
	}
}

// Release ends the use of bytes that were reserved for a consumer.
func (b *Budget) Release(c Consumer, bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[c].Used -= bytes
}

// Force reserves bytes that are in use already, whatever the limits are.
func (b *Budget) Force(c Consumer, bytes int64) { b.Release(c, -bytes) }

// Size returns a number of bytes as text, such as "34.6 MB".
func Size(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/(1<<20)) }
