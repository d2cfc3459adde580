package handover

import (
	"fmt"
	"net"
	"os"
	"syscall"
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
