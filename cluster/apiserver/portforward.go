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
// server, which Dial opens, and opens again after an error. It is for commands. Its methods may be
// called from several goroutines.
type Forwarder struct {
	options cluster.Options
	pod     cluster.Key
	port    int

	mu        sync.Mutex
	stream    httpstream.Connection
	requestID int
}

// PortForward returns a Forwarder to a port of a pod. It needs the permission to create
// pods/portforward.
func PortForward(o cluster.Options, pod cluster.Key, port int) *Forwarder {
	return &Forwarder{options: o, pod: pod, port: port}
}

// Close closes all connections.
func (f *Forwarder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stream != nil {
		_ = f.stream.Close()
		f.stream = nil
	}
}

// Dial opens a connection. It ignores the network and the address.
func (f *Forwarder) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.open(ctx); err != nil {
		return nil, fmt.Errorf("forwarding port %d of the pod %v: %w", f.port, f.pod, err)
	}
	f.requestID++
	headers := http.Header{}
	headers.Set("streamType", "error")
	headers.Set("port", strconv.Itoa(f.port))
	headers.Set("requestID", strconv.Itoa(f.requestID))
	failures, err := f.stream.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("forwarding port %d of the pod %v: %w", f.port, f.pod, err)
	}
	_ = failures.Close() // no data is sent on it
	headers.Set("streamType", "data")
	data, err := f.stream.CreateStream(headers)
	if err != nil {
		_ = failures.Reset()
		return nil, fmt.Errorf("forwarding port %d of the pod %v: %w", f.port, f.pod, err)
	}
	return &forwardedConn{Stream: data, failures: failures, all: f.stream}, nil
}

// open opens the connection to the API server unless it is open. f.mu is held.
func (f *Forwarder) open(ctx context.Context) error {
	if f.stream != nil {
		select {
		case <-f.stream.CloseChan():
		default:
			return nil
		}
	}

	config, err := restConfig(f.options)
	if err != nil {
		return err
	}
	config.UserAgent = userAgent()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return err
	}

	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, portForwardTimeout)
	defer cancel()
	path := "/api/v1/namespaces/" + f.pod.Namespace + "/pods/" + f.pod.Name + "/portforward"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath(path).String(), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	f.stream, _, err = spdy.NegotiateStreaming(upgrader, client, request, portForwardProtocol)
	return err
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
