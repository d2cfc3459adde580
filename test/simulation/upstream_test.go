package simulation

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

const (
	externalNames = 8
	externalZone  = "ext.example."
)

// externalTarget returns the target of the CNAME record that every third name has.
func externalTarget(i int) string {
	if i%3 == 1 {
		return "target." + externalName(i)
	}
	return ""
}

func externalName(i int) string { return fmt.Sprintf("h%d.%s", i, externalZone) }

// A behaviour is the way in which an upstream answers.
type behaviour string

const (
	answers    behaviour = ""
	duplicates behaviour = "duplicates" // each reply arrives twice
	truncates  behaviour = "truncates"  // replies over UDP have TC
	forged     behaviour = "forged"     // forged replies arrive before the true one
	// The following replies are not perfect, but each name can be resolved.
	dropsEDNS  behaviour = "drops EDNS"   // no reply to queries with EDNS
	refusesOPT behaviour = "refuses EDNS" // an error for queries with EDNS, one for each name
	cut        behaviour = "cut"          // replies over UDP end in a record, without TC
	miscounts  behaviour = "miscounts"    // replies over UDP have fewer records than they say
	shouts     behaviour = "shouts"       // the question comes back in upper case
	talks      behaviour = "talks"        // replies have options that nobody asked for, in two OPT records
	// The following make queries fail.
	ignores  behaviour = "ignores"  // no reply
	late     behaviour = "late"     // a reply after one to six seconds
	mangles  behaviour = "mangles"  // malformed replies
	closes   behaviour = "closes"   // no socket is open
	impostor behaviour = "impostor" // connections with TLS reach a server with another certificate
	servfail behaviour = "servfail" // SERVFAIL
	bare     behaviour = "bare"     // SERVFAIL or REFUSED without the question
	lame     behaviour = "lame"     // a referral
)

// resolves lists the behaviours in which every name can be resolved.
var resolves = []behaviour{answers, duplicates, truncates, forged, dropsEDNS, refusesOPT, cut, miscounts, shouts, talks}

// misbehaves lists the others.
var misbehaves = []behaviour{ignores, late, mangles, closes, impostor, servfail, bare, lame}

func (b behaviour) fails() bool { return !slices.Contains(resolves, b) }

// poison is the address in forged replies.
var poison = netip.MustParseAddr("203.0.113.66")

// A zone has the history of the external names. The servers of a set share it.
type zone struct {
	set     int
	mu      sync.Mutex
	history [externalNames][]epoch
}

// An epoch is the answer for a name since a time.
type epoch struct {
	since  time.Time
	number int // in the address
	rcode  int // NOERROR or NXDOMAIN
}

func newZone(set int) *zone {
	z := &zone{set: set}
	for i := range z.history {
		z.history[i] = []epoch{{since: time.Now()}}
	}
	return z
}

// change begins an epoch of a name.
func (z *zone) change(name, rcode int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.history[name] = append(z.history[name], epoch{time.Now(), len(z.history[name]), rcode})
}

func (z *zone) now(name int) epoch {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.history[name][len(z.history[name])-1]
}

// during returns the epochs of a name that were valid at some time between two times.
func (z *zone) during(name int, from, to time.Time) (epochs []epoch) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for i, e := range z.history[name] {
		last := i+1 == len(z.history[name])
		if !e.since.After(to) && (last || !z.history[name][i+1].since.Before(from)) {
			epochs = append(epochs, e)
		}
	}
	return epochs
}

// externalTTL returns the TTL of a name's records.
func externalTTL(name int) uint32 { return uint32(5 + 3*name) }

func (z *zone) address(name, number int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, byte(18 + z.set), byte(name), byte(number)})
}

// An upstream is a DNS server.
type upstream struct {
	world   *world
	zone    *zone
	address netip.Addr

	mu       sync.Mutex
	history  []stage
	queries  map[string]uint64
	sessions map[*session]bool
	edns     bool // a query with EDNS has had another reply than an error because of it
}

// A session is a UDP socket, or a connection, with TLS unless secure is nil.
type session struct {
	*conn
	secure *tls.Conn
	forged bool // the other end is an impostor
}

// A stage is the behaviour of an upstream since a time.
type stage struct {
	since time.Time
	behaviour
}

