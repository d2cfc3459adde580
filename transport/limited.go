package transport

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/metrics"
)

// A LimitedListener accepts TCP connections up to a limit.
type LimitedListener struct {
	*net.TCPListener
	Address netip.AddrPort // with the port that was opened
	open    atomic.Int64
	most    func() int
	refused *metrics.Counter
}

// Accept closes connections over the limit.
func (l *LimitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		open, most := l.open.Add(1), int64(l.most())
		if most == 0 || open <= most {
			return &limitedConn{TCPConn: c, open: &l.open}, nil
		}
		l.open.Add(-1)
		l.refused.Add(1)
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
