// Package tcx captures DNS queries of pods on their way into the node: BPF programs at the
// host's side of each pod's interface (by TCX, Linux 6.6, or as filters of the qdisc clsact) replace the address of the
// cluster's DNS service by an alias, a private address of the node at which the server
// listens, and do the reverse in the replies. The command node calls it; package capture
// adds the aliases to the node and exempts them from connection tracking.
//
// Open attaches the programs, Enable lets them capture queries. They do so while
//
//   - a Beat has stamped within the last 1.5 s, so that a process that is stopped, or
//     killed while another one holds the Capture, does not collect queries, and
//   - a socket of the node receives packets to the alias.
//
// Otherwise, and once the process has ended, packets pass unchanged: kube-proxy's rules send
// them to the cluster's DNS servers, on the same client sockets. The kernel removes programs
// of TCX with the process. Filters stay and do nothing; the next process or RemoveLeftovers
// removes them. A TCP connection stays with the server that has accepted it.
//
// If the process that answers queries stores its replies (Replies), the programs repeat them to
// equal queries for the time that the process allows, or until the data change that they were made from.
//
// The programs keep no state of connections. Packets with IP options or VLAN tags, IPv6
// extension headers and fragments of queries pass unchanged; fragments of replies do not
// need to.
package tcx

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

//go:generate program/build object

// A Pair is an address of the cluster's DNS service and the alias that replaces it. Both
// are of the same family.
type Pair struct{ Cluster, Alias netip.Addr }

// MaxPairs is the largest number of pairs of a family, PAIRS of program/capture.c.
const MaxPairs = 4

// Options configure a Capture.
type Options struct {
	Pairs []Pair
	Port  uint16 // of DNS, UDP and TCP
	// Interfaces are comma-separated patterns of path.Match for names of interfaces. If
	// empty, all veth interfaces count whose peer is in another network namespace.
	Interfaces string
	// Clsact attaches the programs as filters of the qdisc clsact, for kernels without TCX.
	Clsact bool
	// Foreign makes it capture on interfaces that have BPF programs of others, too.
	Foreign bool
	Times   Times
	Log     *slog.Logger
}

// Times are durations that tests change. Zero means the default.
type Times struct {
	Stale   time.Duration // since the last stamp: the worker is dead, queries pass unchanged (1.5 s)
	Silence time.Duration // since a query without a reply: replies do not pass (1 s)
	Forget  time.Duration // since a query without a reply: it counts no longer (30 s)
	Reached time.Duration // since a reply of the server: replies to that pod may be repeated (10 s)
	Retry   time.Duration // until an interface is tried again, the first time (5 s)
	Count   time.Duration // until repeated replies are in the metrics (1 s)
}

// orDefaults returns the times with defaults in place of zeros.
func (t Times) orDefaults() Times {
	return Times{
		Stale:   cmp.Or(t.Stale, 1500*time.Millisecond),
		Silence: cmp.Or(t.Silence, time.Second),
		Forget:  cmp.Or(t.Forget, 30*time.Second),
		Reached: cmp.Or(t.Reached, 10*time.Second),
		Retry:   cmp.Or(t.Retry, 5*time.Second),
		Count:   cmp.Or(t.Count, time.Second),
	}
}

// Counters are numbers of a Capture.
type Counters struct {
	Queries, Replies   uint64 // rewritten packets
	Interfaces, Paused uint64 // captured now, and those among them to which replies of a family do not pass
}

// A Support is the result of Probe.
type Support int

const (
	Unknown     Support = iota // it may work; the error has the reason for the doubt
	Supported                  // Open will work
	Unsupported                // the error names the missing feature
)

const (
	// BeatInterval is the time between two stamps of a worker.
	BeatInterval = 250 * time.Millisecond
	// retryLast is the longest time until an interface to which replies of a family did not
	// pass is tried again, with one query. The first time is Times.Retry.
	retryLast = 5 * time.Minute
)

// AliasFor returns the n-th default alias for an address of the same family. They are
// link-local, or of a unique local prefix that spells the program's name.
func AliasFor(cluster netip.Addr, n int) netip.Addr {
	last := byte(11 + n)
	if cluster.Is4() {
		return netip.AddrFrom4([4]byte{169, 254, 20, last})
	}
	return netip.AddrFrom16([16]byte{0xfd, 's', 'e', 'a', 'm', 'a', 'r', 'k', 14: 0, 15: last})
}

// check returns the first mistake in the options.
func (o Options) check() error {
	count := map[bool]int{}
	for _, p := range o.Pairs {
		if p.Cluster.Is4() != p.Alias.Is4() || !p.Cluster.IsValid() || !p.Alias.IsValid() {
			return fmt.Errorf("alias %s for %s: want an address of the same family", p.Alias, p.Cluster)
		}
		count[p.Cluster.Is4()]++
	}
	if count[true] > MaxPairs || count[false] > MaxPairs || len(o.Pairs) == 0 {
		return fmt.Errorf("want 1 to %d cluster addresses of each family to capture, got %d of IPv4 and %d of IPv6",
			MaxPairs, count[true], count[false])
	}
	return nil
}