func newUpstream(w *world, z *zone, i int) *upstream {
	return &upstream{world: w, zone: z, address: netip.AddrFrom4([4]byte{10, 53, byte(z.set), byte(i + 1)}),
		history: []stage{{time.Now(), answers}}, queries: map[string]uint64{}, sessions: map[*session]bool{}}
}

func (u *upstream) behave(b behaviour) {
	u.world.cause("upstream %s %s", u.address, b)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.history = append(u.history, stage{time.Now(), b})
	if b == closes {
		for c := range u.sessions {
			c.reset()
		}
		clear(u.sessions)
	}
}

func (u *upstream) now() behaviour {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.history[len(u.history)-1].behaviour
}

// had reports whether the upstream behaved so at some time between two times.
func (u *upstream) had(from, to time.Time, is func(behaviour) bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, s := range u.history {
		last := i+1 == len(u.history)
		if is(s.behaviour) && !s.since.After(to) && (last || !u.history[i+1].since.Before(from)) {
			return true
		}
	}
	return false
}

// dial opens a UDP socket or a TCP connection, on which the upstream expects TLS if the
// port is that of DNS over TLS.
func (u *upstream) dial(ctx context.Context, network string, port uint16) (net.Conn, error) {
	if network == "tcp" {
		switch u.now() {
		case closes:
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		case ignores:
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	client, server := connect(network, netip.MustParseAddrPort("10.0.0.1:40000"), netip.AddrPortFrom(u.address, port))
	s := &session{conn: server}
	if port == 853 {
		s.forged = u.now() == impostor
		s.secure = tls.Server(server, u.world.tls.config(s.forged))
	}
	u.mu.Lock()
	u.sessions[s] = true
	u.mu.Unlock()
	go u.serve(s)
	return client, nil
}

// serve answers the queries of a socket or connection until the client closes it.
func (u *upstream) serve(c *session) {
	defer func() {
		u.mu.Lock()
		delete(u.sessions, c)
		u.mu.Unlock()
	}()
	var in io.Reader = c.conn
	if c.secure != nil {
		in = c.secure
	}
	buf := make([]byte, 4096)
	for {
		n, err := 0, error(nil)
		if c.datagrams {
			n, err = in.Read(buf)
		} else if _, err = io.ReadFull(in, buf[:2]); err == nil {
			n, err = io.ReadFull(in, buf[:binary.BigEndian.Uint16(buf)])
		}
		if err != nil {
			return
		}
		u.answer(c, buf[:n])
	}
}

// answer sends the reply to a query, and what else the behaviour requires.
func (u *upstream) answer(c *session, packet []byte) {
	query, reply := new(dns.Msg), new(dns.Msg)
	if err := query.Unpack(packet); err != nil {
		u.world.fail("upstream %s received a malformed query: %v", u.address, err)
		return
	}
	q := query.Question[0]
	name := strings.ToLower(q.Name)
	u.mu.Lock()
	u.queries[name]++
	n := u.queries[name]
	u.mu.Unlock()
	r := u.world.rand("query "+name, uint64(u.zone.set), uint64(u.address.As4()[3]), n)
	delay := time.Millisecond + time.Duration(r.IntN(30_000))*time.Microsecond
	b := u.now()
	u.world.trace("upstream %s query %s: %s", u.address, q.Name, b)
	reply.SetReply(query)
	u.fill(reply, name)
	if c.forged {
		reply.Answer = poisoned(q.Name)
	}
	u.mu.Lock()
	edns := u.edns
	dropped := b == dropsEDNS && c.secure == nil // a firewall does not see EDNS in a connection with TLS
	u.edns = edns || query.IsEdns0() != nil && b != refusesOPT && !dropped && b != ignores && b != closes
	u.mu.Unlock()
	switch b {
	case ignores:
		return
	case closes:
		c.reset()
		return
	case servfail:
		reply.Rcode, reply.Answer, reply.Ns = dns.RcodeServerFailure, nil, nil
	case bare:
		reply.Rcode = []int{dns.RcodeServerFailure, dns.RcodeRefused}[r.IntN(2)]
		reply.Question, reply.Answer, reply.Ns = nil, nil, nil
	case lame:
		reply.Answer = nil
		reply.Ns = []dns.RR{must(dns.NewRR("example. 3600 IN NS ns.example."))}
	case dropsEDNS:
		if query.IsEdns0() != nil && dropped {
			return
		}
	case refusesOPT:
		if query.IsEdns0() != nil {
			codes := []int{dns.RcodeFormatError, dns.RcodeNotImplemented, dns.RcodeBadVers, dns.RcodeServerFailure, dns.RcodeRefused}
			if edns { // SERVFAIL and REFUSED have another reason then
				codes = codes[:3]
			}
			reply.Rcode = codes[r.IntN(len(codes))]
			reply.Answer, reply.Ns = nil, nil
			if reply.Rcode == dns.RcodeBadVers {
				reply.SetEdns0(1232, false)
			}
		}
	case cut, miscounts:
		if c.datagrams {
			wire := must(reply.Pack())
			if b == cut {
				wire = wire[:len(wire)-1-r.IntN(3)]
			} else {
				binary.BigEndian.PutUint16(wire[6:], uint16(len(reply.Answer)+1+r.IntN(3)))
			}
			c.send(wire, delay, nil)
			return
		}
	case shouts:
		reply.Question[0].Name = strings.ToUpper(q.Name)
	case talks:
		if query.IsEdns0() != nil {
			for range 2 {
				reply.Extra = append(reply.Extra, &dns.OPT{
					Hdr:    dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT, Class: 1232},
					Option: []dns.EDNS0{&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, SourceScope: 24, Address: poison.AsSlice()}},
				})
			}
		}
	case late:
		delay += time.Second + time.Duration(r.IntN(5_000_000))*time.Microsecond
	case truncates:
		if c.datagrams {
			reply.Truncated, reply.Answer = true, nil
		}
	case duplicates:
		u.send(c, reply, delay)
	case mangles:
		wire, _ := reply.Pack()
		c.send(wire[:r.IntN(len(wire))], delay, nil)
		return
	case forged:
		for range 1 + r.IntN(3) {
			if !c.datagrams {
				break // nobody else can send over a connection, so forward takes it for the upstream's own fault
			}
			spoofed := reply.Copy()
			spoofed.Rcode, spoofed.Ns = dns.RcodeSuccess, nil
			spoofed.Answer = poisoned(q.Name)
			if r.IntN(2) == 0 {
				spoofed.Question[0].Name = "x" + q.Name
			} else {
				spoofed.Id ^= uint16(1 + r.IntN(1<<16-1))
			}
			u.send(c, spoofed, delay/2)
		}
	}
	u.send(c, reply, delay)
}

