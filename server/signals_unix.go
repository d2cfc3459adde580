//go:build unix

package server

import (
	"os"
	"syscall"
)

func reloadSignals() []os.Signal { return []os.Signal{syscall.SIGHUP, syscall.SIGUSR1} }
