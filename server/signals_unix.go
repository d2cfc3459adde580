//go:build unix

package server

import (
	"os"
	"syscall"
)

func reloadSignals() []os.Signal { return []os.Signal{syscall.SIGHUP, syscall.SIGUSR1} }

// raise ends the process with a signal's default effect.
func raise(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), number)
	}
	select {} // until the signal arrives
}
