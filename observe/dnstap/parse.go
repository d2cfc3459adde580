package dnstap

import (
	"errors"
	"math"
	"net/netip"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire/protobuf"
)

// errMalformed is returned for a frame that is no Dnstap.
var errMalformed = errors.New("dnstap: malformed message")

// Parse decodes a Dnstap into m, whose fields then share memory with payload. If the Dnstap
// has both a query and a response, Packet is the response.
func (m *Message) Parse(payload []byte) error {
	*m = Message{}
	var message []byte
	outer := protobuf.Message{Rest: payload}
	for outer.Next() {
		_, b := outer.Value()
		switch outer.Number {
		case fieldIdentity:
			m.Identity = b
		case fieldVersion:
			m.Version = b
		case fieldExtra:
			m.Extra = b
		case fieldMessage:
			message = b
		}
	}
	if outer.Err != nil {
		return errMalformed
	}

	numbers := [fieldResponsePacket + 1]uint64{fieldProtocol: 1}
	var data [len(numbers)][]byte
	inner := protobuf.Message{Rest: message}
	for inner.Next() {
		if n := int(inner.Number); n < len(numbers) {
			numbers[n], data[n] = inner.Value()
		}
	}

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
	if inner.Err != nil {
		return errMalformed
	}
	return nil
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
