//go:build unix

// Package processgroup runs commands in process groups of their own, so that a command can
// be killed with the processes that it has started. On Windows there are no such groups, and
// only the command is killed.
package processgroup

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// reapTimeout limits how long Kill reaps a group: the kernel may delay a process's end.
const reapTimeout = time.Second

// Set makes a command that has not started the leader of a process group. The end of its
// context kills the group.
func Set(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error {
		if err := syscall.Kill(-c.Process.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		} else if err != nil {
			return err
		}
		return nil
	}
}

// Exists reports whether a group has processes.
func Exists(pgid int) bool { return !errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH) }

// Terminate asks the processes of a group to end, by SIGTERM.
func Terminate(pgid int) { _ = syscall.Kill(-pgid, syscall.SIGTERM) }

// Kill kills the rest of a process group whose leader has ended. The kernel does not reuse
// the group's ID before the last member has ended. As process 1 of a container, this program
// is the parent of orphans and has to reap them.
func Kill(pgid int) {
	_ = syscall.Kill(-pgid, syscall.SIGKILL)
	for deadline := time.Now().Add(reapTimeout); time.Now().Before(deadline); {
		switch n, err := syscall.Wait4(-pgid, nil, syscall.WNOHANG, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no member is left, or all are children of other processes
			return
		case n == 0:
			time.Sleep(time.Millisecond)
		}
	}
}
