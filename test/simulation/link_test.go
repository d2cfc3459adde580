package simulation

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	mdns "github.com/miekg/dns"
)

// A linkFault is a fault of the network between the secondary and its primary, or of the primary.
type linkFault string

const (
	intact linkFault = ""
	// Of the network.
	lossy  linkFault = "lossy"  // packets are lost, late and repeated
	parted linkFault = "parted" // no packet arrives, and connections are not established
	resets linkFault = "resets" // connections are reset within a message
	halves linkFault = "halves" // connections become half-open within a message
	// Of the primary.
	mutes    linkFault = "mutes"    // no reply
	refuses  linkFault = "refuses"  // an error in place of a reply
	stops    linkFault = "stops"    // connections end in the middle of a transfer
	lies     linkFault = "lies"     // another serial number in replies to SOA queries
	differs  linkFault = "differs"  // another serial number at the end of a transfer
	misfits  linkFault = "misfits"  // differences that delete what the zone does not have
	inflates linkFault = "inflates" // transfers with more than the secondary accepts
	corrupts linkFault = "corrupts" // malformed messages
)

var linkFaults = []linkFault{lossy, lossy, parted, resets, halves, mutes, refuses, stops, lies, differs, misfits, inflates, corrupts}

// A link is the network between the secondary and its primary.
type link struct {
	secondary *secondary

	mu    sync.Mutex
	fault linkFault
	count uint64 // random decisions
}

func (l *link) misbehave(f linkFault) {
	l.secondary.world.cause("link of the secondary %s", f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
}

// now returns the present fault, and random numbers for a decision.
func (l *link) now() (linkFault, *rand.Rand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	return l.fault, l.secondary.world.rand("link", l.count)
}

// delays returns the times until a packet arrives: none if it is lost, two if it is repeated.
func (l *link) delays() []time.Duration {
	f, r := l.now()
	late := func() time.Duration { return time.Millisecond + time.Duration(r.IntN(3_000_000))*time.Microsecond }
	switch {
	case f == parted, f == lossy && r.IntN(3) == 0:
		return nil
	case f == lossy:
		return []time.Duration{late(), late()}[:1+r.IntN(2)]
	}
	return []time.Duration{time.Millisecond}
}

// dial connects the secondary to its primary.
func (l *link) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s := l.secondary
	if f, _ := l.now(); f == parted {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	toPrimary, err := s.world.server.connect(s.address, 53)
	if err != nil {
		return nil, err
	}
	client, end := connect("tcp", toPrimary.LocalAddr().(*net.TCPAddr).AddrPort(), toPrimary.RemoteAddr().(*net.TCPAddr).AddrPort())
	x := &relay{link: l, client: end, primary: toPrimary}
	go x.up()
	go x.down()
	return client, nil
}

// A relay passes the messages of one connection, as the fault says.
type relay struct {
	link            *link
	client, primary *conn

	mu    sync.Mutex
	query *mdns.Msg // the last one
}

// up passes queries to the primary.
func (x *relay) up() {
	defer x.primary.Close()
	for {
		q, err := readMessage(x.client)
		if err != nil {
			return
		}
		x.mu.Lock()
		x.query = q
		x.mu.Unlock()
		if f, _ := x.link.now(); f == mutes {
			continue
		}
		if writeMessage(x.primary, q) != nil {
			return
		}
	}
}

// down passes replies to the secondary.
func (x *relay) down() {
	defer x.client.end()
	for {
		m, err := readMessage(x.primary)
		if err != nil {
			return
		}
		x.mu.Lock()
		q := x.query.Question[0].Qtype
		x.mu.Unlock()
		f, r := x.link.now()
		x.link.secondary.world.trace("secondary gets %s with %d records: %s", mdns.TypeToString[q], len(m.Answer), f)
		f.spoil(m, q, r)
		if !x.send(m, f, r) {
			return
		}
	}
}

// send sends a message, or a part of it, and reports whether the connection continues.
func (x *relay) send(m *mdns.Msg, f linkFault, r *rand.Rand) bool {
	if f == inflates {
		for range maxCopy / (32 << 10) { // more than the secondary accepts
			x.write(filler(m))
		}
	}
	wire, err := m.Pack()
	if err != nil {
		x.link.secondary.world.fail("relay: %v", err)
		return false
	}
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)
	delay := time.Millisecond
	some := framed[:r.IntN(len(framed))]
	switch f {
	case lossy: // a lost segment is sent again
		delay += time.Duration(r.IntN(4)*r.IntN(700)) * time.Millisecond
	case parted, halves:
		x.client.send(some, delay, nil)
		x.client.die()
		return false
	case resets:
		x.client.send(some, delay, nil)
		time.Sleep(2 * delay)
		x.client.reset()
		return false
	case stops:
		x.client.send(some, delay, nil)
		return false
	case corrupts:
		clear(framed[2+r.IntN(len(framed)-2):])
	}
	x.client.send(framed, delay, nil)
	return true
}

func (x *relay) write(m *mdns.Msg) {
	if err := writeMessage(x.client, m); err != nil {
		x.link.secondary.world.fail("relay: %v", err)
	}
}

// spoil changes a reply.
func (f linkFault) spoil(m *mdns.Msg, qtype uint16, r *rand.Rand) {
	last := len(m.Answer) - 1
	switch {
	case f == refuses:
		m.Rcode, m.Answer = []int{mdns.RcodeRefused, mdns.RcodeServerFailure, mdns.RcodeNotImplemented, mdns.RcodeNotAuth}[r.IntN(4)], nil
	case last < 0:
	case f == lies && qtype == mdns.TypeSOA:
		addSerial(m, 0, r.IntN(2000)-1000)
	case f == differs && qtype != mdns.TypeSOA && last > 0:
		addSerial(m, last, 1+r.IntN(1000))
	case f == misfits && qtype == mdns.TypeIXFR && last > 1 && m.Answer[1].Header().Rrtype == mdns.TypeSOA: // not the whole zone
		m.Answer = slices.Insert(m.Answer, 2, mdns.RR(&mdns.TXT{Hdr: mdns.RR_Header{Name: m.Question[0].Name, Rrtype: mdns.TypeTXT, Class: mdns.ClassINET}, Txt: []string{"absent"}}))
	}
}

// addSerial changes the serial number in a record if that is a SOA record.
func addSerial(m *mdns.Msg, i, n int) {
	if soa, ok := m.Answer[i].(*mdns.SOA); ok {
		soa.Serial += uint32(n)
	}
}

// filler returns the first message of a transfer that does not end.
func filler(m *mdns.Msg) *mdns.Msg {
	f := m.Copy()
	f.Answer = f.Answer[:min(1, len(f.Answer))]
	for i := range 130 {
		text := fmt.Sprintf("%d %0240d", i, 0)
		f.Answer = append(f.Answer, &mdns.TXT{Hdr: mdns.RR_Header{Name: m.Question[0].Name, Rrtype: mdns.TypeTXT, Class: mdns.ClassINET}, Txt: []string{text}})
	}
	return f
}
