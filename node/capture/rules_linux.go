package capture

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// tablePrefix begins the name of each process's table. The rest is random: while a
	// process replaces another one, both have a table.
	tablePrefix = "seamark-node-"
	// ownerFlag is NFT_TABLE_F_OWNER (Linux 5.12): only the socket that has made the table
	// may change it, and the kernel removes it with the socket.
	ownerFlag = 0x2
	// rawPriority precedes connection tracking.
	rawPriority = -300
	// latePriority follows the rules of others that drop packets.
	latePriority = 1000
	// replyTimeout is how long the kernel may take; it answers while it handles a request.
	replyTimeout = 5 * time.Second
)

// errNoOwner reports that the kernel cannot remove a table with the process.
var errNoOwner = errors.New("the kernel has no nftables tables with an owner (Linux 5.12):" +
	" without them, rules would outlive this process and stop DNS on the node")

// errRules reports that the kernel has nftables but not all expressions.
var errRules = errors.New("adding rules to the nftables table")

// An exemption is the part of the packets of the local addresses that is exempt from connection
// tracking.
type exemption int

const (
	exemptNone exemption = iota
	// exemptReplies exempts replies from ClusterIPs, and all packets of other addresses. Queries
	// to a ClusterIP follow kube-proxy's rules. If a client sends them from the port of an earlier
	// query that still waits for the server, the reply to that one looks to connection tracking
	// like one of another connection, and would get another port.
	exemptReplies
	exemptAll
)

// A table is the nftables table of this process. It exists as long as its socket is open.
type table struct {
	conn   *netlink.Conn
	name   string
	counts bool // it has counters of packets to and from ClusterIPs
}

// addTable adds a table in which packets of the local addresses are exempt from connection
// tracking: with exemptAll those of ClusterIPs as their states say. It counts the packets of
// ClusterIPs then, unless the kernel cannot.
func addTable(o Options, e exemption, watched map[netip.Addr]*watch) (*table, error) {
	if e == exemptReplies {
		watched = nil
	}

	t, err := tryTable(o, e, watched)
	if len(watched) > 0 && errors.Is(err, errRules) {
		if uncounted, failed := tryTable(o, e, nil); failed == nil {
			o.Log.Warn("Packets of pods are not counted:"+
				" if rules of the node drop them, queries to a ClusterIP time out", "error", err)
			return uncounted, nil
		}
	}
	return t, err
}

// tryTable adds a table, with counters unless watched is empty.
func tryTable(o Options, e exemption, watched map[netip.Addr]*watch) (_ *table, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, fmt.Errorf("the kernel has no nftables: opening a netlink socket: %w", err)
	case err != nil:
		return nil, fmt.Errorf("opening a netlink socket for nftables: %w", err)
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()

	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	t := &table{conn, tablePrefix + hex.EncodeToString(random), len(watched) > 0}

	// Alone, so that an error is about the owner and not about a rule.
	err = t.batch(t.message(unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_TABLE_NAME, t.name)
		e.Uint32(unix.NFTA_TABLE_FLAGS, ownerFlag)
	}))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL):
		return nil, errNoOwner
	case err != nil:
		return nil, fmt.Errorf("adding the nftables table %s: %w", t.name, needsAdmin(err))
	}

	if err := t.batch(t.rules(o, e, watched)...); err != nil {
		return nil, fmt.Errorf("%w %s: %w", errRules, t.name, err)
	}
	return t, nil
}

// rules returns the chains, counters and rules of the table.
func (t *table) rules(o Options, e exemption, watched map[netip.Addr]*watch) []netlink.Message {
	all := []netlink.Message{
		t.chain("prerouting", unix.NF_INET_PRE_ROUTING, rawPriority),
		t.chain("output", unix.NF_INET_LOCAL_OUT, rawPriority),
	}
	if t.counts {
		for ip := range watched {
			for _, name := range []string{queriesSent, queriesReceived, repliesSent, repliesReceived} {
				all = append(all, t.counter(name+ip.String()))
			}
		}
		all = append(all,
			t.chain("input", unix.NF_INET_LOCAL_IN, latePriority),
			t.chain("postrouting", unix.NF_INET_POST_ROUTING, latePriority))
	}

	for _, a := range o.Addresses {
		w := watched[a]
		if w != nil {
			all = append(all, t.watch(a, o.Port, w.state)...)
		}

		for _, protocol := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			if e == exemptAll && (w == nil || w.state == exempting) || !slices.Contains(o.ClusterIPs, a) {
				all = append(all,
					t.rule("prerouting", a, protocol, o.Port, true, notrack),
					t.rule("output", a, protocol, o.Port, true, notrack))
			}
			all = append(all, t.rule("output", a, protocol, o.Port, false, notrack))
		}

		all = append(all,
			t.rule("output", a, unix.IPPROTO_TCP, o.HealthPort, true, notrack),
			t.rule("output", a, unix.IPPROTO_TCP, o.HealthPort, false, notrack))
	}
	return all
}

