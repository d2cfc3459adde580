package secondary

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
)

// A scriptedPrimary answers the queries of a zoneCopy. It is replaced while the copy runs.
type scriptedPrimary struct {
	t  testing.TB
	mu sync.Mutex
	// replies has the messages that a type of query is answered with, as text of records:
	// see message. "-" is a message without records, "..." repeats the message before it
	// without end, and "" closes the connection.
	replies map[uint16][]string
	pace    time.Duration // between two bytes
	queries []string
	task    sync.WaitGroup
}

const (
	soaQuery = mdns.TypeSOA
	ixfr     = mdns.TypeIXFR
	axfr     = mdns.TypeAXFR
)

func (p *scriptedPrimary) set(pace time.Duration, replies map[uint16][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies, p.pace, p.queries = replies, pace, nil
}

func (p *scriptedPrimary) asked() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.queries, " ")
}

func (p *scriptedPrimary) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.task.Go(func() { p.serve(server) })
	return client, nil
}

func (p *scriptedPrimary) serve(conn net.Conn) {
	defer conn.Close()
	for {
		packet, err := receive(conn, nil, time.Now().Add(time.Hour))
		if err != nil {
			return
		}
		q := new(mdns.Msg)
		if err := q.Unpack(packet); err != nil {
			p.t.Errorf("got a malformed query: %v", err)
			return
		}
		qtype := q.Question[0].Qtype
		p.mu.Lock()
		replies, pace := p.replies[qtype], p.pace
		p.queries = append(p.queries, mdns.TypeToString[qtype])
		p.mu.Unlock()
		if qtype == soaQuery {
			pace = 0
		}
		var reply []byte
		for i := 0; i < len(replies); i++ {
			if replies[i] == "" {
				return
			} else if replies[i] == "..." {
				i--
			} else {
				reply = framed(message(p.t, qtype, strings.TrimPrefix(replies[i], "-")), q.Id)
			}
			if !write(conn, reply, pace) {
				return
			}
		}
		if len(replies) == 0 {
			return
		}
	}
}

// write writes a message, with a pause for each byte.
func write(conn net.Conn, reply []byte, pace time.Duration) bool {
	if pace == 0 {
		_, err := conn.Write(reply)
		return err == nil
	}
	for len(reply) > 0 {
		n := min(len(reply), max(1, int(20*time.Millisecond/pace)))
		time.Sleep(time.Duration(n) * pace)
		if _, err := conn.Write(reply[:n]); err != nil {
			return false
		}
		reply = reply[n:]
	}
	return true
}

// startCopy starts a copy of version 5 of a zone, in a bubble of package synctest.
func startCopy(t *testing.T, limit int64) (c *zoneCopy, p *scriptedPrimary, log *chaintest.Log) {
	return startCopyIn(t, limit, nil)
}

// startCopyIn is like startCopy, with the memory of a budget. prepare is called before the start.
func startCopyIn(
	t *testing.T, limit int64, b *memory.Budget, prepare ...func(*zoneCopy),
) (c *zoneCopy, p *scriptedPrimary, log *chaintest.Log) {
	c, p, log = startEmptyCopy(t, limit, b, firstReplies, prepare...)
	time.Sleep(time.Second)
	if got := serialOf(c); got != 5 {
		t.Fatalf("got serial number %d, want 5\n%s", got, log)
	}
	return c, p, log
}

// firstReplies are the replies of a primary that has version 5 of the zone.
var firstReplies = map[uint16][]string{axfr: {"@ 5 SOA 5\na 5 A 192.0.2.1\nb 5 A 192.0.2.2\nc 5 CNAME a\n@ 5 SOA 5"}}

// startEmptyCopy is like startCopyIn, with the primary's replies, and returns at once.
func startEmptyCopy(
	t *testing.T, limit int64, b *memory.Budget, replies map[uint16][]string, prepare ...func(*zoneCopy),
) (c *zoneCopy, p *scriptedPrimary, log *chaintest.Log) {
	p, log = &scriptedPrimary{t: t}, new(chaintest.Log)
	p.set(0, replies)
	from := &client{addr: netip.MustParseAddrPort("192.0.2.53:53"), dial: p.dial}
	from.limit.Store(limit)
	c = newCopy(options{origin: origin}, []*client{from}, log.Logger(), newRoom(b, memory.Zones), newServer(chaintest.QuietLog(), nil))
	for _, prepare := range prepare {
		prepare(c)
	}
	c.start()
	t.Cleanup(func() {
		c.Stop()
		p.task.Wait()
	})
	return c, p, log
}

