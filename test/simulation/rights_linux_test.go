package simulation

import "golang.org/x/sys/unix"

// duplicate returns a control message with a copy of the file in another one.
func duplicate(oob []byte) ([]byte, error) {
	fds, err := rights(oob)
	if err != nil || len(fds) == 0 {
		return nil, err
	}
	fd, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return unix.UnixRights(fd), nil
}

// rights returns the descriptors in a control message.
func rights(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	return unix.ParseUnixRights(&messages[0])
}

// closeFiles closes the file in a control message.
func closeFiles(oob []byte) {
	fds, _ := rights(oob)
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
