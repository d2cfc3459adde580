//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A table maps question sections to answers. The key is the bytes after the
// header, the OPT record included, in lower case.
type table map[string][]byte

func (t table) write(name string) error {
	var text bytes.Buffer
	return errors.Join(gob.NewEncoder(&text).Encode(t), os.WriteFile(name, text.Bytes(), 0o644))
}

func readTable(name string) (t table, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	err = gob.NewDecoder(bytes.NewReader(text)).Decode(&t)
	return t, err
}

// loopBatch is the number of datagrams that the loop reads at once, as our server
// does.
const loopBatch = 16

// A loop is one reader of the bare loop: the lower bound for any server that uses
// these system calls. It reads datagrams, finds each answer in a map by the bytes
// of the question, and sends it. It parses, checks and counts nothing. A question
// that is not in the table gets NXDOMAIN without records.
type loop struct {
	table   table
	raw     syscall.RawConn
	in, out [loopBatch]unix.Mmsghdr
	room    [loopBatch][512]byte
	reply   [loopBatch][4096]byte
	inIO    [loopBatch]unix.Iovec
	outIO   [loopBatch]unix.Iovec
	names   [loopBatch][unix.SizeofSockaddrInet6]byte

	blocking bool // reads and sends one datagram at a time, on a thread that waits in the system call
	upstream bool // serves forwarders, whose OPT records differ: only the question is compared
}

// runLoop runs the command "bench loop".
func runLoop(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("loop", flag.ContinueOnError)
	listen := f.String("listen", "", "address")
	readers := f.Int("readers", 1, "sockets")
	file := f.String("table", "", "answers")
	blocking := f.Bool("blocking", false, "one datagram for each system call, on a thread that waits in it")
	upstream := f.Bool("upstream", false, "look at the question alone")
	if err := f.Parse(args); err != nil {
		return err
	}

	t, err := readTable(*file)
	if err != nil {
		return fmt.Errorf("reading the table: %w", err)
	}

	failed := make(chan error, *readers)
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		control := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			// The kernel may grant less without an error.
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20)
		})
		if control != nil {
			return control
		}
		return err
	}}

	for range *readers {
		conn, err := config.ListenPacket(ctx, "udp4", *listen)
		if err != nil {
			return err
		}
		defer conn.Close()

		raw, err := conn.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}

		l := &loop{table: t, raw: raw, blocking: *blocking, upstream: *upstream}
		go func() { failed <- l.run() }()
	}

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (l *loop) run() error {
	for i := range loopBatch {
		l.arm(i)
	}
	pump := l.pump
	if l.blocking {
		pump = l.echo
	}
	for {
		if err := l.raw.Read(pump); err != nil {
			return err
		}
		// Errors concern packets sent before.
	}
}

func (l *loop) arm(i int) {
	h := &l.in[i].Hdr
	h.Name, h.Namelen = &l.names[i][0], uint32(len(l.names[i]))
	l.inIO[i].Base = &l.room[i][0]
	l.inIO[i].SetLen(len(l.room[i]))
	h.Iov = &l.inIO[i]
	h.SetIovlen(1)
}

// pump is called by the netpoller when the socket may be readable, and makes
// non-blocking calls, as our server does. It returns false to wait.
func (l *loop) pump(fd uintptr) bool {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&l.in)), loopBatch,
			unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			return errno != unix.EAGAIN
		}
		for i := range int(n) {
			l.answer(i)
		}
		l.send(fd, l.out[:n])
		for i := range int(n) {
			l.arm(i)
		}
		if n == 1 {
			return false
		}
	}
}

// echo answers one datagram at a time: the lower bound for a server that calls recvfrom and
// sendto. It returns after an error.
func (l *loop) echo(fd uintptr) bool {
	runtime.LockOSThread()
	if err := unix.SetNonblock(int(fd), false); err != nil {
		return true
	}
	for {
		m := &l.in[0]
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&l.room[0])),
			uintptr(len(l.room[0])), 0, uintptr(unsafe.Pointer(m.Hdr.Name)), uintptr(unsafe.Pointer(&m.Hdr.Namelen)))
		if errno != 0 {
			return true
		}
		m.Len = uint32(n)
		l.answer(0)
		to := &l.out[0].Hdr
		// A datagram that cannot be sent is lost.
		_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(l.outIO[0].Base)),
			uintptr(l.outIO[0].Len), 0, uintptr(unsafe.Pointer(to.Name)), uintptr(to.Namelen))
		l.arm(0)
	}
}

func (l *loop) answer(i int) {
	query := l.room[i][:l.in[i].Len]
	reply := l.reply[i][:]
	n := copy(reply, query)
	if n >= 12 {
		key := query[12:]
		var question []byte // of the query, if it may have another letter case
		if l.upstream {
			question = questionOf(key)
			name := question[:max(0, len(question)-4)]
			key = slices.Concat(bytes.ToLower(name), question[len(name):])
		}

		if full := l.table[string(key)]; full != nil {
			n = copy(reply, full)
			copy(reply[12:], question)
		} else {
			reply[3] = 3
		}

		reply[0], reply[1] = query[0], query[1]
		reply[2] |= 0x80
	}

	l.outIO[i].Base = &reply[0]
	l.outIO[i].SetLen(n)
	h := &l.out[i].Hdr
	*h = l.in[i].Hdr
	h.Iov, h.Flags = &l.outIO[i], 0
}

// questionOf returns the name, type and class at the start of b.
func questionOf(b []byte) []byte {
	end := bytes.IndexByte(b, 0) + 1 + 4 // our labels contain no zero byte and none is that long
	return b[:min(end, len(b))]
}

// send drops datagrams that do not fit into the socket's buffer.
func (l *loop) send(fd uintptr, left []unix.Mmsghdr) {
	for len(left) > 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&left[0])),
			uintptr(len(left)), unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			n = 1 // this one cannot be sent
		}
		left = left[n:]
	}
}
