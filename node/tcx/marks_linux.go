package tcx

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// marks are abstract unix sockets in the node's network namespace whose names have the
// numbers of this process's programs. By them another instance, during an upgrade,
// recognizes the programs of this one. The kernel removes them with the process.
type marks []int

// mark marks the programs as the programs of an instance of Seamark.
func mark(p *program) (m marks, err error) {
	for _, one := range []*ebpf.Program{p.query, p.reply} {
		number, err := id(one)
		if err != nil {
			return m, fmt.Errorf("reading the number of a BPF program: %w", err)
		}
		fd, err := bind(number)
		if err != nil {
			return m, fmt.Errorf("marking the BPF program %d: %w", number, err)
		}
		m = append(m, fd)
	}
	return m, nil
}

// bind returns a socket with the name for a program.
func bind(number ebpf.ProgramID) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@seamark-capture-%d", number)}); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// marked reports whether a program belongs to a running instance.
func marked(number ebpf.ProgramID) bool {
	fd, err := bind(number)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.EADDRINUSE)
}

func (m marks) close() {
	for _, fd := range m {
		_ = unix.Close(fd)
	}
}
