package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/seamark/seamark/cluster"
)

const (
	portForwardProtocol = "portforward.k8s.io"
	portForwardTimeout  = 15 * time.Second
	maxForwardError     = 1 << 10 // bytes of a kubelet's error message
)

// A Forwarder opens TCP connections to a port of a pod through the API server, as kubectl
// port-forward does: the pod need not be reachable. All connections share one to the API
// server, which Dial opens, and opens again after an error of its own. It is for commands. Its methods may be
// called from several goroutines.
type Forwarder struct {
	options cluster.Options
	pod     cluster.Key
	port    int

	opening chan struct{} // holds a value while Dial opens stream

	mu        sync.Mutex
	stream    httpstream.Connection // nil before the first Dial, and after an error
	requestID int
}

// PortForward returns a Forwarder to a port of a pod. It needs the permission to create
// pods/portforward.
func PortForward(o cluster.Options, pod cluster.Key, port int) *Forwarder {
	return &Forwarder{options: o, pod: pod, port: port, opening: make(chan struct{}, 1)}
}

// Close closes all connections.
func (f *Forwarder) Close() {
	f.mu.Lock()
	stream := f.stream
	f.mu.Unlock()
	f.discard(stream)
}

// discard closes the connection to the API server, unless it is another one by now: the next Dial opens one.
func (f *Forwarder) discard(stream httpstream.Connection) {
	f.mu.Lock()
	same := stream != nil && f.stream == stream
	if same {
		f.stream = nil
	}
	f.mu.Unlock()

	if same {
		_ = stream.Close()
	}
}

// Dial opens a connection. It ignores the network and the address.
func (f *Forwarder) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := f.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("forwarding port %d of the pod %v: %w", f.port, f.pod, err)
	}
	return conn, nil
}

func (f *Forwarder) dial(ctx context.Context) (net.Conn, error) {
	stream, id, err := f.open(ctx)
	if err != nil {
		return nil, err
	}

	// CreateStream has no context: on a path that is lost it waits half a minute.
	var conn net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err = forward(stream, f.port, id); err != nil {
			f.discard(stream)
		}
	}()
	select {
	case <-done:
		return conn, err
	case <-ctx.Done():
	}

	// A caller that has given up costs other connections nothing, unless the path is lost.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		f.discard(stream)
	}
	go func() {
		if <-done; conn != nil {
			_ = conn.Close()
		}
	}()
	return nil, ctx.Err()
}

// forward opens the connection with a number over the connection to the API server.
func forward(stream httpstream.Connection, port, id int) (net.Conn, error) {
	headers := http.Header{}
	headers.Set("streamType", "error")
	headers.Set("port", strconv.Itoa(port))
	headers.Set("requestID", strconv.Itoa(id))
	failures, err := stream.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = failures.Close() // no data is sent on it

	headers.Set("streamType", "data")
	data, err := stream.CreateStream(headers)
	if err != nil {
		_ = failures.Reset()
		return nil, err
	}
	return &forwardedConn{Stream: data, failures: failures, all: stream}, nil
}

// open returns the connection to the API server, which it opens unless it is open, and a number that no
// other call has returned.
func (f *Forwarder) open(ctx context.Context) (httpstream.Connection, int, error) {
	select {
	case f.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	defer func() { <-f.opening }()

	f.mu.Lock()
	stream := f.stream
	f.requestID++
	id := f.requestID
	f.mu.Unlock()
	if stream != nil {
		select {
		case <-stream.CloseChan():
		default:
			return stream, id, nil
		}
	}

	stream, err := f.connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	f.mu.Lock()
	f.stream = stream
	f.mu.Unlock()
	return stream, id, nil
}

// connect opens a connection to the API server.
func (f *Forwarder) connect(ctx context.Context) (httpstream.Connection, error) {
	config, err := restConfig(f.options)
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, portForwardTimeout)
	defer cancel()
	path := "/api/v1/namespaces/" + f.pod.Namespace + "/pods/" + f.pod.Name + "/portforward"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	stream, _, err := spdy.NegotiateStreaming(upgrader, &http.Client{Transport: transport}, request, portForwardProtocol)
	return stream, err
}

// A forwardedConn is a connection through a Forwarder. It has no deadlines: SetDeadline and
// the like do nothing.
type forwardedConn struct {
	httpstream.Stream
	failures httpstream.Stream
	all      httpstream.Connection
	once     sync.Once
}

// Read returns the kubelet's error if there is one at the end of the data.
func (c *forwardedConn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		if text, _ := io.ReadAll(io.LimitReader(c.failures, maxForwardError)); len(text) > 0 {
			err = errors.New(string(text))
		}
	}
	return n, err
}

// Close ends both directions.
func (c *forwardedConn) Close() error {
	var err error
	c.once.Do(func() {
		err = errors.Join(c.Stream.Reset(), c.failures.Reset())
		c.all.RemoveStreams(c.Stream, c.failures)
	})
	return err
}

func (c *forwardedConn) LocalAddr() net.Addr              { return new(net.TCPAddr) }
func (c *forwardedConn) RemoteAddr() net.Addr             { return new(net.TCPAddr) }
func (c *forwardedConn) SetDeadline(time.Time) error      { return nil }
func (c *forwardedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *forwardedConn) SetWriteDeadline(time.Time) error { return nil }
