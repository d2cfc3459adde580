package server

import (
	"crypto/tls"
	"net/netip"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/transport"
)

// Unconnected returns a listener without a socket, for Options.Open: only the process itself
// can query its Port.
func Unconnected(address netip.AddrPort) Listener { return &unconnected{address: address} }

type unconnected struct {
	port    dns.Port
	address netip.AddrPort
}

func (l *unconnected) Port() *dns.Port               { return &l.port }
func (l *unconnected) Addr() netip.AddrPort          { return l.address }
func (*unconnected) Readers() int                    { return 1 }
func (*unconnected) SetLimits(transport.Limits) bool { return true }
func (*unconnected) SetTLS(func() *tls.Config)       {}
func (*unconnected) Serve()                          {}
func (l *unconnected) Stop()                         { l.port.StopParking() }
