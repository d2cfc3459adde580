//go:build !unix

package cmd_test

import (
	"net"
	"os"
	"syscall"
)

// reloadSignals returns the signal for a reload, twice.
func reloadSignals() [2]os.Signal { return [2]os.Signal{syscall.SIGHUP, syscall.SIGHUP} }

// closedByServer reports that the server has not closed the connection: the query shows it.
func closedByServer(*net.TCPConn) bool { return false }
