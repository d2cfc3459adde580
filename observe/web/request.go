package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A Requester is a small page of this server, an http.Handler, that is requested by the server itself again and again.
// Package net/http takes a large part of the processor time and of the program's pages in memory of a server that is
// idle otherwise. So it has only the first request of a connection, and the Requester is both ends of the others.
// Get and Close are not safe for concurrent use.
type Requester struct {
	dial          func(ctx context.Context, network, address string) (net.Conn, error)
	addr, request string
	content       string
	timeout       time.Duration
	conn          net.Conn               // nil if there is none
	own           atomic.Pointer[string] // its address here, as http.Request.RemoteAddr; nil before the first one
}

// NewRequester returns a Requester for the page at a path of an address, whose content it is given. A nil dial connects
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
		local := conn.LocalAddr().String()
		r.own.Store(&local)
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

// ServeHTTP serves the page. If the request is the Requester's own, it has the connection from then on, until Close.
func (r *Requester) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	own := r.own.Load()
	if own == nil || *own != request.RemoteAddr {
		_, _ = io.WriteString(w, r.content)
		return
	}

	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	go r.serve(conn)
}

// serve answers the request that net/http has read, and every later one.
func (r *Requester) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{}) // that of the first request

	reply := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(r.content), r.content)
	for request := make([]byte, len(r.request)); ; {
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
		if _, err := io.ReadFull(conn, request); err != nil || string(request) != r.request {
			return
		}
	}
}

// Close closes the connection. The next Get opens another one.
func (r *Requester) Close() {
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
		r.own.Store(nil) // another client may have the address now
	}
}
