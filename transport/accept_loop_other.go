//go:build !linux

package transport

// An acceptLoop exists only on Linux. Elsewhere every connection gets a goroutine.
type acceptLoop struct{}

// A loopState is the part of a conn that the acceptLoop uses.
type loopState struct{}

func (*acceptLoop) wake() {}

func runAcceptLoop(*Listener) bool { return false }
