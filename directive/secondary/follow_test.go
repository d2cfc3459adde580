package secondary

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
)

// A followedPrimary has a version of the zone, and sends differences from any other one.
type followedPrimary struct {
	t        testing.TB
	serial   atomic.Uint32
	waits    atomic.Bool                        // it waits for the next version as long as a follower asks for
	reply    func(q *mdns.Msg, wait int) string // "" for an ordinary reply, an RCODE, "silence" or "close"; may be nil
	asked    [math.MaxUint8]atomic.Int64        // queries by type
	followed atomic.Int64                       // queries that ask to wait
	task     sync.WaitGroup
}

func (p *followedPrimary) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.task.Go(func() {
		defer server.Close()
		for {
			packet, err := receive(server, nil, time.Now().Add(24*time.Hour))
			if err != nil {
				return
			}
			q := new(mdns.Msg)
			if err := q.Unpack(packet); err != nil {
				p.t.Errorf("got a malformed query: %v", err)
				return
			}
			reply := p.answer(q)
			if reply == nil {
				return
			}
			if _, err := server.Write(framed(reply, q.Id)); err != nil {
				return
			}
		}
	})
	return client, nil
}

// answer returns the reply to a query, nil to close the connection.
func (p *followedPrimary) answer(q *mdns.Msg) []byte {
	qtype, wait := q.Question[0].Qtype, 0
	p.asked[qtype].Add(1)
	if o := q.IsEdns0(); o != nil && len(o.Option) == 1 {
		wait = int(binary.BigEndian.Uint16(o.Option[0].(*mdns.EDNS0_LOCAL).Data))
		p.followed.Add(1)
	}

	if p.reply != nil {
		switch text := p.reply(q, wait); text {
		case "":
		case "close":
			return nil
		case "silence":
			time.Sleep(time.Hour)
			return nil
		default:
			reply, err := new(mdns.Msg).SetRcode(q, mdns.StringToRcode[text]).Pack()
			if err != nil {
				p.t.Error(err)
			}
			return reply
		}
	}

	if qtype == axfr {
		n := p.serial.Load()
		return message(p.t, qtype, fmt.Sprintf("@ 5 SOA %d\nh%[1]d 5 A 192.0.2.1\n@ 5 SOA %[1]d", n))
	}
	if qtype == soaQuery {
		return message(p.t, qtype, fmt.Sprintf("@ 5 SOA %d", p.serial.Load()))
	}

	has := q.Ns[0].(*mdns.SOA).Serial
	for end := time.Now().Add(time.Duration(wait) * time.Second); p.waits.Load() && p.serial.Load() == has; {
		if !time.Now().Before(end) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	now := p.serial.Load()
	if has == now {
		return message(p.t, qtype, fmt.Sprintf("@ 5 SOA %d", now))
	}
	return message(p.t, qtype, fmt.Sprintf("@ 5 SOA %d\n@ 5 SOA %d\nh%[2]d 5 A 192.0.2.1\n@ 5 SOA %[1]d\nh%[1]d 5 A 192.0.2.1\n@ 5 SOA %[1]d", now, has))
}

// startFollowing starts a copy that follows primaries.
func startFollowing(t *testing.T, interval, expires time.Duration, primaries ...*followedPrimary) (*zoneCopy, *chaintest.Log) {
	t.Helper()
	log, clients := new(chaintest.Log), []*client(nil)
	for i, p := range primaries {
		p.t = t
		p.serial.Store(5)
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 53)
		clients = append(clients, &client{addr: at, dial: p.dial})
	}
	c := newCopy(options{origin: origin}, clients, log.Logger(), newRoom(nil, memory.Zones), newServer(chaintest.QuietLog(), nil))
	c.interval.Store(int64(interval))
	c.expires.Store(int64(expires))
	c.start()
	t.Cleanup(func() {
		c.Stop()
		for _, p := range primaries {
			p.task.Wait()
		}
	})
	time.Sleep(time.Second)
	if got := serialOf(c); got != 5 {
		t.Fatalf("got serial number %d, want 5\n%s", got, log)
	}
	return c, log
}

