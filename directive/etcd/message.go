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
)

const (
	// valueLimit is the length of the longest value that is parsed; etcd's own
	// default limit is about the same.
	valueLimit = 1 << 20
	// textLimit leaves room in a reply for the rest of the record.
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
	strip    uint8  // how many labels to remove from the name of the key
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
		port: uint16(v.Port), priority: uint16(v.Priority), weight: uint32(v.Weight), strip: uint8(min(max(v.TargetStrip, 0), wire.MaxLabels)),
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
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	if wrong.Field == "" {
		return fmt.Errorf("want an object, got %s", wrong.Value)
	}
	want := "a whole number"
	switch wrong.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Uint32:
		want = "a whole number of 0 or more"
	}
	return fmt.Errorf("%s: want %s, got %s", strings.ToLower(wrong.Field), want, wrong.Value)
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

// The first byte of a packed message is a set of these flags. With hasMore a
// second byte has further flags. The fields follow in the order of the flags.
const (
	hostMask    = 3 // the kind of host
	hostFour    = 1
	hostSix     = 2
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

// pack appends m without its path and lease to buf.
func (m *message) pack(buf []byte) []byte {
	if m.weight == defaultWeight {
		m.weight = 0
	}
	var a, b byte
	set := func(to *byte, flag byte, is bool) {
		if is {
			*to |= flag
		}
	}
	set(&a, hostFour, m.addr.Is4())
	set(&a, hostSix, m.addr.Is6())
	set(&a, hostName, m.name != "")
	set(&a, isMail, m.mail)
	set(&a, hasPort, m.port != 0)
	set(&a, hasPriority, m.priority != 0)
	set(&a, hasWeight, m.weight != 0)
	set(&a, hasTTL, m.ttl != 0)
	set(&b, hasText, m.text != "")
	set(&b, hasGroup, m.group != "")
	set(&b, hasStrip, m.strip != 0)
	set(&a, hasMore, b != 0)
	buf = append(buf, a)
	if b != 0 {
		buf = append(buf, b)
	}
	switch a & hostMask {
	case hostFour:
		ip := m.addr.As4()
		buf = append(buf, ip[:]...)
	case hostSix:
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

// unpack reads a message that pack has written at the start of s, and returns the
// rest of s. m must be zero.
func (m *message) unpack(s string) (rest string) {
	a, b := s[0], byte(0)
	s = s[1:]
	if a&hasMore != 0 {
		b, s = s[0], s[1:]
	}
	switch a & hostMask {
	case hostFour:
		m.addr, s = netip.AddrFrom4([4]byte([]byte(s[:4]))), s[4:]
	case hostSix:
		m.addr, s = netip.AddrFrom16([16]byte([]byte(s[:16]))), s[16:]
	case hostName:
		n := 1 + int(s[0])
		m.name, s = s[1:n], s[n:]
	}
	m.mail = a&isMail != 0
	if a&hasPort != 0 {
		m.port, s = uint16(s[0])<<8|uint16(s[1]), s[2:]
	}
	if a&hasPriority != 0 {
		m.priority, s = uint16(s[0])<<8|uint16(s[1]), s[2:]
	}
	if a&hasWeight != 0 {
		m.weight, s = uvarint(s)
	}
	if a&hasTTL != 0 {
		m.ttl, s = uvarint(s)
	}
	if b&hasText != 0 {
		m.text, s = counted(s)
	}
	if b&hasGroup != 0 {
		m.group, s = counted(s)
	}
	if b&hasStrip != 0 {
		m.strip, s = s[0], s[1:]
	}
	return s
}

func uvarint(s string) (v uint32, rest string) {
	for shift := 0; ; shift += 7 {
		c := s[0]
		s = s[1:]
		if v |= uint32(c&0x7f) << shift; c < 0x80 {
			return v, s
		}
	}
}

func counted(s string) (text, rest string) {
	n, s := uvarint(s)
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
