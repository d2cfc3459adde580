package rewrite

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An action is what is done to an option.
type action uint8

const (
	actionSet     action = iota // put it in, in place of one that is there
	actionAppend                // put it in if there is none
	actionReplace               // put it in the place of one that is there
	actionUnset                 // take it out
)

// actions are the words for them, in order.
var actions = [...]string{actionSet: "set", actionAppend: "append", actionReplace: "replace", actionUnset: "unset"}

// An option changes one option of EDNS.
type option struct {
	code   uint16
	action action
	revert bool
	// data is what the option has; not ok if this query has nothing for it.
	data func(q *dns.Query, t *turn) (data []byte, ok bool)
}

func (o *option) apply(q *dns.Query, t *turn) (bool, error) {
	there := false
	for code := range wire.Options(q.Options) {
		there = there || code == o.code
	}
	if there && o.action == actionAppend || !there && (o.action == actionReplace || o.action == actionUnset) {
		return false, nil
	}
	var data []byte
	if o.action != actionUnset {
		var ok bool
		if data, ok = o.data(q, t); !ok {
			return false, nil
		}
	}
	if !t.optioned {
		t.options, t.optioned = q.Options, true
	}
	var out []byte
	for code, body := range wire.Options(q.Options) {
		if code != o.code {
			out = wire.AppendOption(out, code, body)
		}
	}
	if o.action != actionUnset {
		out = wire.AppendOption(out, o.code, data)
	}
	q.Options = out
	if o.revert {
		t.reverts = append(t.reverts, o.code)
	}
	return true, nil
}

func fixed(data []byte) func(*dns.Query, *turn) ([]byte, bool) {
	return func(*dns.Query, *turn) ([]byte, bool) { return data, true }
}

// subnet is the option of RFC 7871 §6: family, bits, none of the reply's, and as
// many bytes of the address as the bits need.
func subnet(bits4, bits6 int) func(*dns.Query, *turn) ([]byte, bool) {
	return func(q *dns.Query, _ *turn) ([]byte, bool) {
		addr, family, bits := q.Peer.Addr().Unmap(), byte(1), bits4
		if addr.Is6() {
			family, bits = 2, bits6
		}
		p, err := addr.Prefix(bits)
		if err != nil {
			return nil, false
		}
		return append([]byte{0, family, byte(bits), 0}, p.Addr().AsSlice()[:(bits+7)/8]...), true
	}
}

// variable gives what reads {NAME}, nil if there is none of that name.
func variable(name string) func(*dns.Query, *turn) ([]byte, bool) {
	port := func(a netip.AddrPort) ([]byte, bool) { return binary.BigEndian.AppendUint16(nil, a.Port()), true }
	host := func(a netip.AddrPort) ([]byte, bool) {
		return a.Addr().Unmap().AsSlice(), a.IsValid()
	}
	switch name {
	case "qname":
		return func(_ *dns.Query, t *turn) ([]byte, bool) { return bytes.Clone(t.written()), true }
	case "qtype":
		return func(_ *dns.Query, t *turn) ([]byte, bool) {
			return binary.BigEndian.AppendUint16(nil, uint16(t.typ)), true
		}
	case "protocol":
		return func(q *dns.Query, _ *turn) ([]byte, bool) { return []byte(q.Proto.String()), true }
	case "client_ip":
		return func(q *dns.Query, _ *turn) ([]byte, bool) { return host(q.Peer) }
	case "client_port":
		return func(q *dns.Query, _ *turn) ([]byte, bool) { return port(q.Peer) }
	case "server_ip":
		return func(q *dns.Query, _ *turn) ([]byte, bool) { return host(q.Local) }
	case "server_port":
		return func(q *dns.Query, _ *turn) ([]byte, bool) { return port(q.Local) }
	}
	return nil
}
