package dynupdate_test

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/watch"
)

// Updates that wait are not read: with the names of their records written out they would take more than
// a megabyte each.
func TestUpdatesWaitingMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	w := newWorld(t, "database DIR/db")
	w.stop()
	unlock, err := watch.Lock(t.Context(), filepath.Join(w.dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	w.start() // the database cannot be opened, so all updates wait

	name := strings.Repeat(strings.Repeat("x", 60)+".", 3) + "example.org."
	m := new(mdns.Msg).SetUpdate("example.org.")
	m.Compress = true
	for range 1000 {
		rr, err := mdns.NewRR(name + " 60 SOA " + name + " " + name + " 1 2 3 4 5")
		if err != nil {
			t.Fatal(err)
		}
		m.Insert([]mdns.RR{rr})
	}
	packet, _, err := mdns.TsigGenerate(m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Unix()), secret, "", false)
	if err != nil {
		t.Fatal(err)
	}
	packet = append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)

	before := heap()
	const clients = 16 // the server reads no more large messages of one address at the same time
	var replies sync.WaitGroup
	for range clients {
		conn, err := net.Dial("tcp", w.at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
		replies.Go(func() {
			var head [6]byte
			if _, err := io.ReadFull(conn, head[:]); err != nil || head[5]&0xF != mdns.RcodeServerFailure {
				t.Errorf("got the reply %v, %v, want SERVFAIL", head, err)
			}
		})
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		replies.Wait()
	}()
	var most uint64
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case <-time.After(100 * time.Millisecond):
			most = max(most, heap())
		}
	}
	// The packets have 40 KB each, and a connection of either side some.
	if limit := before + clients*300<<10; most > limit {
		t.Errorf("got %d bytes in use while %d updates wait, %d before; want at most %d", most, clients, before, limit)
	}
}

// heap returns the number of bytes in use.
func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
