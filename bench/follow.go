//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	relays         = 3
	followers      = 1000
	followInterval = 200 * time.Millisecond // as the default of the option follow
	relayInterval  = 50 * time.Millisecond
	followChanges  = 100 // in a second
	followedTime   = 20 * time.Second
)

// follow measures a cluster whose zone nodes follow through relays, and the watches that these nodes do without.
func (b *bench) follow(ctx context.Context) error {
	c, err := b.newChanger(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if err := b.followRelays(ctx, c); err != nil {
		return err
	}
	return b.watchingNodes(ctx, c)
}

// followRelays measures the CPU of the source, of a relay and of a node, the bytes of a node, and the time from a
// change to the answer, at 100 changes in a second. One node is a server, the others are connections of this process
// that send the same queries and read the replies.
func (b *bench) followRelays(ctx context.Context, c *changer) error {
	defer b.stopServers()
	servers, err := b.startRelays(ctx)
	if err != nil {
		return err
	}
	node := servers[len(servers)-1]

	f := newFleet()
	defer f.close()
	for i := range followers {
		if err := f.add(servers[1+i%relays].addr()); err != nil {
			return err
		}
	}

	idle, err := cpuTimes(servers, func() error { return pause(ctx, followedTime/4) })
	if err != nil {
		return err
	}

	var answers []float64
	bytes, begin := f.bytes.Load(), time.Now()
	busy, err := cpuTimes(servers, func() (err error) {
		answers, err = changeFor(ctx, c, f, node)
		return err
	})
	if err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	if err := pause(ctx, 2*time.Second); err != nil { // the last changes
		return err
	}

	share := func(d time.Duration, seconds float64) float64 { return d.Seconds() / seconds * 100 }
	for i, name := range []string{"source", "relay"} {
		b.number("follow/"+name, "CPU of the "+name+", 100 changes a second", "% of a processor", share(busy[i], took))
	}
	b.number("follow/node", "CPU of a node, 100 changes a second", "% of a processor", share(busy[len(busy)-1], took))
	b.number("follow/idle", "CPU of a relay without changes", "% of a processor", share(idle[1], (followedTime/4).Seconds()))
	b.number("follow/bytes", "TCP payload of a node in a second", "bytes", float64(f.bytes.Load()-bytes)/took/followers)
	return b.reportFollow(f, answers, servers)
}

// reportFollow reports the times from the changes to the replies and answers, and the memory of a relay and of the
// node.
func (b *bench) reportFollow(f *fleet, answers []float64, servers []*server) error {
	times, missing := f.times()
	if missing > 0 {
		b.miss("%d of %d changes did not arrive at all followers, %d of %d arrivals; %d followers have ended: %v",
			missing, len(f.changes), len(times), len(f.changes)*len(f.conns), f.failed, f.err)
	}
	b.number("follow/p50", "time from a change to a follower", "ms", quantile(times, 0.5))
	b.number("follow/p99", "time from a change to a follower, p99", "ms", quantile(times, 0.99))
	b.number("follow/answer/p50", "time from a change to the answer of a node", "ms", quantile(answers, 0.5))
	b.number("follow/answer/p99", "time from a change to the answer of a node, p99", "ms", quantile(answers, 0.99))
	for name, s := range map[string]*server{"relay": servers[1], "node": servers[len(servers)-1]} {
		size, err := memory(s.pid())
		if err != nil {
			return err
		}
		b.megabytes("follow/memory/"+name, "resident memory of a "+name, size.resident)
	}
	return nil
}

// startRelays starts the source, the relays and a node, and waits until they answer.
func (b *bench) startRelays(ctx context.Context) (servers []*server, err error) {
	var addresses []netip.AddrPort
	start := func(config string, values map[string]any) error {
		p := b.seamark(config, values)
		addr, err := b.freeAddress()
		if err != nil {
			return err
		}
		p.at = map[string]netip.AddrPort{"plain": addr}
		s, err := b.start(ctx, p, b.pop.last())
		if err != nil {
			return err
		}
		servers, addresses = append(servers, s), append(addresses, addr)
		return nil
	}

	if err := start("source.Corefile", map[string]any{"source": b.source()}); err != nil {
		return nil, err
	}
	for range relays {
		if err := start("relay.Corefile", map[string]any{"from": addresses[0], "interval": relayInterval}); err != nil {
			return nil, err
		}
	}
	return servers, start("follower.Corefile", map[string]any{"from": addresses[1:]})
}

// changeFor changes the address of an endpoint 100 times in a second. It returns the times in milliseconds until the
// node answered some of the changes.
func changeFor(ctx context.Context, c *changer, f *fleet, node *server) (answers []float64, err error) {
	ticks := time.NewTicker(time.Second / followChanges)
	defer ticks.Stop()
	results := make(chan float64, 1)
	var asking sync.WaitGroup
	defer asking.Wait()

	free, n := true, 0
	for end := time.Now().Add(followedTime); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case ms := <-results:
			answers, free = append(answers, ms), true
			continue
		case <-ticks.C:
		}

		// The Service of a change that the node is asked for is not changed again before the answer.
		sampled := c.pop.moving - 1
		if n++; n%c.pop.moving == sampled && !free {
			n++
		}

		s, addr := c.moving(n), newAddress(n)
		f.changed(addr)
		if _, err := c.write(n); err != nil {
			return nil, err
		}
		if err := c.drain(); err != nil {
			return nil, err
		}

		if n%c.pop.moving == sampled {
			free = false
			q := newLookup(s.endpoint(addr), dns.TypeA, false, dns.RcodeSuccess, "A "+addr.String())
			begin := time.Now()
			asking.Go(func() {
				within, stop := context.WithTimeout(ctx, 5*time.Second)
				defer stop()
				if node.await(within, q) == nil {
					results <- float64(time.Since(begin).Microseconds()) / 1e3
				} else {
					results <- 5000
				}
			})
		}
	}
	if !free {
		answers = append(answers, <-results)
	}
	return answers, nil
}

