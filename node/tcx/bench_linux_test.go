package tcx

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
)

// The time of the programs for a packet, without system calls. Addresses are replaced by
// themselves, so that the next run finds the packet as the first did.
func BenchmarkPrograms(b *testing.B) {
	bench := newBench(b)
	p, err := load([]Pair{{alias4, alias4}, {alias6, alias6}}, 53, Times{})
	if err != nil {
		b.Fatal(err)
	}
	defer p.close()
	if err := p.slots.Put(uint32(loInterface), uint32(0)); err != nil {
		b.Fatal(err)
	}
	p.state(0).reset(bench.state.mac.Load())
	p.open(true)
	for _, c := range []struct {
		name    string
		program *ebpf.Program
		frame   frame
		a, b    netip.Addr
	}{
		{"query/IPv4", p.query, frame{}, pod4, alias4},
		{"query/IPv6", p.query, frame{}, pod6, alias6},
		{"query/TCP", p.query, frame{tcp: true, flags: 2}, pod4, alias4},
		{"query/other", p.query, frame{tcp: true, flags: 16}, pod4, netip.MustParseAddr("192.0.2.1")},
		{"reply/IPv4", p.reply, frame{}, alias4, pod4},
		{"reply/IPv6", p.reply, frame{}, alias6, pod6},
		{"reply/other", p.reply, frame{tcp: true, flags: 16}, netip.MustParseAddr("192.0.2.1"), pod4},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := c.frame
			f.to, f.payload = ownMAC, query
			f.source, f.target = netip.AddrPortFrom(c.a, 40000), netip.AddrPortFrom(c.b, 53)
			if f.flags == 16 {
				f.target = netip.AddrPortFrom(c.b, 443)
			}
			p.page.Stamp()
			p.state(0).families[family4].pending.Store(0)
			_, t, err := c.program.Benchmark(f.bytes(), min(b.N, 2_000_000), nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(t.Nanoseconds()), "ns/packet")
		})
	}
}

func native(mac [8]byte) uint64 { return binary.NativeEndian.Uint64(mac[:]) }