// follows checks that a copy has a version.
func follows(t *testing.T, when string, c *zoneCopy, log *chaintest.Log, serial uint32) {
	t.Helper()
	if got := serialOf(c); got != serial {
		t.Errorf("%s: got serial number %d, want %d\n%s", when, got, serial, log)
	}
}

// A copy has each version of a primary that waits within its interval, asks for it on one connection, and asks
// seldom while nothing changes, however many NOTIFY messages come.
func TestFollowWaitingPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &followedPrimary{}
		p.waits.Store(true)
		c, log := startFollowing(t, 200*time.Millisecond, 0, p)
		for serial := uint32(6); serial < 20; serial++ {
			p.serial.Store(serial)
			time.Sleep(301 * time.Millisecond) // and the interval of the primary
			follows(t, "a change", c, log, serial)
		}

		before := p.asked[ixfr].Load()
		for range 600 {
			c.notify()
			time.Sleep(100 * time.Millisecond)
		}
		if n := p.asked[ixfr].Load() - before; n > 5 {
			t.Errorf("got %d queries in a minute without changes, want one every %v", n, followWait)
		}
		if n := p.asked[axfr].Load(); n != 1 {
			t.Errorf("got %d transfers of the whole zone, want one\n%s", n, log)
		}
		if age := c.age(); age > (2*followWait + time.Second).Seconds() { // a reply confirms what was there at the query
			t.Errorf("the zone was confirmed %v seconds ago, want less than %v", age, 2*followWait)
		}
	})
}

// A primary that does not wait, that knows no EDNS, or that has no room for followers is asked again and again,
// less and less often, and NOTIFY messages are obeyed.
func TestFollowOtherPrimaries(t *testing.T) {
	for name, reply := range map[string]func(*mdns.Msg, int) string{
		"it does not wait": nil,
		"it knows no EDNS": func(q *mdns.Msg, _ int) string {
			if q.IsEdns0() != nil {
				return "FORMERR"
			}
			return ""
		},
		"it has no room": func(_ *mdns.Msg, wait int) string {
			if wait > 0 {
				return "SERVFAIL"
			}
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &followedPrimary{reply: reply}
				c, log := startFollowing(t, 200*time.Millisecond, 0, p)
				time.Sleep(10 * time.Minute)
				if n := p.asked[ixfr].Load(); n < 5 || n > 60 { // each one may be sent twice
					t.Errorf("got %d queries in ten minutes, want some", n)
				}
				p.serial.Store(6)
				time.Sleep(3 * time.Minute)
				follows(t, "a change without a message", c, log, 6)

				time.Sleep(10 * time.Minute)
				p.serial.Store(7)
				c.notify()
				time.Sleep(3 * time.Second)
				follows(t, "a change with a message", c, log, 7)
				if n := p.asked[axfr].Load(); n != 1 {
					t.Errorf("got %d transfers of the whole zone, want one\n%s", n, log)
				}
			})
		})
	}
}

// A primary that hangs, that closes connections, or that refuses the zone is replaced by another one.
func TestFollowFailedPrimary(t *testing.T) {
	for _, how := range []string{"silence", "close", "SERVFAIL", "REFUSED"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed atomic.Pointer[followedPrimary]
				var primaries []*followedPrimary
				for range 2 {
					p := &followedPrimary{}
					p.waits.Store(true)
					p.reply = func(*mdns.Msg, int) string {
						if failed.Load() == p {
							return how
						}
						return ""
					}
					primaries = append(primaries, p)
				}
				c, log := startFollowing(t, 200*time.Millisecond, 5*time.Minute, primaries...)

				for i := range uint32(4) {
					failed.Store(primaries[i%2])
					primaries[(i+1)%2].serial.Store(6 + i)
					time.Sleep(followWait + stallTimeout + dialTimeout)
					follows(t, "after one has failed", c, log, 6+i)
				}
				for range 100 {
					time.Sleep(time.Minute)
					follows(t, "later", c, log, 9)
				}
				for i, p := range primaries {
					if n := p.asked[axfr].Load(); n > 1 {
						t.Errorf("primary %d: got %d transfers of the whole zone, want one in all\n%s", i, n, log)
					}
				}
			})
		})
	}
}

