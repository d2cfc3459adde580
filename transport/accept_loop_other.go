//go:build !linux

package transport

// A desk would accept connections: each is attended at once.
type acceptLoop struct{}

// A place would be a connection's at the desk.
type loopState struct{}

func (*acceptLoop) poke() {}

func runAcceptLoop(*Listener) bool { return false }
