package diff

import (
	"context"
	"net"
	"time"

	"github.com/miekg/dns"
)

// A Client sends queries to one server, for commands that have queries of their own. It is safe
// for concurrent use.
type Client struct{ client *client }

// NewClient returns a Client of the server at a HOST:PORT. It waits that long for each reply,
// and sends a query three times. Close closes its sockets.
func NewClient(address string, timeout time.Duration) *Client {
	return &Client{newClient(Options{Address: address, Timeout: timeout, Dial: new(net.Dialer).DialContext})}
}

// Close closes the sockets.
func (c *Client) Close() { c.client.close() }

// Probe returns an error unless the server replies to a query for the zone.
func (c *Client) Probe(ctx context.Context, zone string) error {
	_, err := c.client.probe(ctx, dns.Fqdn(zone))
	return err
}

// Exchange sends m over UDP, and over TCP if the reply is truncated, or only over TCP. It
// replaces the ID of m. n selects the socket: at most 128 goroutines may have the same n.
func (c *Client) Exchange(ctx context.Context, n int, m *dns.Msg, tcp bool) (reply *dns.Msg, err error) {
	if !tcp {
		return c.client.exchange(ctx, n, m)
	}
	for range attempts {
		if reply, err = c.client.tcp[n%sockets].exchange(ctx, c.client, "tcp", m); err == nil || ctx.Err() != nil {
			break
		}
	}
	return reply, err
}

// Pace spreads queries over time, at most rate a second. It is not safe for concurrent use.
type Pace struct{ pace pace }

// NewPace returns a Pace.
func NewPace(rate int) *Pace { return &Pace{pace{interval: time.Second / time.Duration(rate)}} }

// Wait blocks until the next query may be sent, or ctx ends.
func (p *Pace) Wait(ctx context.Context) error { return p.pace.wait(ctx) }
