//go:build !linux

package transport

// An acceptLoop exists only on Linux. Elsewhere every connection has a goroutine.
type acceptLoop struct{}

func openAcceptLoop(*Listener) *acceptLoop { return nil }

func (*acceptLoop) run()             {}
func (*acceptLoop) await(*conn) bool { return false }
func (*acceptLoop) wake()            {}
func (*acceptLoop) close()           {}
