package simulation

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/server"
)

// A follower is a server that receives NOTIFY messages.
type follower struct {
	world *world
	at    netip.AddrPort

	mu       sync.Mutex
	messages []notification
}

// A notification is a NOTIFY message.
type notification struct {
	zone   string
	serial uint32
	at     time.Time
}

// dial connects the server to the follower, or as world does.
func (f *follower) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address != f.at.String() {
		return f.world.dial(ctx, 0, network, address)
	}
	client, end := connect(network, netip.MustParseAddrPort("10.0.0.1:5300"), f.at)
	go f.receive(end)
	return client, nil
}

func (f *follower) receive(c *conn) {
	buf := make([]byte, 512)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		var m mdns.Msg
		if err := m.Unpack(buf[:n]); err != nil || m.Opcode != mdns.OpcodeNotify || len(m.Answer) != 1 {
			f.world.fail("got message %v, %v, want NOTIFY with a SOA record", &m, err)
			return
		}
		f.mu.Lock()
		f.messages = append(f.messages, notification{m.Question[0].Name, m.Answer[0].(*mdns.SOA).Serial, time.Now()})
		f.mu.Unlock()
		reply, _ := new(mdns.Msg).SetReply(&m).Pack()
		_, _ = c.Write(reply)
	}
}

// take returns the messages for a zone since the last call, in order.
func (f *follower) take(zone string) (messages []notification) {
	f.mu.Lock()
	defer f.mu.Unlock()
	isOf := func(n notification) bool { return n.zone == zone }
	for _, n := range f.messages {
		if isOf(n) {
			messages = append(messages, n)
		}
	}
	f.messages = slices.DeleteFunc(f.messages, isOf)
	return messages
}

// A NOTIFY message is sent within 50 ms of each change of a cluster's zones, and a burst of
// changes has one every 20 ms at most.
func TestNotifyLatency(t *testing.T) {
	const within, interval = 50 * time.Millisecond, 20 * time.Millisecond
	c := newCertificate(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, t.TempDir(), c)
		w.api.prompt = true
		f := &follower{world: w, at: netip.MustParseAddrPort("10.77.0.1:53")}
		w.options.Dial = f.dial
		w.api.cluster.put(namespaces, object{key: key{"", "shop"}})
		w.api.cluster.put(services, object{key: key{"shop", "web"}, ports: []port{{"http", 80}}})
		s := w.newSource(0, sourceOptions{ttl: 5, pods: "disabled"})
		read := corefile.ReadText("Corefile", fmt.Appendf(nil, ".:53 {\n kubernetes %s %s {\n%s }\n transfer {\n to %s\n }\n}\n", clusterZone, reverseZone, s.corefile(w.dir), f.at))
		plan, err := server.NewPlan(read.Servers, w.options)
		if err == nil && read.Err == nil {
			err = plan.Start(t.Context(), nil)
		}
		if err != nil || read.Err != nil {
			t.Fatal(err, read.Err)
		}
		w.plan = plan
		defer w.end()
		time.Sleep(time.Minute)
		zones := []string{clusterZone, reverseZone}
		serials := map[string]uint32{}
		for _, zone := range zones {
			first := f.take(zone)
			if len(first) == 0 {
				t.Fatalf("no NOTIFY message for %s after the start\n%s", zone, w.report())
			}
			serials[zone] = first[len(first)-1].serial
		}
		number := uint32(0)
		change := func() time.Time {
			number++
			var address [4]byte
			binary.BigEndian.PutUint32(address[:], 10<<24+number)
			w.api.cluster.put(endpointSlices, object{key: key{"shop", "web-a"}, service: "web", ports: []port{{"http", 80}},
				endpoints: []endpoint{{address: netip.AddrFrom4(address).String(), ready: true}}})
			return time.Now()
		}
		for _, burst := range []struct {
			changes  int
			interval time.Duration
		}{{1, 0}, {1, 0}, {100, 0}, {1000, time.Millisecond}, {1000, 100 * time.Microsecond}, {20, 19 * time.Millisecond}, {20, 21 * time.Millisecond}, {20, time.Second}} {
			var changes []time.Time
			for range burst.changes {
				changes = append(changes, change())
				time.Sleep(burst.interval)
			}
			time.Sleep(time.Minute) // repeated messages, too
			for _, zone := range zones {
				messages := f.take(zone)
				for _, at := range changes {
					if !slices.ContainsFunc(messages, func(n notification) bool { return n.at.After(at) && n.at.Sub(at) <= within }) {
						t.Fatalf("%d changes every %v: no NOTIFY message for %s within %v of the change at %v, got %v", burst.changes, burst.interval, zone, within, at, messages)
					}
				}
				// After several changes the last message is repeated once.
				if last := len(messages) - 1; burst.changes > 1 && last > 0 && messages[last].serial == messages[last-1].serial {
					messages = messages[:last]
				}
				took := changes[len(changes)-1].Sub(changes[0])
				if most := min(1+int(took/interval), burst.changes); len(messages) > most {
					t.Errorf("%d changes every %v: got %d NOTIFY messages for %s, want at most %d", burst.changes, burst.interval, len(messages), zone, most)
				}
				for _, n := range messages {
					if int32(n.serial-serials[zone]) <= 0 {
						t.Errorf("NOTIFY message for %s with serial number %d after %d", zone, n.serial, serials[zone])
					}
					serials[zone] = n.serial
				}
			}
		}
		if len(w.failures) > 0 {
			t.Error(w.report())
		}
	})
}
