package zone

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/seamark/seamark/wire"
)

// targetsZone returns a zone whose records name hosts with addresses.
func targetsZone(t *testing.T) *Zone {
	t.Helper()
	b := NewBuilder("\x01z\x00")
	add := func(owner string, typ wire.Type, rdata string) {
		if err := b.Add(owner+"\x01z\x00", typ, 5, rdata); err != nil {
			t.Fatalf("Add(%q, %s): error %v", owner, typ, err)
		}
	}
	for i := range 10 {
		host := fmt.Sprintf("\x02h%d\x01m", i)
		if i%3 == 0 {
			host = strings.ToUpper(host)
		}
		add(host, wire.TypeA, string([]byte{192, 0, 2, byte(i)}))
		add(host, wire.TypeAAAA, strings.Repeat("\x20", 15)+string(rune(i)))
		target := strings.ToLower(host) + "\x01z\x00"
		add("\x01m", wire.TypeMX, "\x00\x01"+target)
		add("\x01*\x01w", wire.TypeMX, "\x00\x01"+target)
		add("\x01s", wire.TypeSRV, "\x00\x01\x00\x01\x00\x01"+target)
		add("\x03sub", wire.TypeNS, "\x02ns\x03sub\x01z\x00")
		add("\x01p", wire.TypeHTTPS, "\x00\x01"+target+"\x00\x03\x00\x02\x00\x50")
	}
	add("\x02ns\x03sub", wire.TypeA, "\xc0\x00\x02\x01")
	add("\x03sub", wire.TypeNS, "\x02h2\x01m\x01z\x00")
	add("\x01m", wire.TypeA, "\xc0\x00\x02\x02")
	add("\x01m", wire.TypeMX, "\x00\x01\x01m\x01z\x00")
	add("\x01c", wire.TypeCNAME, "\x01s\x01z\x00")
	add("\x05alias", wire.TypeCNAME, "\x01s\x01z\x00")
	return b.Zone()
}

// answerOf returns the answer of a zone. With a limit it is that of a server.
func answerOf(z *Zone, name string, typ wire.Type, limit int) string {
	packet := wire.AppendRequest(nil, 0, 0, []byte(name), typ)
	var r wire.Request
	r.Parse(packet)
	var a wire.Answer
	a.Reset(nil, r.Question(packet))
	var scope Scope
	if limit > 0 {
		scope.Server = &countingServer{a: &a, limit: limit}
	}
	z.Lookup(&r, &a, scope)
	return fmt.Sprintf("%v %q", a.Count, a.Buf)
}

// An additional section that is kept is that of a zone without any.
func TestKeptAdditional(t *testing.T) {
	z := targetsZone(t)
	type query struct {
		name  string
		t     wire.Type
		limit int
	}
	var queries []query
	for _, limit := range []int{0, 520, 700, 4000} {
		for _, q := range []query{
			{"\x01s", wire.TypeSRV, limit}, {"\x01S", wire.TypeSRV, limit}, {"\x05alias", wire.TypeSRV, limit}, {"\x01c", wire.TypeSRV, limit},
			{"\x01m", wire.TypeMX, limit}, {"\x01x\x01w", wire.TypeMX, limit}, {"\x01y\x01W", wire.TypeMX, limit}, {"\x01p", wire.TypeHTTPS, limit},
			{"\x03www\x03sub", wire.TypeA, limit}, {"\x02ns\x03sub", wire.TypeA, limit}, {"\x01x\x02nS\x03sub", wire.TypeA, limit}, {"\x03sub", wire.TypeNS, limit},
		} {
			q.name += "\x01z\x00"
			queries = append(queries, q)
		}
	}
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			for i := range 3 * len(queries) {
				q := queries[(i*7+client)%len(queries)]
				got, want := answerOf(z, q.name, q.t, q.limit), answerOf(z.Edit().Zone(), q.name, q.t, q.limit)
				if got != want {
					t.Errorf("%q %s, limit %d:\ngot  %s\nwant %s", q.name, q.t, q.limit, got, want)
				}
			}
		})
	}
	clients.Wait()
	var s set
	s.get(z.names.get([]byte("\x01s")), wire.TypeSRV)
	if z.additionals.get(additionalKey{s.n, wire.TypeSRV, false}) == nil {
		t.Error("SRV records of s: got no kept additional section, want one")
	}
	if z.Edit().Zone().additionals.slots.Load() != nil {
		t.Error("a new version: got kept additional sections, want none")
	}
}

// The additional sections that a zone keeps have a bound.
func TestKeptAdditionalBound(t *testing.T) {
	b := NewBuilder("\x01z\x00")
	const names = 500
	for i := range names {
		host, other := fmt.Sprintf("\x04h%03d\x01z\x00", i), fmt.Sprintf("\x04h%03d\x01z\x00", names-1-i)
		if err := b.Add(host, wire.TypeA, 5, "\x7f\x00\x00\x01"); err != nil {
			t.Fatal(err)
		}
		if err := b.Add(host, wire.TypeMX, 5, "\x00\x00"+other); err != nil {
			t.Fatal(err)
		}
	}
	z := b.Zone()
	for i := range names {
		answerOf(z, fmt.Sprintf("\x04h%03d\x01z\x00", i), wire.TypeMX, 0)
	}
	kept, size := 0, 0
	for i := range *z.additionals.slots.Load() {
		if a := (*z.additionals.slots.Load())[i].Load(); a != nil {
			kept, size = kept+1, size+len(a.records)+4*len(a.owners)+additionalSize
		}
	}
	if kept == 0 || kept > names/2 || size > minAdditionals || z.additionals.room.Load() < 0 {
		t.Errorf("got %d additional sections of %d bytes kept, %d bytes left; want some of %d bytes at most", kept, size, z.additionals.room.Load(), minAdditionals)
	}
}
