//go:build !linux

package transport

// An overload limits the clients that send most, on Linux only.
type overload struct{}
