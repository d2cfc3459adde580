package directive

import (
	"bytes"
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

type textOutput struct{ sent [][]byte }

func (o *textOutput) Send(payload []byte) { o.sent = append(o.sent, bytes.Clone(payload)) }

// With the option sample in each dnstap the kernel of a node may repeat replies, and the messages about them have the
// number of queries that they stand for.
func TestDnstapSample(t *testing.T) {
	extra, err := parseText("{rcode}")
	if err != nil {
		t.Fatal(err)
	}
	var plain, formatted textOutput
	d := &Dnstap{taps: []*tap{{sample: true, out: &plain}, {sample: true, extra: extra, out: &formatted}}}
	r, ok := d.observer().(dns.Repeatable)
	if !ok || r.Repetition().Samples() != dns.ManySamples {
		t.Fatal("got an observer that has to see each query, want one with samples")
	}
	q := dns.NewQuery(nil)
	q.Peer = netip.MustParseAddrPort(client)
	q.Local = q.Peer
	r.Repetition().Sample(q, 16)
	for i, c := range []struct {
		out  textOutput
		want string
	}{{plain, "\x1a\x09kernel 16"}, {formatted, "\x1a\x11NOERROR kernel 16"}} {
		if len(c.out.sent) != 2 {
			t.Fatalf("tap %d: got %d messages, want 2", i, len(c.out.sent))
		}
		for _, got := range c.out.sent {
			if !bytes.Contains(got, []byte(c.want)) {
				t.Errorf("tap %d: got %q, want %q in it", i, got, c.want)
			}
		}
	}

	d.taps[1].sample = false
	if _, ok := d.observer().(dns.Repeatable); ok {
		t.Error("one dnstap without sample: got an observer that need not see each query")
	}
}