// A fleet is followers, connections to relays.
type fleet struct {
	bytes   atomic.Int64
	conns   []net.Conn
	running sync.WaitGroup

	mu      sync.RWMutex
	changes map[netip.Addr]*arrivals
	failed  int // followers that have ended
	err     error
}

// An arrivals has the times at which a change has arrived.
type arrivals struct {
	begin time.Time
	mu    sync.Mutex
	ms    []float64
}

// fail records why a follower has ended.
func (f *fleet) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed, f.err = f.failed+1, err
}

func newFleet() *fleet { return &fleet{changes: map[netip.Addr]*arrivals{}} }

func (f *fleet) close() {
	for _, c := range f.conns {
		c.Close()
	}
	f.running.Wait()
}

// changed begins the time of a change, whose address no other one has.
func (f *fleet) changed(addr netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes[addr] = &arrivals{begin: time.Now()}
}

// times returns the times from all changes to all followers, and the number of changes that some follower lacks.
func (f *fleet) times() (ms []float64, missing int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.changes {
		a.mu.Lock()
		if ms = append(ms, a.ms...); len(a.ms) < len(f.conns) {
			missing++
		}
		a.mu.Unlock()
	}
	return ms, missing
}

// add starts a follower of a relay.
func (f *fleet) add(relay netip.AddrPort) error {
	// A relay limits the connections of one client.
	n := len(f.conns) + 1
	own := net.Dialer{LocalAddr: &net.TCPAddr{IP: address(127, 1, 0, n).AsSlice()}}
	conn, err := own.Dial("tcp4", relay.String())
	if err != nil {
		return err
	}
	f.conns = append(f.conns, conn)
	soa, err := f.exchange(conn, new(dns.Msg).SetQuestion(domain+".", dns.TypeSOA), nil)
	if err != nil {
		return err
	}
	serial := lastSerial(soa)
	f.running.Go(func() { f.run(conn, serial) })
	return nil
}

