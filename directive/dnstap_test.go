package directive

import (
	"net/netip"
	"testing"

	"github.com/seamark/seamark/dns"
)

type discardOutput struct{ n int }

func (d *discardOutput) Send([]byte) { d.n++ }

// Messages about queries are encoded without allocations.
func TestDnstapAllocations(t *testing.T) {
	extra, err := parseText("{name} {rcode}")
	if err != nil {
		t.Fatal(err)
	}
	out := &discardOutput{}
	d := &Dnstap{taps: []*tap{{full: true, extra: extra, out: out}}}
	q := dns.NewQuery(nil)
	q.Peer = netip.MustParseAddrPort(client)
	q.Local = q.Peer
	if n := testing.AllocsPerRun(100, func() { d.ObserveDNS(q) }); n != 0 {
		t.Errorf("ObserveDNS: got %v allocations, want none", n)
	}
	if out.n == 0 {
		t.Error("ObserveDNS: got no messages")
	}
}
