package expression

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/vm"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An environment holds the functions of an expression. They are fields because
// exported methods cannot have these names.
type environment struct {
	BufSize    func() int          `expr:"bufsize"`
	Class      func() string       `expr:"class"`
	ClientIP   func() string       `expr:"client_ip"`
	DO         func() bool         `expr:"do"`
	Group      func(any) string    `expr:"group"`
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
	Variable   func(string) any    `expr:"var "`
}

// variableFunction is the function that returns the value of a variable. No
// expression can contain its name.
const variableFunction = "var "

// A machine evaluates one expression at a time, for the query q.
type machine struct {
	environment
	vm    vm.VM
	q     *dns.Query
	scope Scope
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
		Group:      func(key any) string { return m.scope.Groups[fmt.Sprint(key)] },
		ID:         func() int { return int(m.q.ID) },
		Metadata:   func(key string) string { return metadata(m.q, key) },
		Name:       func() string { return name(m.q) },
		Opcode:     func() int { return int(m.q.Flags >> 11 & 15) },
		Port:       func() string { return port(m.q.Peer) },
		Proto:      func() string { return m.q.Network().String() },
		ServerIP:   func() string { return host(m.q.Local) },
		ServerPort: func() string { return port(m.q.Local) },
		Size:       func() int { return len(m.q.Packet()) },
		Type:       func() string { return m.q.Type.String() },
		Variable:   func(name string) any { return m.scope.Vars[name] },
	}
	return m
}

// run evaluates a program for q. It retains nothing of q.
func (m *machine) run(p *vm.Program, q *dns.Query, s Scope) (any, error) {
	m.q, m.scope = q, s
	v, err := m.vm.Run(p, &m.environment)
	m.q, m.scope = nil, Scope{}
	return v, err
}

// host returns the text of an address, without the zone of a link-local
// address.
func host(a netip.AddrPort) string { return a.Addr().Unmap().WithZone("").String() }

func port(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }

// name returns q's name in lower case with its final dot. Special characters
// are escaped as in zone files.
func name(q *dns.Query) string {
	var buf [wire.MaxName]byte
	return string(wire.AppendText(buf[:0], q.Name()))
}

// inCIDR is the function incidr.
func inCIDR(args ...any) (any, error) {
	text, _ := args[0].(string)
	ip, err := parseAddr(text)
	if err != nil {
		return false, err
	}

	text, _ = args[1].(string)
	p, err := parsePrefix(text)
	if err != nil {
		return false, err
	}
	return p.Contains(ip.Unmap().WithZone("")), nil
}

func parseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, fmt.Errorf("incidr: %q is not an IP address", text)
	}
	return addr, nil
}

// withoutBrackets returns fd00::/8 for [fd00::]/8, and any other text as it is.
func withoutBrackets(text string) string {
	if addr, bits, ok := strings.Cut(text, "]/"); ok && strings.HasPrefix(addr, "[") && strings.Contains(addr, ":") {
		return addr[1:] + "/" + bits
	}
	return text
}

// isFunction reports whether expressions have a function called name.
func isFunction(name string) bool {
	t := reflect.TypeFor[environment]()
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("expr") == name {
			return true
		}
	}
	return name == "incidr"
}

// parsePrefix parses a prefix. Brackets around the address, which CoreDNS's documentation had,
// are left out.
func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(withoutBrackets(text))
	if err != nil {
		return p, fmt.Errorf("incidr: %q is not a CIDR: want one like 10.96.0.0/12 or fd00::/8", text)
	}
	return p, nil
}