func poisoned(name string) []dns.RR {
	return []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 600}, A: poison.AsSlice()}}
}

func (u *upstream) send(c *session, reply *dns.Msg, delay time.Duration) {
	wire, err := reply.Pack()
	if err != nil {
		u.world.fail("upstream: %v", err)
	}
	if !c.datagrams {
		wire = append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)
	}
	if c.secure != nil {
		time.AfterFunc(max(delay, atOnce), func() { _, _ = c.secure.Write(wire) })
		return
	}
	c.send(wire, delay, nil)
}

// fill adds the records of the zone.
func (u *upstream) fill(reply *dns.Msg, name string) {
	q := reply.Question[0]
	i, ok := external(name)
	soa := &dns.SOA{Hdr: dns.RR_Header{Name: externalZone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 5}, Ns: externalZone, Mbox: externalZone, Minttl: 5}
	if !ok {
		reply.Rcode, reply.Ns = dns.RcodeNameError, []dns.RR{soa}
		if name == "." {
			reply.Rcode = dns.RcodeSuccess
		}
		return
	}
	e := u.zone.now(i)
	switch {
	case e.rcode != dns.RcodeSuccess || q.Qtype != dns.TypeA:
		reply.Rcode, reply.Ns = e.rcode, []dns.RR{soa}
	default:
		a := &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: externalTTL(i)}, A: u.zone.address(i, e.number).AsSlice()}
		reply.Answer = []dns.RR{a}
		if target := externalTarget(i); target != "" {
			a.Hdr.Name = target
			// Resolvers take such a chain in order alone.
			reply.Answer = append(reply.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: externalTTL(i)}, Target: target})
		}
	}
}

// external returns the number of an external name.
func external(name string) (i int, ok bool) {
	label, ok := strings.CutSuffix(name, "."+externalZone)
	i, err := strconv.Atoi(strings.TrimPrefix(label, "h"))
	return i, ok && err == nil && i < externalNames
}
