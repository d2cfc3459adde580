//go:build !unix

package server

import "os"

// reloadSignals returns a signal that is never sent. Notify without signals would
// catch all of them.
func reloadSignals() []os.Signal { return []os.Signal{nil} }

// raise ends the process.
func raise(os.Signal) { os.Exit(1) }
