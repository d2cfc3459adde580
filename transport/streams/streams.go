// Package streams serves DNS over HTTPS (RFC 8484) with HTTP/1.1 to 3, gRPC and QUIC (RFC
// 9250). Package server makes a listener of this package for each address with such a scheme;
// transport.Messages answers the queries.
package streams

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
)

// Options configure a listener.
type Options struct {
	transport.Options        // TLS may be nil
	Name              string // the address in metrics: "https://:443"
	Limits            Limits
}

// Limits of a listener's connections.
type Limits struct {
	Connections int // 0 is no limit
	Streams     int // of one connection; 0 is the library's default
	Workers     int // QUIC: streams of all connections that wait for their clients
}

// listener is what the listeners of all protocols have.
type listener struct {
	*transport.Messages
	o      Options
	addr   netip.AddrPort
	limits atomic.Pointer[Limits]
	load   load
}

func (l *listener) init(o Options) {
	o.Options = o.Options.OrDefaults()
	l.o, l.Messages = o, transport.NewMessages(o.Options)
	l.limits.Store(&o.Limits)
	n := min(maxLarge, max(minLarge, int(o.Memory.Max(memory.Replies)/(2*wire.MaxMessage))))
	l.load.large = slots.New(n, n/4) // minLarge of them at least for four clients
	l.load.memory = o.Memory
}

// Addr returns the address that was opened, with the chosen port.
func (l *listener) Addr() netip.AddrPort { return l.addr }

// SetLimits does nothing: the timeouts are those at the time of Listen. It reports whether they are the same.
func (l *listener) SetLimits(limits transport.Limits) (applied bool) {
	has := l.o.Options.Limits
	limits.MaxQueries = has.MaxQueries // is not used
	return limits.OrDefaults() == has.OrDefaults()
}

// SetTLS sets the source of the TLS configuration for future connections.
func (l *listener) SetTLS(source func() *tls.Config) {
	if l.o.TLS != nil {
		l.o.TLS.Set(source)
	}
}

// SetStreamLimits sets the limit of connections. It returns false if the limit of streams
// differs, which cannot be changed.
func (l *listener) SetStreamLimits(limits Limits) (applied bool) {
	l.limits.Store(&limits)
	return limits.Streams == l.o.Limits.Streams
}

func (l *listener) maxConns() int { return l.limits.Load().Connections }

// HandOver does nothing: another process has the socket, and connections cannot be passed.
func (l *listener) HandOver(context.Context, func(transport.Conn) error) error { return nil }

// Resume does nothing.
func (l *listener) Resume() {}

// Adopt refuses a connection.
func (l *listener) Adopt(c transport.Conn) error {
	_ = c.File.Close()
	return fmt.Errorf("%s adopts no connections", l.o.Name)
}

// statusCounter counts replies by their status.
type statusCounter struct {
	metrics            *metrics.Registry
	name, help, server string
	counters           *sync.Map // of *metrics.Counter by status
}

func newStatusCounter(r *metrics.Registry, name, help, server string) statusCounter {
	return statusCounter{r, name, help, server, new(sync.Map)}
}

func (c statusCounter) add(status any) {
	found, ok := c.counters.Load(status)
	if !ok {
		counter := c.metrics.Counter(c.name, c.help, "server", c.server, "status", fmt.Sprint(status))
		found, _ = c.counters.LoadOrStore(status, counter)
	}
	found.(*metrics.Counter).Add(1)
}

// files returns a copy of a socket.
func files(s interface{ File() (*os.File, error) }) ([]*os.File, error) {
	f, err := s.File()
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}
