package transfer_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A notifyObserver records the replies to NOTIFY messages.
type notifyObserver struct {
	mu      sync.Mutex
	replies []string
}

func (o *notifyObserver) ObserveDNS(q *dns.Query) {
	if q.Opcode() == wire.OpcodeNotify {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.replies = append(o.replies, fmt.Sprintf("%s %s, error %v", wire.Name(q.Name()), q.RCode, q.Err))
	}
}

func (o *notifyObserver) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.replies)
}

// NOTIFY for a zone that no catalog lists yet is not an error: not at the follower, if it comes
// from a primary of a catalog, and not at the primary, which repeats it.
func TestCatalogNewMemberNotify(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	at := freePort(t)
	observer := new(notifyObserver)
	p := newCatalogPrimary(t, at)
	p.catalog(t, "catalog.invalid", nil)
	plan, log := serveWith(t, at, nil, fmt.Sprintf("example invalid {\n observe\n secondary catalog.invalid {\n transfer from %s\n catalog\n}\n}", p.at),
		append(builtin.Directives(), config.Directive{Name: "observe", Usage: "observe", Setup: func(b *config.Block, _ []corefile.Directive) error {
			b.Offer(observer)
			return nil
		}}))
	t.Cleanup(func() { plan.Stop(context.Background()) })
	await := func(reply string) {
		t.Helper()
		eventually(t, func() string {
			if got := observer.all(); !slices.Contains(got, reply) {
				return fmt.Sprintf("no reply %q, got %q\n%s", reply, got, log)
			}
			return ""
		})
	}
	p.write(t, "m.example", "www A 192.0.2.1")
	await("m.example. NOTAUTH, error <nil>")
	p.catalog(t, "catalog.invalid", map[string]string{"one": "m.example"})
	await("m.example. NOERROR, error <nil>")
	answers(t, at, log, map[string]string{"www.m.example.": "192.0.2.1"})
	if text := p.log.String(); strings.Contains(text, "Failed to notify") {
		t.Errorf("the primary logged an error:\n%s", text)
	}

	dialer := &net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.2:0"))}
	r, _, err := (&mdns.Client{Timeout: patience, Dialer: dialer}).Exchange(new(mdns.Msg).SetNotify("x.example."), at.String())
	if err != nil || r.Rcode != mdns.RcodeNotAuth {
		t.Errorf("NOTIFY from another address: got %v, %v, want NOTAUTH", r, err)
	}
	await("x.example. NOTAUTH, error no directive answers this name here")
}