// watch returns the rules that count packets of a ClusterIP, and the one that exempts the query
// of a test.
func (t *table) watch(a netip.Addr, port uint16, s state) []netlink.Message {
	from, to := elsewhere(unix.NFT_META_IIFTYPE), elsewhere(unix.NFT_META_OIFTYPE)
	messages := []netlink.Message{
		t.rule("input", a, unix.IPPROTO_UDP, port, true, from, count(queriesReceived+a.String())),
		t.rule("output", a, unix.IPPROTO_UDP, port, false, to, count(repliesSent+a.String())),
		t.rule("postrouting", a, unix.IPPROTO_UDP, port, false, to, count(repliesReceived+a.String())),
	}
	switch sent := count(queriesSent + a.String()); s {
	case exempting:
		messages = append(messages, t.rule("prerouting", a, unix.IPPROTO_UDP, port, true, from, sent))
	case probing:
		messages = append(messages, t.rule("prerouting", a, unix.IPPROTO_UDP, port, true, from, once, sent, notrack))
	}
	return messages
}

// close removes the table.
func (t *table) close() error {
	err := t.batch(t.message(unix.NFT_MSG_DELTABLE, 0, t.named))
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return errors.Join(err, t.conn.Close())
}

// named adds the name of the table to a request.
func (t *table) named(e *netlink.AttributeEncoder) { e.String(unix.NFTA_TABLE_NAME, t.name) }

// exists reports whether the table exists.
func (t *table) exists() (bool, error) {
	m := t.message(unix.NFT_MSG_GETTABLE, 0, t.named)
	_ = t.conn.SetDeadline(time.Now().Add(replyTimeout))
	m.Header.Flags &^= netlink.Acknowledge
	_, err := t.conn.Execute(m)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// batch sends messages that take effect together or not at all.
func (t *table) batch(messages ...netlink.Message) error { return nftBatch(t.conn, messages...) }

func nftBatch(conn *netlink.Conn, messages ...netlink.Message) error {
	bound := func(kind netlink.HeaderType) netlink.Message {
		data := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
		return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request}, Data: data}
	}

	all := append([]netlink.Message{bound(unix.NFNL_MSG_BATCH_BEGIN)}, messages...)
	_ = conn.SetDeadline(time.Now().Add(replyTimeout))
	if _, err := conn.SendMessages(append(all, bound(unix.NFNL_MSG_BATCH_END))); err != nil {
		return err
	}

	for range messages { // each is acknowledged
		if _, err := conn.Receive(); err != nil {
			return err
		}
	}
	return nil
}

// message returns a request for tables of both address families.
func (t *table) message(kind int, flags netlink.HeaderFlags, add func(*netlink.AttributeEncoder)) netlink.Message {
	return nftMessage(unix.NFPROTO_INET, kind, netlink.Acknowledge|flags, add)
}

func nftMessage(
	family uint8, kind int, flags netlink.HeaderFlags, add func(*netlink.AttributeEncoder),
) netlink.Message {
	kind |= unix.NFNL_SUBSYS_NFTABLES << 8
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags},
		Data: attributes([]byte{family, unix.NFNETLINK_V0, 0, 0}, func(e *netlink.AttributeEncoder) {
			e.ByteOrder = binary.BigEndian
			add(e)
		}),
	}
}

func (t *table) chain(name string, hook uint32, priority int32) netlink.Message {
	return t.message(unix.NFT_MSG_NEWCHAIN, netlink.Create, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_CHAIN_TABLE, t.name)
		e.String(unix.NFTA_CHAIN_NAME, name)
		e.String(unix.NFTA_CHAIN_TYPE, "filter")
		e.Nested(unix.NFTA_CHAIN_HOOK, func(n *netlink.AttributeEncoder) error {
			n.Uint32(unix.NFTA_HOOK_HOOKNUM, hook)
			n.Int32(unix.NFTA_HOOK_PRIORITY, priority)
			return nil
		})
	})
}

