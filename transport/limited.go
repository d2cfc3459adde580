package transport

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A LimitedListener accepts TCP connections up to a limit.
type LimitedListener struct {
	*net.TCPListener
	Address netip.AddrPort // with the port that was opened
	open    atomic.Int64
	most    func() int
	counts  counters
	proxies proxySource
	log     *slog.Logger
	timeout time.Duration // for a PROXY header
}

// SetProxies sets the proxies of future connections. nil is none.
func (l *LimitedListener) SetProxies(o *ProxyOptions) { l.proxies.set(o) }

// Accept closes connections over the limit.
func (l *LimitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		open, most := l.open.Add(1), int64(l.most())
		if most == 0 || open <= most {
			limited := &limitedConn{TCPConn: c, open: &l.open}
			if policy := l.proxies.Load().policy(addrPort(c.RemoteAddr()).Addr()); policy != ProxySkip {
				return &proxiedConn{Conn: limited, l: l, policy: policy}, nil
			}
			return limited, nil
		}
		l.open.Add(-1)
		l.counts.overTotal.Add(1)
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

type limitedConn struct {
	*net.TCPConn
	once sync.Once
	open *atomic.Int64
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.TCPConn.Close()
}
