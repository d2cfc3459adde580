package capture

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ruleComment is in the comment of each of node-cache's iptables rules.
const ruleComment = "NodeLocal DNS Cache:"

// Cleanup removes what earlier processes and node-cache have left on the node: the
// interface or the addresses, and node-cache's rules in the tables of iptables-nft. It returns
// the objects that it has removed, and those that the operator has to look at. It fails if a process
// still serves the addresses. Only Interface, Addresses and Port of the options count.
func Cleanup(o Options) (removed, remaining []Leftover, err error) {
	r, err := openRoutes()
	if err != nil {
		return nil, nil, err
	}
	defer r.conn.Close()

	all, err := r.addresses()
	if err != nil {
		return nil, nil, err
	}
	l, exists, err := r.link(o.Interface)
	if err != nil {
		return nil, nil, err
	}

	ours := func(a address) bool {
		return slices.Contains(o.Addresses, a.ip) || a.own || exists && a.index == l.index && l.kind == "dummy"
	}

	// Nothing is removed while pods depend on it.
	for _, a := range all {
		if ours(a) && listens(netip.AddrPortFrom(a.ip, o.Port)) {
			return nil, nil, fmt.Errorf("a process serves %s: stop it first, or pods lose their DNS server",
				netip.AddrPortFrom(a.ip, o.Port))
		}
	}
	if instanceRuns(o.Interface) {
		return nil, nil, fmt.Errorf("an instance with the interface %s runs: stop it first", o.Interface)
	}

	if err := removeAll(o, nil); err != nil {
		return nil, nil, err
	}
	left, err := r.addresses()
	if err != nil {
		return nil, nil, err
	}

	for _, a := range all {
		if ours(a) && !slices.ContainsFunc(left, func(b address) bool { return b.ip == a.ip && b.index == a.index }) {
			removed = append(removed, Leftover("address "+a.ip.String()))
		}
	}

	rules, err := oldRules()
	if err == nil {
		err = rules.remove()
	}
	if err != nil {
		return removed, nil, fmt.Errorf("removing the iptables rules of node-cache: %w", err)
	}
	for _, rule := range rules {
		removed = append(removed, Leftover(rule.String()))
	}
	return removed, legacyTables(), nil
}

// warnLeftovers logs rules of node-cache that are left on the node.
func warnLeftovers(o Options) {
	rules, err := oldRules()
	if err != nil {
		o.Log.Debug("Rules of iptables cannot be listed", "error", err)
	}
	if len(rules) > 0 {
		o.Log.Warn("iptables rules of node-cache are on the node: if this process ends while they are there,"+
			" queries are not sent to the cluster's DNS servers; run seamark node cleanup while neither runs",
			"count", len(rules))
	}
}

// legacyTables returns a note about tables of iptables-legacy, which are not read.
func legacyTables() (notes []Leftover) {
	for file, program := range map[string]string{
		"/proc/thread-self/net/ip_tables_names":  "iptables-legacy",
		"/proc/thread-self/net/ip6_tables_names": "ip6tables-legacy",
	} {
		if text, err := os.ReadFile(file); err == nil && slices.Contains(strings.Fields(string(text)), "raw") {
			notes = append(notes, Leftover(fmt.Sprintf("there is a table raw of %s, which is not examined:"+
				" look for rules with %s -t raw -S | grep '%s' and delete them with -D",
				program, program, ruleComment)))
		}
	}
	return notes
}

// listens reports whether a socket receives UDP packets at exactly this address.
func listens(at netip.AddrPort) bool {
	file := "/proc/thread-self/net/udp"
	if at.Addr().Is6() {
		file = "/proc/thread-self/net/udp6"
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()

	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // sl local_address ...
		if len(fields) < 2 {
			continue
		}

		host, port, _ := strings.Cut(fields[1], ":")
		number, err := strconv.ParseUint(port, 16, 16)
		ip, hexErr := hex.DecodeString(host)
		if err != nil || hexErr != nil || len(ip)%4 != 0 {
			continue
		}

		// The kernel prints an address as words in the byte order of the machine.
		for word := range slices.Chunk(ip, 4) {
			binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
		}
		if addr, _ := netip.AddrFromSlice(ip); netip.AddrPortFrom(addr, uint16(number)) == at {
			return true
		}
	}
	return false
}

// An oldRule is a rule of node-cache in a table of iptables-nft.
type oldRule struct {
	family       uint8
	table, chain string
	handle       uint64
}

func (r oldRule) String() string {
	program := "iptables"
	if r.family == unix.NFPROTO_IPV6 {
		program = "ip6tables"
	}
	return fmt.Sprintf("%s rule %d of node-cache in table %s, chain %s", program, r.handle, r.table, r.chain)
}

type oldRuleList []oldRule

// oldRules lists the rules of node-cache.
func oldRules() (found oldRuleList, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	for _, family := range []uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		for _, name := range []string{"raw", "filter"} {
			_ = conn.SetDeadline(time.Now().Add(replyTimeout))
			rules := nftMessage(family, unix.NFT_MSG_GETRULE, netlink.Dump, func(e *netlink.AttributeEncoder) {
				e.String(unix.NFTA_RULE_TABLE, name)
			})
			replies, err := conn.Execute(rules)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return nil, err
			}
			for _, m := range replies {
				if rule, ok := parseOldRule(family, m.Data); ok {
					found = append(found, rule)
				}
			}
		}
	}
	return found, nil
}

func parseOldRule(family uint8, data []byte) (r oldRule, ok bool) {
	if len(data) < 4 || !bytes.Contains(data, []byte(ruleComment)) {
		return r, false
	}
	d, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return r, false
	}

	d.ByteOrder = binary.BigEndian
	r.family = family
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_RULE_TABLE:
			r.table = d.String()
		case unix.NFTA_RULE_CHAIN:
			r.chain = d.String()
		case unix.NFTA_RULE_HANDLE:
			r.handle = d.Uint64()
		}
	}
	return r, d.Err() == nil && r.handle != 0
}

// remove removes the rules, all or none.
func (rules oldRuleList) remove() error {
	if len(rules) == 0 {
		return nil
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer conn.Close()

	var messages []netlink.Message
	for _, r := range rules {
		request := func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_RULE_TABLE, r.table)
			e.String(unix.NFTA_RULE_CHAIN, r.chain)
			e.Uint64(unix.NFTA_RULE_HANDLE, r.handle)
		}
		messages = append(messages, nftMessage(r.family, unix.NFT_MSG_DELRULE, netlink.Acknowledge, request))
	}
	return needsAdmin(nftBatch(conn, messages...))
}
