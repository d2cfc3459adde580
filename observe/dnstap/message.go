// Package dnstap sends dnstap messages (dnstap.info) over Frame Streams to receivers that
// it connects to, or that connect to it, and receives messages of other servers.
//
// Append encodes a message. A Sender or a Listener queues encoded messages, without
// blocking, and sends them from goroutines of its own. Read decodes the messages of a file,
// and Receive those of servers that connect.
package dnstap

import (
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seamark/seamark/dns"
)

// A Kind is the type of a message (dnstap.proto, Message.Type).
type Kind uint64

const (
	AuthQuery         Kind = 1
	AuthResponse      Kind = 2
	ClientQuery       Kind = 5
	ClientResponse    Kind = 6
	ForwarderQuery    Kind = 7
	ForwarderResponse Kind = 8
)

// A Message is the Message of dnstap.proto.
type Message struct {
	Kind     Kind
	Client   netip.AddrPort // the address that sent the query
	Server   netip.AddrPort // the address that responded
	Proto    dns.Proto
	Query    time.Time // when the query was sent or received
	Response time.Time // zero in a query
	Packet   []byte    // the query or the response; nil to leave it out
	Identity []byte    // of this server
	Version  []byte    // of this server
	Extra    []byte    // any text
}

// Field numbers of dnstap.proto.
const (
	fieldIdentity = 1
	fieldVersion  = 2
	fieldExtra    = 3
	fieldMessage  = 14
	fieldType     = 15 // of Dnstap

	fieldKind            = 1 // of Message
	fieldFamily          = 2
	fieldProtocol        = 3
	fieldQueryAddress    = 4
	fieldResponseAddress = 5
	fieldQueryPort       = 6
	fieldResponsePort    = 7
	fieldQuerySeconds    = 8
	fieldQueryNanos      = 9
	fieldQueryPacket     = 10
	fieldResponseSeconds = 12
	fieldResponseNanos   = 13
	fieldResponsePacket  = 14
)

// Append appends the encoded Dnstap with the message m to buf.
func (m *Message) Append(buf []byte) []byte {
	for field, v := range [...][]byte{fieldIdentity: m.Identity, fieldVersion: m.Version, fieldExtra: m.Extra} {
		if len(v) > 0 {
			buf = appendBytes(buf, protowire.Number(field), v)
		}
	}

	// The length of the message precedes it: it is encoded without a packet, which is
	// the only part that is large, in memory of its own.
	var array [128]byte
	head := m.appendHead(array[:0])
	size := len(head)
	field := protowire.Number(fieldQueryPacket)
	if !m.Response.IsZero() {
		field = fieldResponsePacket
	}
	if m.Packet != nil {
		size += protowire.SizeTag(field) + protowire.SizeBytes(len(m.Packet))
	}

	buf = protowire.AppendVarint(protowire.AppendTag(buf, fieldMessage, protowire.BytesType), uint64(size))
	buf = append(buf, head...)
	if m.Packet != nil {
		buf = appendBytes(buf, field, m.Packet)
	}
	return appendUint(buf, fieldType, 1) // the Dnstap has a Message
}

// appendHead appends the encoded message without the packet.
func (m *Message) appendHead(buf []byte) []byte {
	buf = appendUint(buf, fieldKind, uint64(m.Kind))
	family := uint64(1)
	if m.Client.Addr().Is6() || m.Server.Addr().Is6() {
		family = 2
	}
	buf = appendUint(buf, fieldFamily, family)
	protocol := uint64(1)
	if m.Proto != dns.UDP {
		protocol = 2
	}
	buf = appendUint(buf, fieldProtocol, protocol)
	buf = appendAddress(buf, fieldQueryAddress, fieldQueryPort, m.Client)
	buf = appendAddress(buf, fieldResponseAddress, fieldResponsePort, m.Server)
	buf = appendTime(buf, fieldQuerySeconds, fieldQueryNanos, m.Query)
	buf = appendTime(buf, fieldResponseSeconds, fieldResponseNanos, m.Response)
	return buf
}

func appendUint(buf []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(buf, field, protowire.VarintType), v)
}

func appendBytes(buf []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(buf, field, protowire.BytesType), v)
}

func appendAddress(buf []byte, address, port protowire.Number, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return buf
	}
	var b [16]byte
	text := b[:]
	if a.Addr().Is4() {
		v4 := a.Addr().As4()
		text = append(b[:0], v4[:]...)
	} else {
		b = a.Addr().As16()
	}
	return appendUint(appendBytes(buf, address, text), port, uint64(a.Port()))
}

func appendTime(buf []byte, seconds, nanos protowire.Number, t time.Time) []byte {
	if t.IsZero() {
		return buf
	}
	buf = appendUint(buf, seconds, uint64(t.Unix()))
	return protowire.AppendFixed32(protowire.AppendTag(buf, nanos, protowire.Fixed32Type), uint32(t.Nanosecond()))
}