// serialOf returns the serial number of the version that is served, 0 for none.
func serialOf(c *zoneCopy) uint32 {
	z := c.current.Load()
	if z == nil {
		return 0
	}
	serial, _ := z.Serial()
	return serial
}

const newer = "@ 5 SOA 6"

// A malicious primary does no harm: the copy stays, or is replaced by a valid version, within
// a minute, and the log has the reason.
// See NSD 4.15 in docs/reference/advisories.md.
func TestMaliciousPrimary(t *testing.T) {
	records := strings.Repeat("x 5 TXT "+strings.Repeat("x", 200)+"\n", 50)
	for name, c := range map[string]struct {
		replies map[uint16][]string
		pace    time.Duration
		serial  uint32 // afterwards
		queries string
		log     string
	}{
		"older SOA record": {map[uint16][]string{soaQuery: {"@ 5 SOA 4"}}, 0, 5, "SOA", "number 4 is older than 5"},
		"older zone instead of differences": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 4\na 5 A 192.0.2.9\n@ 5 SOA 4"}}, 0, 5, "SOA IXFR", "number 4 is older than 5",
		},
		"older zone in AXFR": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 4\na 5 A 192.0.2.9\n@ 5 SOA 4"}}, 0, 5, "SOA IXFR SOA AXFR", "number 4 is older than 5",
		},
		"the same version again": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 5\n@ 5 SOA 5"}}, 0, 5, "SOA IXFR SOA AXFR", "",
		},
		"differences of an absent record": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5\nx 5 A 192.0.2.9\n@ 5 SOA 6\n@ 5 SOA 6"}, axfr: {"@ 5 SOA 6\n@ 5 SOA 6"}}, 0, 6, "SOA IXFR SOA AXFR", "Rejected differences",
		},
		"differences that add a second CNAME record": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 6\nc 5 CNAME b\n@ 5 SOA 6"}, axfr: {"@ 5 SOA 6\n@ 5 SOA 6"}}, 0, 6, "SOA IXFR SOA AXFR", "Rejected differences",
		},
		"differences with a gap": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 9\n@ 5 SOA 5\n@ 5 SOA 6\n@ 5 SOA 7\n@ 5 SOA 9\n@ 5 SOA 9"}, axfr: {"@ 5 SOA 6\n@ 5 SOA 6"}}, 0, 6, "SOA IXFR SOA AXFR", "do not follow each other",
		},
		"differences that never reach the serial number": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 5", "@ 5 SOA 5\n@ 5 SOA 5", "..."}, axfr: {"@ 5 SOA 6\n@ 5 SOA 6"}}, 0, 6, "SOA IXFR SOA AXFR", "Rejected differences",
		},
		"refused differences": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"x 5 A 192.0.2.1"}, axfr: {"@ 5 SOA 6\n@ 5 SOA 6"}}, 0, 6, "SOA IXFR SOA AXFR", "first record is not the SOA",
		},
		"differences and zone that are wrong": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"x 5 A 192.0.2.1"}, axfr: {"@ 5 SOA 6\nc 5 CNAME a\nc 5 CNAME b\n@ 5 SOA 6"}}, 0, 5, "SOA IXFR SOA AXFR", "AXFR: c.example.org.: a second CNAME record",
		},
		"differences without end": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5", records, "..."}, axfr: {"@ 5 SOA 6", records, "..."}}, 0, 5, "SOA IXFR SOA AXFR", "more than 1000000 bytes of records",
		},
		"messages without records": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {newer, "-", "..."}}, 0, 5, "SOA IXFR SOA AXFR", "message without records",
		},
		"one byte a second": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer, records, "..."}}, time.Second, 5, "SOA IXFR", "the primary is too slow",
		},
		"short messages, one byte a millisecond": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {newer, "a 5 A 192.0.2.1", "..."}}, 3 * time.Millisecond, 5, "SOA IXFR SOA AXFR", "the primary is too slow",
		},
		"zone of another name": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"example.net. 5 SOA 6\nexample.net. 5 SOA 6"}}, 0, 5, "SOA IXFR SOA AXFR", "SOA record of another zone",
		},
		"zone of another class": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 6\na 5 CH TXT x\n@ 5 SOA 6"}}, 0, 5, "SOA IXFR SOA AXFR", "record of class CH",
		},
		"no closing SOA record": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 6\na 5 A 192.0.2.1", ""}}, 0, 5, "SOA IXFR SOA AXFR", "the connection ended before the zone",
		},
		"another closing SOA record": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 6\n@ 5 SOA 7"}}, 0, 5, "SOA IXFR SOA AXFR", "the zone changed during the transfer",
		},
		"records outside the zone": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {"@ 5 SOA 6\nexample.net. 5 A 192.0.2.1\n@ 5 SOA 6"}}, 0, 6, "SOA IXFR SOA AXFR", "Ignored records outside the zone",
		},
		"differences outside the zone": {
			map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 6\nexample.net. 5 A 192.0.2.9\n@ 5 SOA 6"}}, 0, 6, "SOA IXFR", "Ignored records outside the zone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				copied, p, log := startCopy(t, 1_000_000)
				p.set(c.pace, c.replies)
				before := allocated()
				copied.notify()
				time.Sleep(45 * time.Second)
				if got := serialOf(copied); got != c.serial || p.asked() != c.queries || !strings.Contains(log.String(), c.log) {
					t.Errorf("got serial number %d after queries for %s; want %d, %s, %q in the log\n%s", got, p.asked(), c.serial, c.queries, c.log, log)
				}
				if used := allocated() - before; used > 20<<20 {
					t.Errorf("got %d bytes of memory in use, want at most 20 MB", used)
				}
				p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 7"}, ixfr: {"@ 5 SOA 7\na 5 A 192.0.2.1\n@ 5 SOA 7"}})
				time.Sleep(2 * time.Minute)
				if got := serialOf(copied); got != 7 {
					t.Errorf("got serial number %d when the primary sends the zone, want 7\n%s", got, log)
				}
			})
		})
	}
}

