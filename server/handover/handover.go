// Package handover passes sockets and data from a running server to the process that
// replaces it, over a Unix socket. Package server selects the resources to pass; this package
// has the messages, the socket and its checks.
//
// The starting process dials the socket. Then the messages are, with > from it:
//
//	> hello            the version of the protocol
//	< hello
//	< socket...        a file each: a UDP socket or TCP listener for DNS
//	< http...          a file each: a TCP listener for status pages, with its address
//	< state...         a file each: a pipe with the data of a State, with its name
//	< handover         the listening Unix socket, as a file
//	< end
//	> serving          it answers queries; addresses that it does not serve
//	< connection...    a file each: an open TCP connection
//	< end
//	> taken
//	< the end of the connection, once the old process has released the sockets that only one may read
//
// Until taken the old process answers queries, and after serving the new one does. Exactly one of
// them remains, whatever fails. A process ends the connection only when it ends itself, or with a last
// word: refused, if the old process goes on alone because it has not received serving, after which the
// new one ends; or taken, with which the new process may stop waiting for connections, after which the
// old one ends. An end of the connection without them is the end of the other process. A process that is
// stopped or slow is waited for: both answer meanwhile.
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"
)

// Version is the version of the protocol. Processes with different versions do not
// replace each other.
const Version = 1

// A Kind is the kind of a message.
type Kind string

const (
	Hello      Kind = "hello"
	Refused    Kind = "refused" // with Error, in place of hello, or from an old process that goes on alone
	DNS        Kind = "socket"
	HTTP       Kind = "http"
	State      Kind = "state"
	Successors Kind = "handover"
	Connection Kind = "connection"
	Begin      Kind = "begin" // of a worker's files: those since the last end are void
	End        Kind = "end"
	Serving    Kind = "serving"
	Taken      Kind = "taken"
)

// A Message is a packet of the Unix socket: JSON, and a file for some kinds.
type Message struct {
	Kind    Kind
	Version int              `json:",omitempty"`
	ID      uint64           `json:",omitempty"` // of a worker's request, and of the replies to it
	Error   string           `json:",omitempty"`
	Name    string           `json:",omitempty"` // the address of HTTP, or the name of a State
	Address netip.AddrPort   `json:",omitzero"`  // of the listener of a Connection
	Unread  []byte           `json:",omitempty"` // of a Connection: the part of a query or PROXY header that was read
	Queries int              `json:",omitempty"` // received from a Connection
	Client  netip.AddrPort   `json:",omitzero"`  // of a Connection, if a proxy has named it
	Pending bool             `json:",omitempty"` // the PROXY header of a Connection is not complete
	TLVs    []byte           `json:",omitempty"` // of the PROXY header of a Connection, if they are kept
	Unused  []netip.AddrPort `json:",omitempty"` // addresses that the new process does not serve

	File *os.File `json:"-"`
}

// hasFile reports whether messages of the kind have a file.
func (k Kind) hasFile() bool {
	switch k {
	case DNS, HTTP, State, Successors, Connection:
		return true
	}
	return false
}

// decode returns the message in a packet.
func decode(packet []byte) (m Message, err error) {
	if err = json.Unmarshal(packet, &m); err != nil {
		return m, fmt.Errorf("malformed message: %w", err)
	}
	if len(m.Unread) > maxUnread || m.Queries < 0 {
		return m, fmt.Errorf("malformed message: connection with %d unread bytes and %d queries",
			len(m.Unread), m.Queries)
	}
	return m, nil
}

const (
	// maxUnread is the size of the largest DNS message and its length.
	maxUnread = 2 + 1<<16 - 1
	// maxPacket bounds a message. Unread is in base64.
	maxPacket = 2 * maxUnread
	// maxFiles and filesTimeout bound the files that a process sends until End, and the time from the
	// first of them: a server has two for each address and reader. Connections count as those
	// of clients do. A worker has no bound in time: it serves, whatever it fails to send.
	maxFiles     = 1 << 16
	filesTimeout = time.Minute
)

