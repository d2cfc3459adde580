package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A Requester requests one small page of this server again and again. An http.Client, with its goroutines, takes a
// large part of the processor time and of the program's pages in memory of a server that is idle otherwise. It is not
// safe for concurrent use.
type Requester struct {
	dial          func(ctx context.Context, network, address string) (net.Conn, error)
	addr, request string
	content       string
	timeout       time.Duration
	conn          net.Conn // nil if there is none
}

// NewRequester returns a Requester for the page at a path of an address, which has the content. A nil dial connects
// as the operating system does. A request may take as long as the timeout.
func NewRequester(
	dial func(ctx context.Context, network, address string) (net.Conn, error), addr, path, content string,
	timeout time.Duration,
) *Requester {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: " + addr + "\r\n\r\n"
	return &Requester{dial: dial, addr: addr, request: request, content: content, timeout: timeout}
}

// Get requests the page. It returns an error unless the reply has the status 200 and the content. If the request fails
// over a connection that the server may have closed meanwhile, it is sent once more.
func (r *Requester) Get(ctx context.Context) error {
	reused := r.conn != nil
	err := r.get(ctx)
	if err != nil && reused && ctx.Err() == nil {
		err = r.get(ctx)
	}
	return err
}

// get requests the page over r.conn, which it opens if there is none, and closes after an error.
func (r *Requester) get(ctx context.Context) (err error) {
	if r.conn == nil {
		dialing, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		conn, err := r.dial(dialing, "tcp", r.addr)
		if err != nil {
			return err
		}
		r.conn = conn
	}

	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	conn := r.conn
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	_ = conn.SetDeadline(time.Now().Add(r.timeout))
	if _, err := io.WriteString(conn, r.request); err != nil {
		return err
	}
	return r.read(conn)
}

// read reads the whole reply.
func (r *Requester) read(conn io.Reader) error {
	var buf [512]byte
	for n := 0; ; {
		k, err := conn.Read(buf[n:])
		n += k
		line, _, found := bytes.Cut(buf[:n], []byte("\r\n"))
		switch {
		case found && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")):
			return fmt.Errorf("got the status %q", line)
		case bytes.HasSuffix(buf[:n], []byte("\r\n\r\n"+r.content)):
			return nil
		case err != nil:
			return err
		case n == len(buf):
			return errors.New("the reply is that of another server")
		}
	}
}

// Close closes the connection. The next Get opens another one.
func (r *Requester) Close() {
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}
