package zone_test

import (
	"fmt"
	"testing"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// BenchmarkLookupTargets measures answers with addresses in the additional section, of names
// in turn.
func BenchmarkLookupTargets(b *testing.B) {
	const origin = "\x07example\x03org\x00"
	for _, names := range []int{1, 2000} {
		builder := zone.NewBuilder(origin)
		add := func(owner string, t wire.Type, rdata string) {
			if err := builder.Add(owner, t, 5, rdata); err != nil {
				b.Fatal(err)
			}
		}
		for i := range names {
			at := fmt.Sprintf("\x05n%04d", i) + origin
			for j := range 15 {
				host := fmt.Sprintf("\x06host%02d", j) + at
				add(host, wire.TypeA, string([]byte{10, byte(i >> 8), byte(i), byte(j)}))
				if j < 3 {
					add("\x03sub"+at, wire.TypeNS, host)
				}
				if j < 5 {
					add(at, wire.TypeMX, "\x00\x0a"+host)
				}
				add("\x05_http\x04_tcp"+at, wire.TypeSRV, "\x00\x00\x00\x64\x1f\x90"+host)
			}
		}
		z := builder.Zone()
		for _, c := range []struct {
			name, prefix string
			t            wire.Type
		}{
			{"delegation", "\x03www\x03sub", wire.TypeA},
			{"MX", "", wire.TypeMX},
			{"SRV", "\x05_http\x04_tcp", wire.TypeSRV},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, names), func(b *testing.B) {
				var packets [][]byte
				for i := range names {
					name := c.prefix + fmt.Sprintf("\x05n%04d", i*7%names) + origin
					packets = append(packets, wire.AppendRequest(nil, 0, 0, []byte(name), c.t))
				}
				var r wire.Request
				var a wire.Answer
				buf := make([]byte, 0, 8192)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					packet := packets[i%len(packets)]
					r.Parse(packet)
					a.Reset(buf, r.Question(packet))
					z.Lookup(&r, &a, zone.Scope{Server: noLimit{}})
				}
			})
		}
	}
}
