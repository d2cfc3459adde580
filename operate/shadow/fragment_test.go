package shadow

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// cut returns the fragments of an IP packet, each but the last with size bytes of its payload.
func cut(packet []byte, id uint32, size int) (all [][]byte) {
	header := packet[:20]
	if packet[0]>>4 == 6 {
		header = packet[:40]
	}
	payload := packet[len(header):]
	for at := 0; at < len(payload); at += size {
		data, more := payload[at:min(at+size, len(payload))], uint16(0)
		if at+size < len(payload) {
			more = 1
		}
		b := slices.Clone(header)
		if packet[0]>>4 == 4 {
			binary.BigEndian.PutUint16(b[2:], uint16(20+len(data)))
			binary.BigEndian.PutUint16(b[4:], uint16(id))
			binary.BigEndian.PutUint16(b[6:], more<<13|uint16(at/8))
		} else {
			binary.BigEndian.PutUint16(b[4:], uint16(8+len(data)))
			b = append(b, b[6], 0)
			b[6] = 44
			b = binary.BigEndian.AppendUint16(b, uint16(at)|more)
			b = binary.BigEndian.AppendUint32(b, id)
		}
		all = append(all, append(b, data...))
	}
	return all
}

// large returns a query that fills several fragments.
func large(id uint16) []byte { return append(request(id, "large.example"), make([]byte, 3000)...) }

// Packets are put together of their fragments, in any order and among each other. Fragments
// of which no packet can be made are counted.
func TestFragments(t *testing.T) {
	v4, v6 := udp(clientAddr, serverAddr, large(1)), udp(client6, server6, large(2))
	a, b, other := cut(v4, 7, 1480), cut(v6, 7, 1448), cut(udp(clientAddr, serverAddr, large(3)), 8, 1480)
	overlap, behind := cut(v4, 7, 1472), slices.Clone(a[1])
	binary.BigEndian.PutUint16(behind[6:], 1<<13|3200/8)
	const query, query6 = "udp 10.1.2.3:40000 10.96.0.10:53 query large.example.", "udp [fd00::3]:40000 [fd00::10]:53 query large.example."
	small := cut(udp(clientAddr, serverAddr, make([]byte, 8*(maxFragments+1))), 9, 8)
	for _, c := range []struct {
		name    string
		frames  [][]byte
		gap     time.Duration
		want    []string
		skipped int
	}{
		{"in order", a, 0, []string{query}, 0},
		{"IPv6", b, 0, []string{query6}, 0},
		{"the other way round", [][]byte{a[2], a[1], a[0]}, 0, []string{query}, 0},
		{"IPv6, the other way round", [][]byte{b[2], b[1], b[0]}, 0, []string{query6}, 0},
		{"two packets", [][]byte{a[0], other[2], other[0], a[1], other[1], a[2]}, 0, []string{query, query}, 0},
		{"the same ID of IPv4 and IPv6", [][]byte{a[0], b[0], a[1], b[1], a[2], b[2]}, 0, []string{query, query6}, 0},
		{"twice", [][]byte{a[0], a[0], a[1], a[1], a[2]}, 0, []string{query}, 0},
		{"in time", a, 10 * time.Second, []string{query}, 0},
		{"too late", a, 16 * time.Second, nil, 3},
		{"one is missing", [][]byte{a[0], a[2]}, 0, nil, 2},
		{"the last is missing", a[:2], 0, nil, 2},
		{"overlap", [][]byte{a[0], overlap[1], a[1]}, 0, nil, 3},
		{"overlap before", [][]byte{overlap[1], a[0], a[0]}, 0, nil, 3},
		{"other content", [][]byte{a[0], other[0], append(slices.Clone(a[0][:len(a[0])-1]), 99)}, 0, nil, 3},
		{"two ends", [][]byte{a[2], overlap[2], a[0]}, 0, nil, 3},
		{"behind the end", [][]byte{a[2], behind, a[0]}, 0, nil, 3},
		{"too many", small, 0, nil, len(small)},
		{"odd size", [][]byte{a[0][:len(a[0])-1]}, 0, nil, 1},
		{"a complete one", cut(udp(client6, server6, request(5, "large.example")), 7, 1448), 0, []string{query6}, 0},
	} {
		w := newCapture()
		for i, frame := range c.frames {
			if frame[0]>>4 == 4 { // of the odd sizes
				binary.BigEndian.PutUint16(frame[2:], uint16(len(frame)))
			}
			w.packet(captured.Add(time.Duration(i)*c.gap), frame, 0)
		}
		got, counts, err := messages(t, Pcap{Reader: &w.Buffer, Port: 53})
		for i, text := range got {
			got[i] = text[len("10:00:00.123456 "):]
		}
		skipped := 0
		for _, n := range counts.Skipped {
			skipped += n
		}
		if err != nil || !slices.Equal(got, c.want) || skipped != c.skipped || counts.Skipped[SkippedFragment]+counts.Skipped[SkippedCut] != skipped {
			t.Errorf("%s: got %q, %v and error %v, want %q and %d fragments skipped", c.name, got, counts.Skipped, err, c.want, c.skipped)
		}
	}
}

// Fragments of packets that are never complete do not take more than a bounded memory.
func TestFragmentsBounded(t *testing.T) {
	counts := Counts{Skipped: map[Skipped]int{}}
	f := newFragments(&counts)
	const packets = 4 * maxAssemblies
	for i := range packets {
		for part := range 3 {
			d := ipPacket{source: clientAddr.Addr(), destination: serverAddr.Addr(), id: uint32(i), offset: part * 16_000, more: true, payload: make([]byte, 16_000)}
			if f.add(captured, &d) {
				t.Fatal("got a complete packet")
			}
		}
		if f.bytes > maxAssemblyBytes || f.order.Len() > maxAssemblies || f.order.Len() != len(f.byKey) {
			t.Fatalf("got %d bytes of %d packets with %d keys", f.bytes, f.order.Len(), len(f.byKey))
		}
	}
	f.close()
	if f.bytes != 0 || len(f.byKey) != 0 || counts.Skipped[SkippedFragment] != 3*packets {
		t.Errorf("got %d bytes and %d packets at the end, and %v, want %d fragments skipped", f.bytes, len(f.byKey), counts.Skipped, 3*packets)
	}
}
