package cmd_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/memorygroup"
)

// A followedRelay is a relay of 64 MB between a source and a node, each a process.
type followedRelay struct {
	*testing.T
	group     *memorygroup.Group
	node      *followedServer
	nodePages string
	at, pages string
	zone      string // the source's file
	serial    uint32
}

// changedRecords is the number of records that each version changes: some differences are more than the kernel's
// buffers hold.
const changedRecords = 1500

func newFollowedRelay(t *testing.T, binary string) *followedRelay {
	t.Helper()
	r := &followedRelay{T: t, group: memorygroup.New(t, 64<<20), zone: filepath.Join(t.TempDir(), "zone")}
	r.next()
	source := serveFollowed(t, " file "+r.zone+" example.org\n transfer {\n  to *\n }\n")

	port := freeport.Reserve(t)
	r.at, r.pages = "127.0.0.1:"+port, "127.0.0.1:"+freeport.Reserve(t)
	startInGroupAt(t, r.group, binary, t.TempDir(), fmt.Sprintf(`.:%s {
    bind 127.0.0.1
    prometheus %s
    secondary example.org {
        transfer from %s
        follow 20ms
    }
    transfer {
        to *
    }
}
`, port, r.pages, source.at))

	r.nodePages = "127.0.0.1:" + freeport.Reserve(t)
	r.node = serveFollowed(t, " prometheus "+r.nodePages+
		"\n secondary example.org {\n  transfer from "+r.at+"\n  follow 20ms\n }\n")
	r.arrives("start")
	return r
}

// next writes the next version of the zone.
func (r *followedRelay) next() {
	r.Helper()
	r.serial++
	var text strings.Builder
	fmt.Fprintf(&text, "$ORIGIN example.org.\n@ 60 IN SOA ns admin %d 3600 600 86400 60\n@ 60 IN NS ns\n", r.serial)
	for i := range changedRecords {
		fmt.Fprintf(&text, "host%d 60 IN TXT %q\n", i, fmt.Sprint(r.serial, strings.Repeat("x", 100)))
	}
	write(r.T, r.zone+".new", text.String())
	if err := os.Rename(r.zone+".new", r.zone); err != nil {
		r.Fatal(err)
	}
}

// arrives waits until the node has the version.
func (r *followedRelay) arrives(when string) {
	r.Helper()
	chaintest.Eventually(r.T, fmt.Sprintf("%s: version %d at the node", when, r.serial), func() bool {
		reply, err := ask("udp", r.node.at, "example.org.", dns.TypeSOA)
		return err == nil && len(reply.Answer) == 1 && reply.Answer[0].(*dns.SOA).Serial == r.serial
	})
}

// followQuery returns an IXFR query with its length that waits a minute for the version after one.
func followQuery(serial uint32) []byte {
	m := new(dns.Msg).SetIxfr("example.org.", serial, "ns.", "host.")
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65074, Data: []byte{0, 60}}}
	packet, _ := m.Pack()
	return framed(packet)
}

// dial opens a connection with a small buffer. It returns nil if the relay has no room for so many of a client.
func (r *followedRelay) dial(client string) net.Conn {
	conn, err := dialFrom(client, r.at)
	if err != nil {
		return nil
	}
	r.Cleanup(func() { conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	return conn
}

// slowFollowers are ways to follow a zone without reading what one asks for.
var slowFollowers = map[string]func(r *followedRelay, conn net.Conn){
	"one query, nothing is read": func(r *followedRelay, conn net.Conn) { _, _ = conn.Write(followQuery(r.serial)) },
	"one query, a byte a second": func(r *followedRelay, conn net.Conn) {
		_, _ = conn.Write(followQuery(r.serial))
		go readByteASecond(r.Context(), conn)
	},
	"many queries, nothing is read": func(r *followedRelay, conn net.Conn) {
		for range 60 {
			_, _ = conn.Write(followQuery(r.serial))
		}
	},
	"old versions, nothing is read": func(r *followedRelay, conn net.Conn) {
		for range 60 {
			_, _ = conn.Write(followQuery(1))
		}
	},
}

// Followers at one address that do not read what they have asked for, or hardly, hold a share of a relay at most:
// others get each version as differences, and the queries that wait and the unsent replies are in the budget.
func TestFollowSlowReaders(t *testing.T) {
	long(t)
	binary := buildServer(t)
	for name, begin := range slowFollowers {
		t.Run(name, func(t *testing.T) {
			r := newFollowedRelay(t, binary)
			for range 3 {
				r.next()
				r.arrives("before the slow followers")
			}

			for range 90 {
				if conn := r.dial("127.0.0.9"); conn != nil {
					begin(r, conn)
				}
			}
			for range 10 {
				r.next()
				r.arrives("beside slow followers")
			}

			blocked := seriesValue(t, r.pages, "seamark_waiting_queries") - seriesValue(t, r.pages, "seamark_transfer_followers")
			closed := seriesValue(t, r.pages, `seamark_transport_connections_closed_total{why="slow_reader"}`)
			if t.Logf("%.0f replies are blocked, %.0f connections were closed", blocked, closed); blocked+closed == 0 {
				t.Error("no reply is blocked, and none was ended: this is no attack")
			}
			for _, part := range []string{"followers", "replies", "transfers"} {
				used := seriesValue(t, r.pages, `seamark_memory_used_bytes{part="`+part+`"}`)
				most := seriesValue(t, r.pages, `seamark_memory_max_bytes{part="`+part+`"}`)
				t.Logf("part %s: %.0f bytes of %.0f", part, used, most)
				if used > most {
					t.Errorf("part %s: got %.0f bytes, want at most %.0f", part, used, most)
				}
			}
			if text := page(t, "http://"+r.nodePages+"/metrics"); !strings.Contains(text,
				`seamark_secondary_transfers_total{zone="example.org.",kind="AXFR"} 1`+"\n") {
				t.Errorf("got metrics\n%s\nwant one transfer of the whole zone", text)
			}
			if n := r.group.Kills(); n > 0 {
				t.Errorf("the kernel has killed %d processes", n)
			}
			t.Log(r.group)
		})
	}
}
