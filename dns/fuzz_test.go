package dns

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// FuzzServe passes packets to Port.Serve. Every query has a reply, except those for the zone
// drop, and a reply has none. Each reply has the ID, opcode and question of its packet and a
// size that the client accepts.
func FuzzServe(f *testing.F) {
	for _, name := range []string{"a.few.", "A.mAnY.", "a.wait.", "a.drop.", "a.panic.", "few.", "a.elsewhere.", "."} {
		for _, m := range []*mdns.Msg{
			newQuery(name, mdns.TypeA), newQuery(name, mdns.TypeANY).SetEdns0(4096, true), newQuery(name, mdns.TypeA).SetEdns0(700, false),
		} {
			packet, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(packet, false)
			f.Add(packet, true)
			for _, change := range []struct{ at, to int }{
				{2, 0x80}, {2, 5 << 3}, {3, 0x70}, {5, 0}, {5, 2}, {7, 1}, {11, 2}, {len(packet) - 1, 1}, {len(packet) - 5, 1},
			} {
				changed := bytes.Clone(packet)
				changed[change.at] = byte(change.to)
				f.Add(changed, false)
			}
			f.Add(packet[:len(packet)-3], true)
		}
	}
	f.Add([]byte{}, false)

	mux := NewMux(NewParkingLot(8), func(*Query, any) {})
	for zone, c := range map[wire.Name]*Chain{
		"\x03few\x00": chain(serve(next), addresses(3)), "\x04many\x00": chain(addresses(5000)),
		"\x04wait\x00":  chain(resolve(func(ctx context.Context, q *Query) error { q.Next(ctx); return nil }), addresses(200)),
		"\x04drop\x00":  chain(serve(func(*Query) Verdict { return Drop })),
		"\x05panic\x00": chain(serve(func(*Query) Verdict { panic("boom") })),
	} {
		if err := mux.Route(zone, c); err != nil {
			f.Fatal(err)
		}
	}
	var port Port
	port.Swap(mux)
	f.Fuzz(func(t *testing.T, packet []byte, tcp bool) {
		request := new(mdns.Msg)
		if request.Unpack(packet) != nil {
			request = nil
		}
		proto, limit := UDP, wire.MinUDPSize
		if tcp {
			proto, limit = TCP, wire.MaxMessage
		} else if request == nil || request.IsEdns0() != nil {
			limit = wire.MaxUDPReply
		}
		parked := make(replyRecorder, 1)
		q := NewQuery(parked)
		q.Reset(bytes.Clone(packet), proto, time.Now())
		outcome := serveOrRecover(&port, q)
		var reply []byte
		switch outcome {
		case Answered:
			reply = q.Reply()
		case Parked:
			reply = <-parked
		default:
			if isQuestion := request != nil && !request.Response && len(request.Question) == 1; isQuestion && !strings.HasSuffix(strings.ToLower(request.Question[0].Name), "drop.") {
				question, _ := (&mdns.Msg{Question: request.Question}).Pack()
				if bytes.HasPrefix(packet[wire.HeaderLen:], question[wire.HeaderLen:]) {
					t.Fatalf("packet %x: got no reply to %v, want one", packet, request)
				}
			}
			return
		}
		m := new(mdns.Msg)
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("packet %x: unpacking the reply %x: %v", packet, reply, err)
		}
		switch {
		case packet[2]&0x80 != 0:
			t.Fatalf("packet %x: got reply %v to a reply", packet, m)
		case !bytes.Equal(reply[:2], packet[:2]) || !m.Response || reply[2]>>3&15 != packet[2]>>3&15 || m.RecursionDesired != (packet[2]&1 != 0):
			t.Fatalf("packet %x: got header %+v, want its ID, opcode and RD", packet, m.MsgHdr)
		case len(reply) > limit:
			t.Fatalf("packet %x: got a reply of %d bytes, want at most %d", packet, len(reply), limit)
		case len(m.Question) == 0 && (m.Rcode == mdns.RcodeSuccess || len(m.Answer) > 0):
			t.Fatalf("packet %x: got %v, want the question", packet, m)
		case len(m.Question) > 0:
			question := wire.HeaderLen
			for reply[question] != 0 {
				question += 1 + int(reply[question])
			}
			if question += 5; !bytes.HasPrefix(packet[wire.HeaderLen:], reply[wire.HeaderLen:question]) {
				t.Fatalf("packet %x: got the question %x, want that of the packet", packet, reply[wire.HeaderLen:question])
			}
		}
	})
}

// A replyRecorder receives the reply of one parked query.
type replyRecorder chan []byte

func (r replyRecorder) Send(q *Query) { r <- bytes.Clone(q.Reply()) }

// serveOrRecover serves a query as a reader does.
func serveOrRecover(p *Port, q *Query) (outcome Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			outcome = p.Recover(q, nil, cause)
		}
	}()
	return p.Serve(q, nil)
}
