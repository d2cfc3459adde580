package nftables

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Kernel writes to the sets of one network namespace: that of the thread that has called Open. Its
// methods are safe for concurrent use.
type Kernel struct {
	mu   sync.Mutex // of the socket
	fd   int
	port uint32 // the address of the socket
	seq  uint32 // of the last message
	buf  []byte // for replies

	changes atomic.Uint64
	events  *os.File
	done    chan struct{}
}

// receiveBuffer is the size of the receive buffer. The kernel needs less than a kilobyte for an error, and
// a transaction has two messages for each element.
const receiveBuffer = 1 << 20

// Open opens sockets to the kernel. changed, which may be nil, is called after each change of Changes. An
// error is a Problem.
func Open(changed func()) (*Kernel, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, explain(asErrno(err))
	}
	k := &Kernel{fd: fd, buf: make([]byte, 64<<10), done: make(chan struct{})}
	if err := k.open(); err != nil {
		_ = unix.Close(fd)
		return nil, explain(asErrno(err))
	}

	go func() {
		defer close(k.done)
		k.follow(changed)
	}()
	return k, nil
}

// open prepares the socket for writing, and opens the one for events.
func (k *Kernel) open() error {
	err := unix.Bind(k.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err != nil {
		return err
	}
	self, err := unix.Getsockname(k.fd)
	if err != nil {
		return err
	}
	k.port = self.(*unix.SockaddrNetlink).Pid

	// Without CAP_NET_ADMIN nothing can be written, so that the smaller buffer is enough.
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	_ = unix.SetsockoptInt(k.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)

	k.events, err = openEvents()
	return err
}

// Close closes the sockets.
func (k *Kernel) Close() {
	_ = k.events.Close()
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = unix.Close(k.fd)
	k.fd = -1
}

// Inspect returns the key of a set, or why elements cannot be added to it.
func (k *Kernel) Inspect(s Set) (Key, Problem) {
	var flags, kind uint32
	err := k.ask(unix.NFT_MSG_GETSET, s, func(b *buffer) {
		b.text(unix.NFTA_SET_TABLE, s.Table)
		b.text(unix.NFTA_SET_NAME, s.Name)
	}, func(value uint16, data []byte) {
		switch {
		case len(data) != 4:
		case value == unix.NFTA_SET_FLAGS:
			flags = binary.BigEndian.Uint32(data)
		case value == unix.NFTA_SET_KEY_TYPE:
			kind = binary.BigEndian.Uint32(data)
		}
	})
	if err != 0 {
		return NoKey, explain(err)
	}

	key, ok := keys[kind]
	switch {
	case flags&unix.NFT_SET_MAP != 0:
		return NoKey, IsMap
	case flags&unix.NFT_SET_CONSTANT != 0:
		return NoKey, Constant
	case flags&unix.NFT_SET_INTERVAL != 0:
		return NoKey, Interval
	case !ok:
		return NoKey, WrongKey
	case flags&unix.NFT_SET_TIMEOUT == 0:
		return NoKey, NoTimeout
	}
	return key, None
}

// The types of keys, as the program nft numbers them. A concatenation has six bits for each part.
const (
	typeIPv4 = 7
	typeIPv6 = 8
)

var keys = map[uint32]Key{
	typeIPv4: IPv4, typeIPv6: IPv6,
	typeIPv4<<6 | typeIPv4: ClientIPv4, typeIPv6<<6 | typeIPv6: ClientIPv6,
}

// explain returns the Problem of an error about a set.
func explain(err syscall.Errno) Problem {
	switch err {
	case 0:
		return None
	case unix.ENOENT:
		return NoSet
	case unix.ENFILE:
		return Full
	case unix.EPERM:
		return NoPermission
	case unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT:
		return NoNftables
	}
	return problemOf(err)
}

// ask sends a request about a set, and calls each with the attributes of the reply.
func (k *Kernel) ask(kind uint16, s Set, add func(*buffer), each func(kind uint16, value []byte)) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seq++
	var b buffer
	b.nft(kind, 0, k.seq, families[s.Family], add)

	result := unix.ENODATA
	err := k.exchange(b, func(h unix.NlMsghdr, rest []byte) {
		switch {
		case h.Seq != k.seq:
		case h.Type == unix.NLMSG_ERROR:
			result = errno(rest)
		case len(rest) >= 4:
			result = 0
			attributes(rest[4:], each)
		}
	})
	if err != 0 {
		return err
	}
	return result
}

// exchange sends messages and calls each with every reply. The kernel replies before the call that sends
// has returned, so that there is nothing to wait for.
func (k *Kernel) exchange(b buffer, each func(h unix.NlMsghdr, rest []byte)) syscall.Errno {
	if err := unix.Sendto(k.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return asErrno(err)
	}
	for {
		n, _, err := unix.Recvfrom(k.fd, k.buf, unix.MSG_DONTWAIT)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0
		default:
			return asErrno(err)
		}
		messages(k.buf[:n], func(h unix.NlMsghdr, rest []byte) bool {
			each(h, rest)
			return true
		})
	}
}

// errno returns the error in a message of type NLMSG_ERROR; 0 for an acknowledgement.
func errno(rest []byte) syscall.Errno {
	if len(rest) < 4 {
		return unix.EBADMSG
	}
	return syscall.Errno(-int32(binary.NativeEndian.Uint32(rest)))
}

func asErrno(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return unix.EIO
}

// milliseconds returns a duration as nftables has it, rounded up.
func milliseconds(d time.Duration) uint64 {
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}