// allocated returns the bytes of the heap in use.
func allocated() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A zone expires on time while a slow transfer runs.
func TestExpiresDuringTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		// About 1,100 bytes per second: as slow as permitted.
		p.set(900*time.Microsecond, map[uint16][]string{soaQuery: {newer}, ixfr: {newer}, axfr: {newer, strings.Repeat("x 5 TXT "+strings.Repeat("x", 200)+"\n", 50), "..."}})
		time.Sleep(9 * time.Minute)
		if got, asked := serialOf(c), p.asked(); got != 5 || asked != "SOA IXFR SOA AXFR" {
			t.Errorf("before the end: got serial number %d after queries for %s, want 5 after SOA IXFR SOA AXFR\n%s", got, asked, log)
		}
		time.Sleep(time.Minute + time.Second)
		if got, asked := serialOf(c), p.asked(); got != 0 || asked != "SOA IXFR SOA AXFR" || !strings.Contains(log.String(), "Zone expired") {
			t.Errorf("after EXPIRE: got serial number %d after queries for %s, want no zone\n%s", got, asked, log)
		}
		time.Sleep(transferTimeout)
		if asked := p.asked(); !strings.HasPrefix(asked, "SOA IXFR SOA AXFR SOA") {
			t.Errorf("half an hour later: got queries for %s, want another SOA query\n%s", asked, log)
		}
	})
}

// A zone that has expired is served again when a primary confirms it.
func TestServedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		p.set(0, nil)
		time.Sleep(10*time.Minute + time.Second)
		if got := serialOf(c); got != 0 {
			t.Errorf("after EXPIRE: got serial number %d, want no zone\n%s", got, log)
		}
		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 5"}})
		time.Sleep(time.Minute + time.Second)
		if got := serialOf(c); got != 5 {
			t.Errorf("after the primary has answered: got serial number %d, want 5\n%s", got, log)
		}
	})
}

// Transfers of differences are not logged by default, and those of whole zones are.
func TestLogOfTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, log := startCopy(t, 0)
		p.set(0, map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 6\nx 5 A 192.0.2.9\n@ 5 SOA 6"}})
		c.notify()
		time.Sleep(time.Second)
		if got, text := serialOf(c), log.String(); got != 6 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "kind=AXFR") {
			t.Errorf("got serial number %d and log %swant 6 and one line about AXFR", got, text)
		}
	})
}
