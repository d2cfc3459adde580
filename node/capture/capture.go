// Package capture makes a node's packets for local addresses reach this process: it adds
// the addresses to an interface of its own, and exempts their DNS packets from connection
// tracking, and so from kube-proxy's rules, with an nftables table that the kernel removes
// with the process. The command node calls it. It changes nothing else on the node.
//
// Without the rules a query to a ClusterIP follows kube-proxy's rules to the cluster's DNS
// servers, even if the address is on the node. So a process that is killed leaves nothing
// that breaks DNS. The rules are also changed, ClusterIP by ClusterIP, while rules of others
// drop the packets of pods.
package capture

import (
	"log/slog"
	"net/netip"
	"time"
)

// The kinds of errors, as node-cache's metric names them.
const (
	ErrorRules          = "iptables"
	ErrorInterfaceAdd   = "interface_add"
	ErrorInterfaceCheck = "interface_check"
)

// Options configure a Capture.
type Options struct {
	Interface       string // name of the dummy interface
	Addresses       []netip.Addr
	ClusterIPs      []netip.Addr // those of Addresses that kube-proxy has rules for
	Port            uint16       // of DNS, UDP and TCP
	HealthPort      uint16       // of the health page, TCP
	SetInterface    bool         // add the addresses
	SetRules        bool         // exempt the packets from connection tracking
	KeepInterface   bool         // leave the interface and the addresses at the end
	Interval        time.Duration
	Pause           time.Duration // until rules that dropped packets are tested, the first time; 5 s if zero
	Log             *slog.Logger
	CountSetupError func(kind string)
}

// A Leftover describes, for the operator, an object that a process has left on the node.
type Leftover string
