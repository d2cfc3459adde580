//go:build !linux

package transport

// A desk would accept connections: each is attended at once.
type desk struct{}

// A place would be a connection's at the desk.
type place struct{}

func (*desk) poke() {}

func desks(*Listener) bool { return false }
