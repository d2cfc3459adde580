package etcd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

const (
	// valueLimit is the length of the longest value that is parsed; etcd's own
	// default limit is about the same.
	valueLimit = 1 << 20
	// textLimit is the length of the longest text. The rest of its TXT record fits
	// into a reply too.
	textLimit = 64000
)

// A message is the value of one key. Its strings point into the index.
type message struct {
	path     string     // of its key
	addr     netip.Addr // the host, if it is an address
	name     string     // the host, if it is a name: in wire format, lower case
	text     string
	group    string
	ttl      uint32 // seconds; 0 if unset
	weight   uint32 // 0 if unset, which is equivalent to 100
	port     uint16
	priority uint16 // 0 if unset
	strip    uint8  // number of labels to remove from a target that is the name of the key
	mail     bool
	lease    *lease
}

// parse parses a value. Unknown fields are ignored.
func parse(value []byte) (m message, err error) {
	if len(value) > valueLimit {
		return m, fmt.Errorf("the value has %d bytes, more than the limit of %d", len(value), valueLimit)
	}

	var v struct {
		Host, Text, Group           string
		Port, Priority, TargetStrip int64
		Weight                      int64
		TTL                         uint32
		Mail                        bool
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return m, describe(err)
	}

	m = message{
		text: v.Text, group: v.Group, mail: v.Mail, ttl: min(v.TTL, math.MaxInt32),
		port: uint16(v.Port), priority: uint16(v.Priority), weight: uint32(v.Weight),
		strip: uint8(min(max(v.TargetStrip, 0), wire.MaxLabels)),
	}

	switch {
	case v.Port < 0 || v.Port > math.MaxUint16:
		return m, fmt.Errorf("port: want 0..65535, got %d", v.Port)
	case v.Priority < 0 || v.Priority > math.MaxUint16:
		return m, fmt.Errorf("priority: want 0..65535, got %d", v.Priority)
	case v.Weight < 0 || v.Weight > math.MaxInt32:
		return m, fmt.Errorf("weight: want 0..%d, got %d", math.MaxInt32, v.Weight)
	case len(v.Text) > textLimit:
		return m, fmt.Errorf("text: %d bytes do not fit into a TXT record", len(v.Text))
	}
	return m, m.setHost(v.Host)
}

// describe rewrites an error of package json in terms of the value, without Go
// types.
func describe(err error) error {
	typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	if typeErr.Field == "" {
		return fmt.Errorf("want an object, got %s", typeErr.Value)
	}

	want := "a whole number"
	switch typeErr.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Uint32:
		want = "a whole number of 0 or more"
	}
	return fmt.Errorf("%s: want %s, got %s", strings.ToLower(typeErr.Field), want, typeErr.Value)
}

var errHost = errors.New("host: want an address or a name")

func (m *message) setHost(host string) error {
	if host == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return fmt.Errorf("%w, got %q", errHost, abbreviate(host))
		}
		m.addr = ip.Unmap()
		return nil
	}

	name, err := wire.ParseName(host)
	if err != nil || !isHost(host) {
		return fmt.Errorf("%w, got %q", errHost, abbreviate(host))
	}
	m.name = string(name)
	return nil
}

// isHost reports whether host is a host name, and not a URL, an address with a
// port, or an invalid IPv4 address.
func isHost(host string) bool {
	for i := 0; i < len(host); i++ {
		if c := host[i]; c <= ' ' || c > '~' || strings.IndexByte(":/%@,;()\"", c) >= 0 {
			return false
		}
	}

	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	return strings.Trim(last, "0123456789") != ""
}

// The first byte of a packed message is a set of the flags up to hasMore. With
// hasMore, a second byte has the other flags. The fields follow in the order of the
// flags.
const (
	hostMask    = 3 // these two bits are one of the next three values, or 0 without a host
	hostIPv4    = 1
	hostIPv6    = 2
	hostName    = 3
	isMail      = 1 << 2
	hasPort     = 1 << 3
	hasPriority = 1 << 4
	hasWeight   = 1 << 5
	hasTTL      = 1 << 6
	hasMore     = 1 << 7

	hasText  = 1 << 0
	hasGroup = 1 << 1
	hasStrip = 1 << 2
)