// run follows the zone until the connection is closed.
func (f *fleet) run(conn net.Conn, serial uint32) {
	var buf []byte
	for {
		q := new(dns.Msg).SetIxfr(domain+".", serial, "ns.dns."+domain+".", "hostmaster."+domain+".")
		q.SetEdns0(1232, false)
		q.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65074, Data: []byte{0, 20}}}
		reply, err := f.exchange(conn, q, buf)
		d := followReply{seen: map[netip.Addr]bool{}}
		for err == nil && !f.arrived(reply, &d) {
			reply, err = f.receive(conn, reply)
		}
		if err != nil {
			f.fail(err)
			return
		}
		buf = reply
		if d.serial != serial {
			serial = d.serial
			time.Sleep(followInterval)
		}
	}
}

// exchange sends a query, and returns the first message of the reply.
func (f *fleet) exchange(conn net.Conn, q *dns.Msg, buf []byte) ([]byte, error) {
	packet, err := q.Pack()
	if err != nil {
		return nil, err
	}
	f.bytes.Add(int64(len(packet) + 2))
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		return nil, err
	}
	return f.receive(conn, buf)
}

// receive returns a message.
func (f *fleet) receive(conn net.Conn, buf []byte) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	buf = slices.Grow(buf[:0], n)[:n]
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, err
	}
	f.bytes.Add(int64(n + 2))
	if buf[3]&15 != 0 {
		return nil, errors.New(dns.RcodeToString[int(buf[3]&15)])
	}
	return buf, nil
}

// lastSerial returns the serial number of the last SOA record.
func lastSerial(reply []byte) (serial uint32) {
	eachRecord(reply, func(t uint16, rdata []byte) {
		if t == dns.TypeSOA {
			serial = binary.BigEndian.Uint32(rdata[len(rdata)-20:])
		}
	})
	return serial
}

// A followReply is a reply that is being received.
type followReply struct {
	serial  uint32 // of the new version
	records int
	soas    int // SOA records; the third and each second one after it precede added records (RFC 1995 §4)
	of      int // SOA records with the new serial number: the third one is the last record
	seen    map[netip.Addr]bool
}

// arrived notes the changes of a message, and reports whether the reply is complete.
func (f *fleet) arrived(message []byte, d *followReply) bool {
	now := time.Now()
	f.mu.RLock()
	defer f.mu.RUnlock()
	eachRecord(message, func(t uint16, rdata []byte) {
		d.records++
		switch {
		case t == dns.TypeSOA:
			serial := binary.BigEndian.Uint32(rdata[len(rdata)-20:])
			if d.soas++; d.soas == 1 {
				d.serial = serial
			}
			if serial == d.serial {
				d.of++
			}
		case t == dns.TypeA && d.soas >= 3 && d.soas%2 == 1:
			addr, _ := netip.AddrFromSlice(rdata)
			a := f.changes[addr]
			if a == nil || d.seen[addr] { // the Service's name and the endpoint's have it
				return
			}
			d.seen[addr] = true
			a.mu.Lock()
			a.ms = append(a.ms, float64(now.Sub(a.begin).Microseconds())/1e3)
			a.mu.Unlock()
		}
	})
	return d.records == 1 || d.of == 3
}

// eachRecord calls do with each record of the answer section.
func eachRecord(m []byte, do func(t uint16, rdata []byte)) {
	name := func(off int) int {
		for m[off] != 0 && m[off] < 0xC0 {
			off += 1 + int(m[off])
		}
		if m[off] != 0 {
			return off + 2
		}
		return off + 1
	}
	off := 12
	for range binary.BigEndian.Uint16(m[4:]) {
		off = name(off) + 4
	}
	for range binary.BigEndian.Uint16(m[6:]) {
		off = name(off)
		n := int(binary.BigEndian.Uint16(m[off+8:]))
		do(binary.BigEndian.Uint16(m[off:]), m[off+10:off+10+n])
		off += 10 + n
	}
}
