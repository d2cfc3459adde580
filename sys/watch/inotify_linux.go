package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A descriptor identifies a watched inode.
type descriptor int32

// changes are the events of a watch.
const changes = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_DELETE_SELF |
	unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_MOVE_SELF

// inotify is an instance of inotify(7).
type inotify struct {
	fd     int
	file   *os.File // of fd
	buffer []byte
}

func openKernel() (kernel, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1 (see fs.inotify.max_user_instances): %w", err)
	}
	return &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), buffer: make([]byte, 16<<10)}, nil
}

func (n *inotify) close() { _ = n.file.Close() }

func (n *inotify) add(path string) (descriptor, error) {
	of, err := unix.InotifyAddWatch(n.fd, path, changes)
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w: fs.inotify.max_user_watches", errLimit)
	}
	return descriptor(of), err
}

// remove fails if the file has been removed.
func (n *inotify) remove(of descriptor) { _, _ = unix.InotifyRmWatch(n.fd, uint32(of)) }

func (n *inotify) read() ([]event, error) {
	size, err := n.file.Read(n.buffer)
	if err != nil {
		return nil, err
	}
	return parseEvents(n.buffer[:size]), nil
}

// parseEvents reads structs inotify_event: the descriptor, the mask, a cookie, the length of the name,
// and the name, which zeros pad.
func parseEvents(b []byte) (events []event) {
	for len(b) >= unix.SizeofInotifyEvent {
		of, mask := descriptor(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		events = append(events, event{
			of:   of,
			name: strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00"),
			gone: mask&unix.IN_IGNORED != 0,
			lost: mask&unix.IN_Q_OVERFLOW != 0,
		})
		b = b[end:]
	}
	return events
}
