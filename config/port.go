package config

import (
	"net/netip"

	"github.com/seamark/seamark/dns"
)

// A Port is a listening address of the server, for directives that query the server
// itself.
type Port struct {
	Name    string         // as metrics name it: "dns://:53"
	Address netip.AddrPort // that the socket has
	Port    *dns.Port
}
