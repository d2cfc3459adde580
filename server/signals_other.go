//go:build !unix

package server

import "os"

// reloadSignals returns nil signals: there are none to reload on. Notify without
// any argument would catch all signals.
func reloadSignals() []os.Signal { return []os.Signal{nil} }

// raise ends the process.
func raise(os.Signal) { os.Exit(1) }
