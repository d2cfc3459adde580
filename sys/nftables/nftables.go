// Package nftables adds addresses to sets of nftables, with timeouts. The directive nftset calls it, and on
// a node the supervisor does so for the process that answers queries, which lacks the privileges.
//
// A Kernel writes. What it adds it never removes: an element ends with its timeout. It leaves elements
// without a timeout as they are, since somebody else has added them.
package nftables

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// MaxElements is the largest number of elements that Add takes at once.
const MaxElements = 128

// MaxTimeout is the longest timeout of an element.
const MaxTimeout = 8 * 24 * time.Hour

// A Set names a set of nftables.
type Set struct{ Family, Table, Name string }

func (s Set) String() string { return s.Family + " " + s.Table + " " + s.Name }

// Families returns the families whose tables may have sets of addresses.
func Families() []string { return []string{"inet", "ip", "ip6", "bridge", "netdev"} }

// maxName is the longest name of a table or set (NFT_NAME_MAXLEN with the final zero).
const maxName = 255

// Check returns an error if no set can have this name.
func (s Set) Check() error {
	if _, ok := families[s.Family]; !ok {
		return fmt.Errorf("want family %s, got %q", strings.Join(Families(), ", "), s.Family)
	}
	for _, name := range []string{s.Table, s.Name} {
		if name == "" || len(name) > maxName || strings.ContainsRune(name, 0) {
			return fmt.Errorf("want a name of 1 to %d bytes, got %q", maxName, name)
		}
	}
	return nil
}

// families are the numbers of the families in netlink messages (NFPROTO_*).
var families = map[string]uint8{"inet": 1, "ip": 2, "netdev": 5, "bridge": 7, "ip6": 10}

// A Key is what the elements of a set are.
type Key uint8

const (
	NoKey Key = iota
	IPv4
	IPv6
	ClientIPv4 // the address of the client, and the one that it may reach
	ClientIPv6
)

// Takes reports whether elements with this key are made of such an address.
func (k Key) Takes(ip netip.Addr) bool {
	return ip.Is4() && (k == IPv4 || k == ClientIPv4) || ip.Is6() && (k == IPv6 || k == ClientIPv6)
}

// ByClient reports whether the address of the client is in the elements.
func (k Key) ByClient() bool { return k == ClientIPv4 || k == ClientIPv6 }

// An Element is an address for a set.
type Element struct {
	Set    Set
	Client netip.Addr // zero unless the key of the set has the address of the client
	IP     netip.Addr
	// Need is how long the element has to stay. If it would not, it is written with Timeout, which is not
	// shorter.
	Need, Timeout time.Duration
	// Renew says that the element is probably there: then it is cheaper to look first.
	Renew bool
}

// A Result says what has become of an element: why it was not added, or for how long it stays at least.
type Result struct {
	Problem Problem
	Left    time.Duration
}

// A Problem is a reason why an element was not added; 0 is none. It is an error, or has the number of one of
// the system.
type Problem uint16

const (
	None         Problem = iota
	NoSet                // the table or the set does not exist
	Full                 // the set has no room
	WrongKey             // the elements are no addresses
	WrongFamily          // the elements are addresses of the other family
	NoTimeout            // elements cannot have timeouts
	Interval             // elements are ranges
	IsMap                // elements have values
	Constant             // elements cannot be added
	NoPermission         // the process lacks CAP_NET_ADMIN
	NoNftables           // the kernel has no nftables, or the system is not Linux
	NotListed            // the supervisor was started without the set
	Gone                 // the supervisor does not answer
	firstErrno
)

// problemOf returns the Problem of an error of the system.
func problemOf(e syscall.Errno) Problem {
	return firstErrno + Problem(min(e, math.MaxUint16-syscall.Errno(firstErrno)))
}

// problems has the texts of the Problems before firstErrno.
var problems = [firstErrno]string{
	None:  "none",
	NoSet: "the set does not exist",
	Full:  "the set is full: make it with a larger size",
	WrongKey: "the set is not one of addresses: make it with type ipv4_addr, type ipv6_addr, " +
		"or two of the same joined by a dot, for the client and the address",
	WrongFamily:  "the set does not take addresses of this family",
	NoTimeout:    "the set has no flag timeout: make it with flags timeout",
	Interval:     "the set has the flag interval: make one of single addresses",
	IsMap:        "the set is a map",
	Constant:     "the set has the flag constant",
	NoPermission: "the process needs the capability NET_ADMIN, or another process owns the table",
	NoNftables:   "the kernel has no nftables",
	NotListed:    "the supervisor may not write to the set: name it in -nftset of seamark node",
	Gone:         "the supervisor does not answer",
}

func (p Problem) Error() string {
	if p < firstErrno {
		return problems[p]
	}
	return "the kernel refuses the element: " + syscall.Errno(p-firstErrno).Error()
}
