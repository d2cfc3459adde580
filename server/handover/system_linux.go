package handover

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// peer returns the process ID and the user ID of the process at the other end.
func peer(c *net.UnixConn) (pid, uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *syscall.Ucred
	if e := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); e != nil {
		err = e
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading the credentials of the other process: %w", err)
	}
	return int(cred.Pid), int(cred.Uid), nil
}

// AwaitEnd blocks until a process has ended and the kernel has closed its files, EndTimeout at most. It returns at
// once if the process is not seen from here: 0, or one that has ended.
func AwaitEnd(pid int) {
	if pid <= 0 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)

	for until := time.Now().Add(EndTimeout); ; {
		left := time.Until(until)
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(left, 0)/time.Millisecond))
		if err != unix.EINTR {
			return
		}
	}
}

// rights returns the control message that passes a descriptor.
func rights(fd int) []byte { return syscall.UnixRights(fd) }

// received returns the files of a control message.
func received(oob []byte) (files []*os.File, err error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}