// flags returns the first two bytes of the packed message.
func (m *message) flags() (first, second byte) {
	set := func(flags *byte, flag byte, on bool) {
		if on {
			*flags |= flag
		}
	}

	set(&first, hostIPv4, m.addr.Is4())
	set(&first, hostIPv6, m.addr.Is6())
	set(&first, hostName, m.name != "")
	set(&first, isMail, m.mail)
	set(&first, hasPort, m.port != 0)
	set(&first, hasPriority, m.priority != 0)
	set(&first, hasWeight, m.weight != 0)
	set(&first, hasTTL, m.ttl != 0)
	set(&second, hasText, m.text != "")
	set(&second, hasGroup, m.group != "")
	set(&second, hasStrip, m.strip != 0)
	set(&first, hasMore, second != 0)
	return first, second
}

// pack appends m without its path and lease to buf.
func (m *message) pack(buf []byte) []byte {
	if m.weight == defaultWeight {
		m.weight = 0
	}
	first, second := m.flags()
	buf = append(buf, first)
	if second != 0 {
		buf = append(buf, second)
	}

	switch first & hostMask {
	case hostIPv4:
		ip := m.addr.As4()
		buf = append(buf, ip[:]...)
	case hostIPv6:
		ip := m.addr.As16()
		buf = append(buf, ip[:]...)
	case hostName:
		buf = append(append(buf, byte(len(m.name))), m.name...)
	}

	if m.port != 0 {
		buf = binary.BigEndian.AppendUint16(buf, m.port)
	}
	if m.priority != 0 {
		buf = binary.BigEndian.AppendUint16(buf, m.priority)
	}
	if m.weight != 0 {
		buf = binary.AppendUvarint(buf, uint64(m.weight))
	}
	if m.ttl != 0 {
		buf = binary.AppendUvarint(buf, uint64(m.ttl))
	}

	if m.text != "" {
		buf = append(binary.AppendUvarint(buf, uint64(len(m.text))), m.text...)
	}
	if m.group != "" {
		buf = append(binary.AppendUvarint(buf, uint64(len(m.group))), m.group...)
	}
	if m.strip != 0 {
		buf = append(buf, m.strip)
	}
	return buf
}

// unpack reads the message that pack wrote at the start of s into m, which must be
// zero, and returns the rest of s.
func (m *message) unpack(s string) (rest string) {
	first, second := s[0], byte(0)
	s = s[1:]
	if first&hasMore != 0 {
		second, s = s[0], s[1:]
	}

	switch first & hostMask {
	case hostIPv4:
		m.addr, s = netip.AddrFrom4([4]byte([]byte(s[:4]))), s[4:]
	case hostIPv6:
		m.addr, s = netip.AddrFrom16([16]byte([]byte(s[:16]))), s[16:]
	case hostName:
		n := 1 + int(s[0])
		m.name, s = s[1:n], s[n:]
	}

	m.mail = first&isMail != 0
	if first&hasPort != 0 {
		m.port, s = uint16(s[0])<<8|uint16(s[1]), s[2:]
	}
	if first&hasPriority != 0 {
		m.priority, s = uint16(s[0])<<8|uint16(s[1]), s[2:]
	}
	if first&hasWeight != 0 {
		m.weight, s = readUint32(s)
	}
	if first&hasTTL != 0 {
		m.ttl, s = readUint32(s)
	}

	if second&hasText != 0 {
		m.text, s = readText(s)
	}
	if second&hasGroup != 0 {
		m.group, s = readText(s)
	}
	if second&hasStrip != 0 {
		m.strip, s = s[0], s[1:]
	}
	return s
}

func readUint32(s string) (v uint32, rest string) {
	n, rest := zone.Varint(s)
	return uint32(n), rest
}

func readText(s string) (text, rest string) {
	n, s := zone.Varint(s)
	return s[:n], s[n:]
}

// hasHost reports whether m has a host.
func (m *message) hasHost() bool { return m.name != "" || m.addr.IsValid() }

const (
	defaultPriority = 10
	defaultWeight   = 100
)

func (m *message) effectiveWeight() uint32 {
	if m.weight == 0 {
		return defaultWeight
	}
	return m.weight
}