// Copies spread over primaries again, and follow one of them at each time.
func TestFollowChoosesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := &followedPrimary{}, &followedPrimary{}
		one.waits.Store(true)
		two.waits.Store(true)
		c, log := startFollowing(t, time.Second, 0, one, two)
		time.Sleep(12 * time.Hour) // some 140 choices
		for i, p := range []*followedPrimary{one, two} {
			if p.followed.Load() == 0 {
				t.Errorf("primary %d was not followed in twelve hours", i)
			}
		}
		follows(t, "twelve hours later", c, log, 5)
		if n := one.followed.Load() + two.followed.Load(); n > int64(13*time.Hour/followWait) {
			t.Errorf("got %d queries in twelve hours, want one every %v", n, followWait)
		}
	})
}

// The option expire ends a version without a primary, also without follow, and never one with a primary.
func TestExpireOption(t *testing.T) {
	for _, tt := range []struct{ interval, expires time.Duration }{
		{0, time.Second}, {0, 20 * time.Second}, {time.Second, time.Second}, {time.Second, 20 * time.Second}, {time.Minute, time.Minute},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				away := atomic.Bool{}
				p := &followedPrimary{reply: func(*mdns.Msg, int) string {
					if away.Load() {
						return "close"
					}
					return ""
				}}
				p.waits.Store(true)
				c, log := startFollowing(t, tt.interval, tt.expires, p)
				for range 5 * 60 * 10 {
					time.Sleep(100 * time.Millisecond)
					if serialOf(c) != 5 {
						t.Fatalf("the zone has expired beside its primary\n%s", log)
					}
				}

				away.Store(true)
				time.Sleep(tt.expires + time.Second)
				if serialOf(c) != 0 {
					t.Errorf("the zone is served %v after its primary has gone\n%s", tt.expires+time.Second, log)
				}
				away.Store(false)
				p.serial.Store(6)
				time.Sleep(2 * lastRetry)
				follows(t, "the primary is back", c, log, 6)
			})
		})
	}
}

// Another process gets the differences, so that it can send them.
func TestHandoverJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &followedPrimary{}
		p.waits.Store(true)
		old, log := startFollowing(t, 200*time.Millisecond, 0, p)
		old.sends.Store(true)
		for serial := uint32(6); serial < 9; serial++ {
			p.serial.Store(serial)
			time.Sleep(time.Second)
			follows(t, "a change", old, log, serial)
		}
		want, ok := since(t, old, 6)
		if !ok {
			t.Fatalf("the old process has no differences\n%s", log)
		}

		state, budget := saveCopies(t, old), memory.New(80<<20, memory.FromGroup)
		to := newServer(chaintest.QuietLog(), nil)
		to.receive(bytes.NewReader(state), budget)
		next := newCopy(old.options, nil, chaintest.QuietLog(), newRoom(budget, memory.Zones), newServer(chaintest.QuietLog(), nil))
		next.server = to
		s := schedule{copy: next}
		s.load()
		if got, ok := since(t, next, 6); !ok || got != want {
			t.Errorf("got the differences %q, %v, want %q", got, ok, want)
		}
		if has := budget.Part(memory.Zones).Used; has < int64(s.journal.Bytes()) || s.journal.Bytes() == 0 {
			t.Errorf("%d bytes are reserved, want those of the journal of %d bytes, too", has, s.journal.Bytes())
		}
		next.stopExpiry()
		next.room.stop()
		to.drop()
		if n := budget.Part(memory.Zones).Used + budget.Part(memory.Transfers).Used; n != 0 {
			t.Errorf("%d bytes are reserved at the end, want none", n)
		}
	})
}
