//go:build !unix

package processgroup

import "os/exec"

// Set does nothing: there are no process groups. The end of the command's context kills the
// command alone.
func Set(*exec.Cmd) {}

// Kill does nothing.
func Kill(int) {}

// Terminate does nothing.
func Terminate(int) {}

// Exists reports false: there are no process groups.
func Exists(int) bool { return false }
