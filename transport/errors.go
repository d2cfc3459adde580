package transport

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"syscall"
)

// A bindError is an error of opening an address, with advice for the operator.
type bindError struct {
	text  string
	cause error
}

func (e *bindError) Error() string { return e.text }
func (e *bindError) Unwrap() error { return e.cause }

// explain returns err with its cause and advice for the operator.
func explain(proto string, addr netip.AddrPort, err error) error {
	var why string
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		why = "address in use: another process is listening there; stop it, or choose another address with bind " +
			"or another port in the Corefile (-p is for blocks that name none)"
	case errors.Is(err, fs.ErrPermission):
		why = "permission denied: ports below 1024 need root or CAP_NET_BIND_SERVICE, which a process of another " +
			"user gets from the file capability of its binary (setcap cap_net_bind_service=+ep), or a lower sysctl " +
			"net.ipv4.ip_unprivileged_port_start; or choose another port, for example 1053, in the Corefile (-p is " +
			"for blocks that name none)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		why = "no interface of this machine has that address; choose another one with bind"
	case errors.Is(err, syscall.EAFNOSUPPORT):
		why = "this machine has no IPv6; choose an IPv4 address with bind"
	case addr.Addr().Is6() && addr.Addr().IsLinkLocalUnicast() && addr.Addr().Zone() == "":
		why = "a link-local address needs its interface, as in fe80::1%eth0"
	default:
		return fmt.Errorf("listen %s %s: %w", proto, addr, err)
	}
	return &bindError{"listen " + proto + " " + addr.String() + ": " + why, err}
}
