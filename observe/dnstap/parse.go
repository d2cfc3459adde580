package dnstap

import (
	"errors"
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seamark/seamark/dns"
)

// errMalformed is returned for a frame that is no Dnstap.
var errMalformed = errors.New("dnstap: malformed message")

// Parse decodes a Dnstap into m, whose fields then share memory with payload. If the Dnstap
// has both a query and a response, Packet is the response.
func (m *Message) Parse(payload []byte) error {
	*m = Message{}
	var message []byte
	err := fields(payload, func(n protowire.Number, _ uint64, b []byte) {
		switch n {
		case fieldIdentity:
			m.Identity = b
		case fieldVersion:
			m.Version = b
		case fieldExtra:
			m.Extra = b
		case fieldMessage:
			message = b
		}
	})
	if err != nil {
		return err
	}

	numbers := [fieldResponsePacket + 1]uint64{fieldProtocol: 1}
	var data [len(numbers)][]byte
	err = fields(message, func(n protowire.Number, v uint64, b []byte) {
		if int(n) < len(numbers) {
			numbers[n], data[n] = v, b
		}
	})

	m.Kind = Kind(numbers[fieldKind])
	if numbers[fieldProtocol] != 1 {
		m.Proto = dns.TCP
	}
	m.Client = addressOf(data[fieldQueryAddress], numbers[fieldQueryPort])
	m.Server = addressOf(data[fieldResponseAddress], numbers[fieldResponsePort])
	m.Query = timeOf(numbers[fieldQuerySeconds], numbers[fieldQueryNanos])
	m.Response = timeOf(numbers[fieldResponseSeconds], numbers[fieldResponseNanos])
	if m.Packet = data[fieldResponsePacket]; m.Packet == nil {
		m.Packet = data[fieldQueryPacket]
	}
	return err
}

// addressOf returns an address that is not valid if its bytes are none.
func addressOf(b []byte, port uint64) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port))
}

// timeOf returns the zero time if seconds is 0 or no time.
func timeOf(seconds, nanos uint64) (t time.Time) {
	if seconds == 0 || seconds > math.MaxUint32 || nanos >= 1e9 {
		return t
	}
	return time.Unix(int64(seconds), int64(nanos))
}

// fields passes the fields of a message to each: the value of a number, or the bytes.
func fields(b []byte, each func(n protowire.Number, v uint64, b []byte)) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errMalformed
		}
		b = b[size:]

		var v uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var fixed uint32
			fixed, size = protowire.ConsumeFixed32(b)
			v = uint64(fixed)
		case protowire.BytesType:
			data, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return errMalformed
		}

		b = b[size:]
		each(n, v, data)
	}
	return nil
}