// A Socket passes packets and files as a net.UnixConn does, which it is outside of simulations.
type Socket interface {
	ReadMsgUnix(b, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error)
	WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// A Conn is a connection between the two processes. One goroutine may send while another
// receives.
type Conn struct {
	unix Socket
	PID  int // of the other process
	buf  []byte
	oob  []byte

	files        int           // received since End
	filesTimeout time.Duration // from the first of them to End; 0 is no bound
	filesUntil   time.Time     // zero without a bound
}

// FileConn returns a connection between a process and its worker, over a Unix socket, and closes f.
func FileConn(f *os.File) (*Conn, error) {
	defer f.Close()
	unix, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	c, err := newConn(unix.(*net.UnixConn))
	if err == nil {
		c.filesTimeout = 0
	}
	return c, err
}

// newConn returns a connection to a process of the same user or of root.
func newConn(c *net.UnixConn) (*Conn, error) {
	pid, uid, err := peer(c)
	if err == nil && uid != os.Geteuid() && uid != 0 {
		err = fmt.Errorf("process %d of user %d: want user %d or root", pid, uid, os.Geteuid())
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return NewConn(c, pid), nil
}

// NewConn returns a connection to the process pid, which have exchanged hello.
func NewConn(s Socket, pid int) *Conn {
	return &Conn{unix: s, PID: pid, filesTimeout: filesTimeout, buf: make([]byte, maxPacket), oob: make([]byte, 64)}
}

// Close closes the connection. It may be called at any time.
func (c *Conn) Close() { _ = c.unix.Close() }

// Send sends m, and a copy of its file.
func (c *Conn) Send(m Message, timeout time.Duration) error {
	packet, err := json.Marshal(m)
	if err != nil {
		return err
	}

	_ = c.unix.SetWriteDeadline(time.Now().Add(timeout))
	send := func(rights []byte) error {
		_, _, err := c.unix.WriteMsgUnix(packet, rights, nil)
		return err
	}
	if m.File == nil {
		err = send(nil)
	} else if raw, e := m.File.SyscallConn(); e != nil {
		err = e
	} else if e := raw.Control(func(fd uintptr) { err = send(rights(int(fd))) }); e != nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("sending %s to process %d: %w", m.Kind, c.PID, err)
	}
	return nil
}

// Receive returns the next message, which must be of one of the kinds. If it has a file
// the caller must close that; a Connection lacks it if this process has no descriptors
// left. The error is io.EOF if the other process has closed the connection.
func (c *Conn) Receive(timeout time.Duration, kinds ...Kind) (m Message, err error) {
	deadline := time.Now().Add(timeout)
	filesEnd := c.files > 0 && !c.filesUntil.IsZero() && c.filesUntil.Before(deadline)
	if filesEnd {
		deadline = c.filesUntil
	}
	n, oobn, err := c.read(deadline)
	if filesEnd && errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no end of its %d files", c.files) // a caller need not wait any longer
	}
	if err != nil {
		return m, fmt.Errorf("receiving %s from process %d: %w", kinds[0], c.PID, err)
	}

	files, err := received(c.oob[:oobn])
	defer func() {
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
		}
	}()
	if err != nil {
		return m, err
	}
	if m, err = decode(c.buf[:n]); err != nil {
		return m, err
	}
	if len(files) == 1 {
		m.File = files[0]
	}

	hasFile := m.File != nil
	if slices.Contains(kinds, m.Kind) && len(files) <= 1 && (hasFile == m.Kind.hasFile() || m.Kind == Connection) {
		return m, c.count(m)
	}
	if m.Kind == Refused {
		return m, &RefusedError{PID: c.PID, Reason: m.Error}
	}
	return m, fmt.Errorf("unexpected message from process %d: %s with %d files, want %s",
		c.PID, m.Kind, len(files), kinds[0])
}

// read reads a packet. It reads again after two errors before which the other process may have sent one.
func (c *Conn) read(deadline time.Time) (n, oobn int, err error) {
	_ = c.unix.SetReadDeadline(deadline)
	for late, reset := false, false; ; {
		n, oobn, _, _, err = c.unix.ReadMsgUnix(c.buf, c.oob)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !late:
			late = true // this process may have been stopped until now
			_ = c.unix.SetReadDeadline(time.Now().Add(time.Millisecond))
		case errors.Is(err, syscall.ECONNRESET) && !reset:
			reset = true // the kernel reports first that the other process has left packets unread
		case errors.Is(err, syscall.ECONNRESET):
			return n, oobn, io.EOF
		default:
			return n, oobn, err
		}
	}
}

// A RefusedError is the reason of the other process to refuse what this one does.
type RefusedError struct {
	PID    int
	Reason string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("process %d refuses: %s", e.PID, e.Reason) }

// Refuse tells a process that wants to replace this one that this one goes on alone, and closes the
// connection. It blocks while that process is stopped and leaves its messages unread.
func (c *Conn) Refuse(reason error) {
	defer c.Close()
	err := os.ErrDeadlineExceeded
	for errors.Is(err, os.ErrDeadlineExceeded) {
		err = c.Send(Message{Kind: Refused, Error: reason.Error()}, filesTimeout)
	}
}

// count counts the files of messages until End.
func (c *Conn) count(m Message) error {
	switch {
	case m.Kind == Begin || m.Kind == End:
		c.files = 0
	case m.Kind.hasFile() && m.Kind != Connection:
		if c.files == 0 && c.filesTimeout > 0 {
			c.filesUntil = time.Now().Add(filesTimeout)
		}
		if c.files++; c.files > maxFiles {
			return fmt.Errorf("process %d sends more than %d files", c.PID, maxFiles)
		}
	}
	return nil
}
