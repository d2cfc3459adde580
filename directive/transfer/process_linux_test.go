package transfer_test

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the process when that of the test ends.
func endWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