// rule returns a rule for packets to (or from) an address and a port.
func (t *table) rule(
	chain string, a netip.Addr, protocol uint8, port uint16, to bool, more ...func(*netlink.AttributeEncoder),
) netlink.Message {
	family, offset := uint8(unix.NFPROTO_IPV4), uint32(12)
	if a.Is6() {
		family, offset = unix.NFPROTO_IPV6, 8
	}
	portOffset := uint32(0)
	if to {
		offset += uint32(a.BitLen() / 8)
		portOffset = 2
	}

	return t.message(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_RULE_TABLE, t.name)
		e.String(unix.NFTA_RULE_CHAIN, chain)
		e.Nested(unix.NFTA_RULE_EXPRESSIONS, func(n *netlink.AttributeEncoder) error {
			meta(n, unix.NFT_META_NFPROTO, unix.NFT_CMP_EQ, []byte{family})
			meta(n, unix.NFT_META_L4PROTO, unix.NFT_CMP_EQ, []byte{protocol})
			payload(n, unix.NFT_PAYLOAD_NETWORK_HEADER, offset, a.AsSlice())
			payload(n, unix.NFT_PAYLOAD_TRANSPORT_HEADER, portOffset, binary.BigEndian.AppendUint16(nil, port))
			for _, add := range more {
				add(n)
			}
			return nil
		})
	})
}

// notrack exempts the packet from connection tracking.
func notrack(e *netlink.AttributeEncoder) {
	expression(e, "notrack", func(*netlink.AttributeEncoder) {})
}

// count counts the packet.
func count(name string) func(*netlink.AttributeEncoder) {
	return func(e *netlink.AttributeEncoder) {
		expression(e, "objref", func(d *netlink.AttributeEncoder) {
			d.Uint32(unix.NFTA_OBJREF_IMM_TYPE, objectCounter)
			d.String(unix.NFTA_OBJREF_IMM_NAME, name)
		})
	}
}

// once lets the rule continue for one packet in testRate, and the first one at once.
func once(e *netlink.AttributeEncoder) {
	expression(e, "limit", func(d *netlink.AttributeEncoder) {
		d.Uint64(unix.NFTA_LIMIT_RATE, 1)
		d.Uint64(unix.NFTA_LIMIT_UNIT, uint64(testRate/time.Second))
		d.Uint32(unix.NFTA_LIMIT_BURST, 1)
	})
}

// elsewhere lets the rule continue unless the interface is lo.
func elsewhere(key uint32) func(*netlink.AttributeEncoder) {
	return func(e *netlink.AttributeEncoder) {
		meta(e, key, unix.NFT_CMP_NEQ, binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_LOOPBACK))
	}
}

// meta adds expressions that compare a property of the packet.
func meta(e *netlink.AttributeEncoder, key, operator uint32, value []byte) {
	expression(e, "meta", func(d *netlink.AttributeEncoder) {
		d.Uint32(unix.NFTA_META_KEY, key)
		d.Uint32(unix.NFTA_META_DREG, unix.NFT_REG_1)
	})
	compare(e, operator, value)
}

// payload adds expressions that compare bytes of a header.
func payload(e *netlink.AttributeEncoder, base, offset uint32, value []byte) {
	expression(e, "payload", func(d *netlink.AttributeEncoder) {
		d.Uint32(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1)
		d.Uint32(unix.NFTA_PAYLOAD_BASE, base)
		d.Uint32(unix.NFTA_PAYLOAD_OFFSET, offset)
		d.Uint32(unix.NFTA_PAYLOAD_LEN, uint32(len(value)))
	})
	compare(e, unix.NFT_CMP_EQ, value)
}

func compare(e *netlink.AttributeEncoder, operator uint32, value []byte) {
	expression(e, "cmp", func(d *netlink.AttributeEncoder) {
		d.Uint32(unix.NFTA_CMP_SREG, unix.NFT_REG_1)
		d.Uint32(unix.NFTA_CMP_OP, operator)
		d.Nested(unix.NFTA_CMP_DATA, func(v *netlink.AttributeEncoder) error {
			v.Bytes(unix.NFTA_DATA_VALUE, value)
			return nil
		})
	})
}

func expression(e *netlink.AttributeEncoder, name string, data func(*netlink.AttributeEncoder)) {
	e.Nested(unix.NFTA_LIST_ELEM, func(n *netlink.AttributeEncoder) error {
		n.String(unix.NFTA_EXPR_NAME, name)
		n.Nested(unix.NFTA_EXPR_DATA, func(d *netlink.AttributeEncoder) error {
			data(d)
			return nil
		})
		return nil
	})
}
