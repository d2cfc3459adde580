//go:build !unix

package healthz

import "os/exec"

// setProcessGroup does nothing: there are no process groups. The end of its context
// kills the command alone.
func setProcessGroup(*exec.Cmd) {}

func killProcessGroup(int) {}
