package expression

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/expr-lang/expr/vm"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An environment is the functions of an expression. They are fields and not
// methods, because Go's methods cannot have these names.
type environment struct {
	BufSize    func() int          `expr:"bufsize"`
	Class      func() string       `expr:"class"`
	ClientIP   func() string       `expr:"client_ip"`
	DO         func() bool         `expr:"do"`
	ID         func() int          `expr:"id"`
	Metadata   func(string) string `expr:"metadata"`
	Name       func() string       `expr:"name"`
	Opcode     func() int          `expr:"opcode"`
	Port       func() string       `expr:"port"`
	Proto      func() string       `expr:"proto"`
	ServerIP   func() string       `expr:"server_ip"`
	ServerPort func() string       `expr:"server_port"`
	Size       func() int          `expr:"size"`
	Type       func() string       `expr:"type"`
}

// A machine evaluates one expression at a time. Its environment is of the query
// at hand.
type machine struct {
	environment
	vm vm.VM
	q  *dns.Query
}

func newMachine(metadata Metadata) *machine {
	m := new(machine)
	m.environment = environment{
		BufSize: func() int {
			if m.q.Proto == dns.TCP {
				return wire.MaxMessage
			}
			return int(m.q.UDPSize)
		},
		Class:      func() string { return m.q.Class.String() },
		ClientIP:   func() string { return host(m.q.Peer) },
		DO:         func() bool { return m.q.DO },
		ID:         func() int { return int(m.q.ID) },
		Metadata:   func(key string) string { return metadata(m.q, key) },
		Name:       func() string { return name(m.q) },
		Opcode:     func() int { return int(m.q.Flags >> 11 & 15) },
		Port:       func() string { return port(m.q.Peer) },
		Proto:      func() string { return m.q.Proto.String() },
		ServerIP:   func() string { return host(m.q.Local) },
		ServerPort: func() string { return port(m.q.Local) },
		Size:       func() int { return len(m.q.Packet()) },
		Type:       func() string { return m.q.Type.String() },
	}
	return m
}

// run evaluates a program for q, of which nothing is kept.
func (m *machine) run(p *vm.Program, q *dns.Query) (any, error) {
	m.q = q
	v, err := m.vm.Run(p, &m.environment)
	m.q = nil
	return v, err
}

// host is an address without the interface of a link-local one.
func host(a netip.AddrPort) string { return a.Addr().Unmap().WithZone("").String() }

func port(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }

// name is in lower case, with the final dot; what is special in it is escaped
// as in a zone file.
func name(q *dns.Query) string {
	var room [wire.MaxName]byte
	return string(wire.AppendText(room[:0], q.Name()))
}

// within is incidr.
func within(args ...any) (any, error) {
	text, _ := args[0].(string)
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return false, fmt.Errorf("incidr: %q is not an IP address", text)
	}
	text, _ = args[1].(string)
	p, err := parsePrefix(text)
	if err != nil {
		return false, err
	}
	return p.Contains(ip.Unmap().WithZone("")), nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("incidr: %q is not a CIDR: want one like 10.96.0.0/12 or fd00::/8", text)
	}
	return p, nil
}
