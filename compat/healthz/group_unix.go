//go:build unix

package healthz

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// ownGroup puts a command that has not started into a process group of its own,
// all of which the end of its context kills.
func ownGroup(c *exec.Cmd) {
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

// endGroup kills who is left in a process group whose leader has ended. The
// group's number belongs to nobody else: the kernel gives it away anew only when
// the last member is gone, and has then a whole round of numbers to go. As process 1
// of a container this program inherits the members, and has to take their results,
// since they would stay as zombies.
func endGroup(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for within := time.Now().Add(lastWords); time.Now().Before(within); {
		switch n, err := syscall.Wait4(-pid, nil, syscall.WNOHANG, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // nobody is left, or all of them are somebody else's
			return
		case n == 0:
			time.Sleep(time.Millisecond)
		}
	}
}
