package shadow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

var (
	clientAddr = netip.MustParseAddrPort("10.1.2.3:40000")
	serverAddr = netip.MustParseAddrPort("10.96.0.10:53")
	client6    = netip.MustParseAddrPort("[fd00::3]:40000")
	server6    = netip.MustParseAddrPort("[fd00::10]:53")
	captured   = time.Date(2026, 11, 24, 10, 0, 0, 123456789, time.UTC)
)

// datagram returns an IP packet with a UDP or TCP payload.
func datagram(from, to netip.AddrPort, protocol byte, transport []byte) []byte {
	b := make([]byte, 0, 60+len(transport))
	if from.Addr().Is4() {
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(20+len(transport)))
		b = append(b, 0, 0, 0, 0, 64, protocol, 0, 0)
	} else {
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(8+len(transport)))
		b = append(b, 60, 64) // destination options follow
	}
	b = append(append(b, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	if from.Addr().Is6() {
		b = append(b, protocol, 0, 1, 4, 0, 0, 0, 0)
	}
	return append(b, transport...)
}

func udp(from, to netip.AddrPort, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return datagram(from, to, protocolUDP, append(append(b, 0, 0), payload...))
}

const flagFIN, flagSYN, flagRST = 1, 2, 4

func tcp(from, to netip.AddrPort, sequence uint32, flags byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint32(b, sequence)
	b = append(b, 0, 0, 0, 0, 6<<4, flags, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1) // four bytes of options
	return datagram(from, to, protocolTCP, append(b, payload...))
}

// frames are the link layers in front of an IP packet.
func frames() map[uint32]func(ip []byte) []byte {
	ether := func(ip []byte) []byte {
		if ip[0]>>4 == 6 {
			return []byte{0x86, 0xdd}
		}
		return []byte{8, 0}
	}
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	return map[uint32]func([]byte) []byte{
		linkNull:     func(ip []byte) []byte { return join([]byte{2, 0, 0, 0}, ip) },
		linkLoop:     func(ip []byte) []byte { return join([]byte{0, 0, 0, 2}, ip) },
		linkEthernet: func(ip []byte) []byte { return join(make([]byte, 12), ether(ip), ip, make([]byte, 6)) }, // padded
		1<<16 | linkEthernet: func(ip []byte) []byte {
			return join(make([]byte, 12), []byte{0x88, 0xa8, 0, 1, 0x81, 0, 0, 2}, ether(ip), ip)
		},
		linkRaw:      func(ip []byte) []byte { return ip },
		rawOnBSD:     func(ip []byte) []byte { return ip },
		rawOnOpenBSD: func(ip []byte) []byte { return ip },
		linkIPv4:     func(ip []byte) []byte { return ip },
		linkIPv6:     func(ip []byte) []byte { return ip },
		linkCooked:   func(ip []byte) []byte { return join(make([]byte, 14), ether(ip), ip) },
		linkCooked2:  func(ip []byte) []byte { return join(ether(ip), make([]byte, 18), ip) },
	}
}

// A captureWriter writes captures for tests.
type captureWriter struct {
	bytes.Buffer
	order binary.AppendByteOrder
	ng    bool
	nanos bool
	link  uint32
}

func (w *captureWriter) begin() *captureWriter {
	put := func(v uint32) { w.Write(w.order.AppendUint32(nil, v)) }
	if !w.ng {
		magic := uint32(magicMicroseconds)
		if w.nanos {
			magic = magicNanoseconds
		}
		put(magic)
		w.Write(w.order.AppendUint16(w.order.AppendUint16(nil, 2), 4))
		put(0)
		put(0)
		put(maxPacket)
		put(w.link & 0xffff)
		return w
	}
	section := w.order.AppendUint32(nil, magicByteOrder)
	section = w.order.AppendUint64(w.order.AppendUint16(w.order.AppendUint16(section, 1), 0), 1<<64-1)
	w.block(magicSection, section)
	w.block(5, make([]byte, 12)) // a block of another type
	description := w.order.AppendUint16(nil, uint16(w.link))
	description = w.order.AppendUint32(append(description, 0, 0), maxPacket)
	if w.nanos {
		description = append(w.order.AppendUint16(w.order.AppendUint16(description, 9), 1), 9, 0, 0, 0)
	}
	w.block(blockInterface, append(description, 0, 0, 0, 0))
	return w
}

func (w *captureWriter) block(kind uint32, body []byte) {
	size := uint32(12 + (len(body)+3)&^3)
	b := w.order.AppendUint32(w.order.AppendUint32(nil, kind), size)
	b = append(b, body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	w.Write(w.order.AppendUint32(b, size))
}

// packet adds a packet of which lost bytes were not captured.
func (w *captureWriter) packet(at time.Time, frame []byte, lost int) {
	units := int64(time.Microsecond)
	if w.nanos {
		units = 1
	}
	size := uint32(len(frame))
	if w.ng {
		stamp := uint64(at.UnixNano() / units)
		b := w.order.AppendUint32(w.order.AppendUint32(w.order.AppendUint32(nil, 0), uint32(stamp>>32)), uint32(stamp))
		b = w.order.AppendUint32(w.order.AppendUint32(b, size), size+uint32(lost))
		w.block(blockEnhancedPacket, append(b, frame...))
		return
	}
	b := w.order.AppendUint32(nil, uint32(at.Unix()))
	b = w.order.AppendUint32(b, uint32(int64(at.Nanosecond())/units))
	b = w.order.AppendUint32(w.order.AppendUint32(b, size), size+uint32(lost))
	w.Write(append(b, frame...))
}

// newCapture returns a writer of a pcap file with raw IP packets.
func newCapture() *captureWriter {
	return (&captureWriter{order: binary.LittleEndian, link: linkRaw}).begin()
}

// request returns a query.
func request(id uint16, name string) []byte {
	n, err := wire.ParseName(name)
	if err != nil {
		panic(err)
	}
	return wire.AppendRequest(nil, id, wire.FlagRD, []byte(n), wire.TypeA)
}

// reply returns a response without records to a query.
func reply(request []byte, rcode byte) []byte {
	b := bytes.Clone(request)
	b[2] |= 0x84 // QR, AA
	b[3] = rcode
	return b
}

// messages returns the messages of a capture as text.
func messages(t *testing.T, p Pcap) (got []string, counts Counts, err error) {
	t.Helper()
	counts.Skipped = map[Skipped]int{}
	err = p.Messages(t.Context(), &counts, func(m *Message) bool {
		q, _ := question(m.Data)
		what := "query"
		if m.Response {
			what = "response"
		}
		got = append(got, fmt.Sprintf("%s %v %v %v %s %s", m.Time.UTC().Format("15:04:05.999999999"), m.Proto, m.Client, m.Server, what, wire.Name(q[:len(q)-4])))
		return true
	})
	return got, counts, err
}

func TestCaptureFormats(t *testing.T) {
	query := request(7, "web.shop.svc.cluster.local")
	for link, frame := range frames() {
		for _, format := range []captureWriter{
			{order: binary.LittleEndian}, {order: binary.BigEndian}, {order: binary.BigEndian, nanos: true},
			{order: binary.LittleEndian, ng: true}, {order: binary.BigEndian, ng: true, nanos: true},
		} {
			name := fmt.Sprintf("link %d, %v, pcapng %t, nanoseconds %t", link, format.order, format.ng, format.nanos)
			w := &captureWriter{order: format.order, ng: format.ng, nanos: format.nanos, link: link}
			w.begin()
			w.packet(captured, frame(udp(clientAddr, serverAddr, query)), 0)
			w.packet(captured, frame(udp(server6, client6, reply(query, 0))), 0)
			stamp := "10:00:00.123456"
			if format.nanos {
				stamp += "789"
			}
			want := []string{
				stamp + " udp 10.1.2.3:40000 10.96.0.10:53 query web.shop.svc.cluster.local.",
				stamp + " udp [fd00::3]:40000 [fd00::10]:53 response web.shop.svc.cluster.local.",
			}
			got, counts, err := messages(t, Pcap{Reader: &w.Buffer, Port: 53})
			if err != nil || !slices.Equal(got, want) || len(counts.Skipped) > 0 {
				t.Errorf("%s: got %q, %v and error %v, want %q", name, got, counts.Skipped, err, want)
			}
		}
	}
}

// Two sections of a pcapng file may have different byte orders and interfaces.
func TestCaptureSections(t *testing.T) {
	query := udp(clientAddr, serverAddr, request(7, "a.example"))
	w := (&captureWriter{order: binary.LittleEndian, ng: true, link: linkRaw}).begin()
	w.packet(captured, query, 0)
	w.order, w.link = binary.BigEndian, linkNull
	w.begin()
	w.packet(captured, append(make([]byte, 4), query...), 0)
	simple := w.order.AppendUint32(nil, uint32(len(query)+4))
	w.block(blockSimplePacket, append(append(simple, 0, 0, 0, 0), query...))
	got, _, err := messages(t, Pcap{Reader: &w.Buffer, Port: 53})
	if err != nil || len(got) != 3 {
		t.Errorf("got %q and error %v, want three messages", got, err)
	}
}

func TestCaptureSkipped(t *testing.T) {
	query := request(7, "a.example")
	whole := udp(clientAddr, serverAddr, query)
	fragment := bytes.Clone(whole)
	fragment[6] = 0x20 // more fragments
	icmp := datagram(clientAddr, serverAddr, 1, make([]byte, 8))
	fragment6 := udp(client6, server6, query)
	fragment6[6] = 44
	arp := append(make([]byte, 12), 8, 6, 0, 0)
	other := udp(clientAddr, netip.MustParseAddrPort("10.96.0.11:53"), query)
	for _, c := range []struct {
		name  string
		link  uint32
		frame []byte
		lost  int
		want  Skipped
	}{
		{"cut in the payload", linkRaw, whole[:len(whole)-3], 3, SkippedCut},
		{"cut in the IP header", linkRaw, whole[:15], 30, SkippedCut},
		{"cut in the UDP header", linkRaw, datagram(clientAddr, serverAddr, protocolUDP, []byte{1, 2}), 0, SkippedCut},
		{"cut in the TCP header", linkRaw, datagram(clientAddr, serverAddr, protocolTCP, make([]byte, 19)), 0, SkippedCut},
		{"empty", linkRaw, nil, 0, SkippedCut},
		{"fragment", linkRaw, fragment, 0, SkippedFragment},
		{"fragment of IPv6", linkRaw, fragment6, 0, SkippedFragment},
		{"ICMP", linkRaw, icmp, 0, SkippedProtocol},
		{"ARP", linkEthernet, arp, 0, SkippedProtocol},
		{"version 5", linkRaw, []byte{0x50}, 0, SkippedProtocol},
		{"link type", 147, whole, 0, SkippedLink},
		{"another server", linkRaw, other, 0, SkippedAddress},
		{"response to the server", linkRaw, udp(clientAddr, serverAddr, reply(query, 0)), 0, SkippedDirection},
		{"TCP without a beginning", linkRaw, tcp(clientAddr, serverAddr, 5, 0, query), 0, SkippedStream},
	} {
		w := (&captureWriter{order: binary.LittleEndian, link: c.link}).begin()
		w.packet(captured, c.frame, c.lost)
		got, counts, err := messages(t, Pcap{Reader: &w.Buffer, Port: 53, Server: serverAddr.Addr()})
		if err != nil || len(got) > 0 || counts.Skipped[c.want] != 1 {
			t.Errorf("%s: got %q, skipped %v and error %v, want none and 1 %s", c.name, got, counts.Skipped, err, c.want)
		}
	}
}

func TestCaptureErrors(t *testing.T) {
	valid := newCapture()
	valid.packet(captured, udp(clientAddr, serverAddr, request(7, "a.example")), 0)
	huge := newCapture()
	huge.Write(bytes.Repeat([]byte{0xff}, 16))
	ng := func() *captureWriter {
		return (&captureWriter{order: binary.LittleEndian, ng: true, link: linkRaw}).begin()
	}
	unknown := ng()
	unknown.block(blockEnhancedPacket, append([]byte{9, 0, 0, 0}, make([]byte, 16)...))
	long := ng()
	long.block(blockEnhancedPacket, append(make([]byte, 12), 99, 0, 0, 0, 99, 0, 0, 0))
	lengths := ng()
	lengths.Write([]byte{6, 0, 0, 0, 12, 0, 0, 0, 16, 0, 0, 0})
	block := ng()
	block.Write([]byte{6, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	resolutions := ng()
	resolutions.block(blockInterface, []byte{101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 99, 0, 0, 0})
	many := ng()
	for range maxInterfaces {
		many.block(blockInterface, make([]byte, 8))
	}
	for _, c := range []struct {
		name, capture, want string
	}{
		{"empty", "", "want a capture in the format pcap or pcapng: unexpected EOF"},
		{"text", strings.Repeat("hello ", 10), "got a file that begins with 68656c6c"},
		{"gzip", "\x1f\x8b\x08\x08" + strings.Repeat("x", 20), "the capture is compressed: decompress it with gunzip first"},
		{"zstd", "\x28\xb5\x2f\xfd" + strings.Repeat("x", 20), "the capture is compressed: decompress it with unzstd first"},
		{"short", valid.String()[:20], "the header of the capture is cut short"},
		{"cut in a header", valid.String()[:30], "the capture is cut short: unexpected EOF"},
		{"cut in a packet", valid.String()[:50], "the capture is cut short: unexpected EOF"},
		{"huge packet", huge.String(), "the capture is corrupt: a packet of 4294967295 bytes"},
		{"modified format", "\x34\xcd\xb2\xa1" + strings.Repeat("\x00", 20), "modified pcap format"},
		{"version", "\xd4\xc3\xb2\xa1\x03" + strings.Repeat("\x00", 19), "got version 3"},
		{"pcapng: no byte order", "\x0a\x0d\x0d\x0a" + strings.Repeat("\x00", 20), "a section without its byte order"},
		{"pcapng: cut", ng().String()[:40], "the capture is cut short"},
		{"pcapng: interface", unknown.String(), "a packet of interface 9"},
		{"pcapng: long packet", long.String(), "a block is too short"},
		{"pcapng: two lengths", lengths.String(), "two different lengths"},
		{"pcapng: large block", block.String(), "a block of 4294967292 bytes"},
		{"pcapng: resolution", resolutions.String(), "a time resolution of 0x63"},
		{"pcapng: interfaces", many.String(), "more than 4096 interfaces"},
	} {
		_, _, err := messages(t, Pcap{Reader: strings.NewReader(c.capture), Port: 53})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.want)
		}
	}
}

// FuzzCapture checks that reading any file ends, and that the messages are from inside of it.
func FuzzCapture(f *testing.F) {
	query := request(7, "web.shop.svc.cluster.local")
	for link, frame := range frames() {
		for _, ng := range []bool{false, true} {
			w := (&captureWriter{order: binary.LittleEndian, ng: ng, link: link}).begin()
			w.packet(captured, frame(udp(clientAddr, serverAddr, query)), 0)
			w.packet(captured, frame(udp(server6, client6, reply(query, 3))), 0)
			w.packet(captured, frame(tcp(clientAddr, serverAddr, 1, flagSYN, nil)), 0)
			w.packet(captured, frame(tcp(clientAddr, serverAddr, 2, 0, append([]byte{0, byte(len(query))}, query...))), 0)
			for _, fragment := range append(cut(udp(clientAddr, serverAddr, query), 7, 16), cut(udp(client6, server6, query), 7, 24)...) {
				w.packet(captured, frame(fragment), 0)
			}
			f.Add(w.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		counts := Counts{Skipped: map[Skipped]int{}}
		m := newMatcher(&counts)
		total := 0
		_ = Pcap{Reader: bytes.NewReader(data), Port: 53}.Messages(t.Context(), &counts, func(message *Message) bool {
			if total += len(message.Data); message.Proto != dns.UDP && message.Proto != dns.TCP {
				t.Errorf("got protocol %v", message.Proto)
			}
			m.add(message)
			return true
		})
		if total > len(data) {
			t.Errorf("got %d bytes of messages from %d bytes", total, len(data))
		}
		skipped := 0
		for _, n := range counts.Skipped {
			skipped += n
		}
		if waits := m.order.Len(); len(m.byKey) != waits || counts.Queries+counts.Responses > 2*len(data) || skipped > counts.Packets*2+len(data) {
			t.Errorf("got %+v with %d waiting and %d keys", counts, waits, len(m.byKey))
		}
		if counts.Queries != counts.Answered+counts.Unanswered+counts.Repeated || counts.Responses != counts.Answered+counts.Unasked {
			t.Errorf("got %+v, want each message to be counted once", counts)
		}
	})
}
