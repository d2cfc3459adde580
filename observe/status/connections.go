package status

import (
	"net"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/descriptors"
	"github.com/seamark/seamark/transport"
)

const (
	// maxConns bounds the connections of all pages of a server. One that is used costs about
	// 20 KB, and with TLS 60 KB.
	maxConns = 128
	// maxConnsPerClient bounds those of an IPv4 address or an IPv6 /64. A scraper has one or
	// two, a browser six, and all tools of a machine that forwards ports have its address.
	maxConnsPerClient = 32
	// connBuffer is the kernel's buffer for what a client does not read. The kernel doubles it.
	connBuffer = 16 << 10
)

// Connections are the connections of all pages of a server. A new one always gets in: at a
// limit another one is closed for it, as ConnLimits of package transport says.
type Connections struct {
	*transport.ConnTable
	removeGauge func()
}

// NewConnections returns Connections without any. They count against the budget, and have
// metrics, unless these are nil. The caller must call Stop.
func NewConnections(d *descriptors.Budget, r *metrics.Registry) *Connections {
	c := &Connections{transport.NewConnTable(transport.ConnLimits{
		Most: func() int { return maxConns }, PerClient: maxConnsPerClient, Replace: true,
		Buffer: connBuffer, Descriptors: d, Metrics: r,
	}), func() {}}
	if r != nil {
		c.removeGauge = r.TemporaryGauge("seamark_transport_connections", "Open connections.", c.Count, "address", "pages")
	}
	return c
}

// Limit returns a listener whose connections are bounded together with the others of c.
func (c *Connections) Limit(l net.Listener) net.Listener {
	return transport.LimitListener(l, c.ConnTable)
}

// Stop ends the use of c, whose listeners are closed.
func (c *Connections) Stop() {
	c.removeGauge()
	c.ConnTable.Stop()
}
