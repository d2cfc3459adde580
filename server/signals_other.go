//go:build !unix

package server

import "os"

// reloadSignals is empty where there are none: restart the server there. One
// that never comes keeps signal.Notify from passing on all of them.
func reloadSignals() []os.Signal { return []os.Signal{nil} }
