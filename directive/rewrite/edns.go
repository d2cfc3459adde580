package rewrite

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An action is the effect of a rule on an option.
type action uint8

const (
	actionSet     action = iota // add the option, replacing one of the same code
	actionAppend                // add the option if there is none
	actionReplace               // replace the option if there is one
	actionUnset                 // remove the option
)

// actions are the Corefile's words, by action.
var actions = [...]string{actionSet: "set", actionAppend: "append", actionReplace: "replace", actionUnset: "unset"}

// An ednsRule changes one EDNS option of the forwarded
// query.
type ednsRule struct {
	code   uint16
	action action
	revert bool
	// data returns the option's data. It is not ok if there is none for the query.
	data func(q *dns.Query, t *transaction) (data []byte, ok bool)
}

func (o *ednsRule) apply(q *dns.Query, t *transaction) (bool, error) {
	present := wire.HasOption(q.Options, o.code)
	if present && o.action == actionAppend || !present && (o.action == actionReplace || o.action == actionUnset) {
		return false, nil
	}

	var data []byte
	if o.action != actionUnset {
		var ok bool
		if data, ok = o.data(q, t); !ok {
			return false, nil
		}
	}
	if !t.optionsChanged {
		t.options, t.optionsChanged = q.Options, true
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

	// A client that has sent no subnet must not get one (RFC 7871 §7.2.1).
	if o.revert || o.code == wire.OptionSubnet && !present {
		t.reverts = append(t.reverts, replyOption{o.code, q.Options})
	}
	q.Options = out
	return true, nil
}

// A replyOption is an EDNS option of replies, which an edns0 rule with revert
// restores.
type replyOption struct {
	code   uint16
	before []byte // the options of the query before the rule
}

// restore replaces the reply's options of the code, if it has any, by the options
// that the query had before the rule.
func (o *replyOption) restore(q *dns.Query) {
	if !wire.HasOption(q.ReplyOptions(), o.code) {
		return
	}
	q.RemoveReplyOption(o.code)
	for code, data := range wire.Options(o.before) {
		if code == o.code {
			q.AddReplyOption(code, data)
		}
	}
}

func fixed(data []byte) func(*dns.Query, *transaction) ([]byte, bool) {
	return func(*dns.Query, *transaction) ([]byte, bool) { return data, true }
}

// subnet returns the data of the client subnet option (RFC 7871 §6): family,
// source prefix length, scope prefix length 0, and the bytes of the address
// that the prefix covers.
func subnet(bits4, bits6 int) func(*dns.Query, *transaction) ([]byte, bool) {
	return func(q *dns.Query, _ *transaction) ([]byte, bool) {
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

// variable returns the function that computes {NAME}, or nil if the name is
// unknown.
func variable(name string) func(*dns.Query, *transaction) ([]byte, bool) {
	port := func(a netip.AddrPort) ([]byte, bool) { return binary.BigEndian.AppendUint16(nil, a.Port()), true }
	host := func(a netip.AddrPort) ([]byte, bool) { return a.Addr().Unmap().AsSlice(), a.IsValid() }

	switch name {
	case "qname":
		return func(_ *dns.Query, t *transaction) ([]byte, bool) { return bytes.Clone(t.String()), true }
	case "qtype":
		return func(_ *dns.Query, t *transaction) ([]byte, bool) {
			return binary.BigEndian.AppendUint16(nil, uint16(t.typ)), true
		}
	case "protocol":
		return func(q *dns.Query, _ *transaction) ([]byte, bool) { return []byte(q.Network().String()), true }
	case "client_ip":
		return func(q *dns.Query, _ *transaction) ([]byte, bool) { return host(q.Peer) }
	case "client_port":
		return func(q *dns.Query, _ *transaction) ([]byte, bool) { return port(q.Peer) }
	case "server_ip":
		return func(q *dns.Query, _ *transaction) ([]byte, bool) { return host(q.Local) }
	case "server_port":
		return func(q *dns.Query, _ *transaction) ([]byte, bool) { return port(q.Local) }
	}
	return nil
}
