package secondary

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A primary serves zones that have TXT records of a size.
type primary struct {
	mu    sync.Mutex
	zones map[string]primaryZone
	addr  netip.AddrPort
}

type primaryZone struct {
	serial  uint32
	records int
}

func newPrimary(t testing.TB) *primary {
	p := &primary{zones: map[string]primaryZone{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = netip.MustParseAddrPort(l.Addr().String())
	s := &mdns.Server{Listener: l, Handler: p}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.ActivateAndServe()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return p
}

func (p *primary) set(name string, serial uint32, records int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.zones[name] = primaryZone{serial, records}
}

// ServeDNS sends a whole zone, or its SOA record.
func (p *primary) ServeDNS(w mdns.ResponseWriter, q *mdns.Msg) {
	name := q.Question[0].Name
	p.mu.Lock()
	z := p.zones[name]
	p.mu.Unlock()
	soa := &mdns.SOA{Hdr: mdns.RR_Header{Name: name, Rrtype: mdns.TypeSOA, Class: mdns.ClassINET}, Ns: ".", Mbox: ".", Serial: z.serial, Refresh: 3600, Retry: 3600, Expire: 86400}
	m := new(mdns.Msg).SetReply(q)
	m.Answer = []mdns.RR{soa}
	if q.Question[0].Qtype != mdns.TypeSOA {
		for i := range z.records {
			m.Answer = append(m.Answer, &mdns.TXT{Hdr: mdns.RR_Header{Name: name, Rrtype: mdns.TypeTXT, Class: mdns.ClassINET}, Txt: []string{fmt.Sprintf("%0200d", i)}})
		}
		m.Answer = append(m.Answer, soa)
	}
	_ = w.WriteMsg(m)
}

// A member for whose records the budget has no room is refused until others have fewer. The
// other members are served, and so is the old version of a member that grows too large.
func TestCatalogBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	const record = 13 + 10 + 201 // the bytes of one record of a primary, in a zone x.test.
	p := newPrimary(t)
	log := new(chaintest.Log)
	r := newServer(chaintest.QuietLog(), nil)
	r.budget.limit = 100 * record
	m, err := r.claim(config.NewStart(t.Context(), nil), nil, &config.Block{Log: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	c := &catalog{options: options{origin: origin}, clients: []*client{{addr: p.addr, dial: new(net.Dialer).DialContext}}}
	m.scope = &scope{zones: []wire.Name{"\x00"}, all: []*catalog{c}}
	list := func(zones ...string) {
		t.Helper()
		text := "@ 5 SOA 1\nversion TXT 2\n"
		for _, z := range zones {
			text += fmt.Sprintf("%s.zones PTR %s.test.\n", z, z)
		}
		z, err := receiveAll(nil, message(t, mdns.TypeAXFR, text+"@ 5 SOA 1"))
		if err == nil {
			err = m.update(c, z)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after a minute not %s\n%s", what, log)
			}
		}
	}
	at := func(name string) *zoneCopy {
		return m.current.Load().members[wire.Name("\x01"+name+"\x04test\x00")].copy
	}
	version := func(name string) *zone.Zone { return at(name).current.Load() }
	has := func(name string, serial uint32) bool {
		z := version(name)
		if z == nil {
			return false
		}
		got, _ := z.Serial()
		return got == serial
	}
	refused := func(name string) func() bool {
		return func() bool {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "Failed to transfer zone\" zone="+name+".test.") && strings.Contains(line, errBudget.Error()) {
					return true
				}
			}
			return false
		}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		p.set(name+".test.", 1, 40)
	}
	list("a", "b")
	await("a and b are served", func() bool { return has("a", 1) && has("b", 1) })
	list("a", "b", "c")
	await("c is refused", refused("c"))
	if !has("a", 1) || !has("b", 1) || version("c") != nil {
		t.Fatal("got another set of zones, want a and b")
	}
	p.set("a.test.", 2, 70)
	at("a").notify()
	await("the version of a is refused", refused("a"))
	if !has("a", 1) {
		t.Error("the old version of a is not served")
	}
	list("b", "c") // c has waited for room
	await("c is served", func() bool { return has("b", 1) && has("c", 1) })
	p.set("b.test.", 2, 10)
	at("b").notify()
	list("b", "c", "d")
	await("d is served", func() bool { return has("b", 2) && has("c", 1) && has("d", 1) })
	used := 0
	for _, name := range []string{"b", "c", "d"} {
		used += version(name).Bytes()
	}
	await("the budget has the size of the zones", func() bool {
		r.budget.mu.Lock()
		defer r.budget.mu.Unlock()
		return r.budget.used == used
	})
	list()
	if r.budget.used != 0 || len(r.budget.waiting) != 0 {
		t.Errorf("without members: %d bytes are in use, %d zones wait", r.budget.used, len(r.budget.waiting))
	}
}
