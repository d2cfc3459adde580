package simulation

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go/http3"
)

// The ports of protocols other than UDP and TCP.
const (
	portTLS    = 853
	portHTTPS  = 443
	portQUIC   = 8853 // so that the port determines the protocol
	portHTTPS3 = 8443
)

// keys returns the keys of the server block of a zone.
func (w *world) keys(zone string) string {
	if w.streams == nil {
		return zone + ":53"
	}
	return fmt.Sprintf("%[1]s:53 tls://%[1]s:%[2]d https://%[1]s:%[3]d quic://%[1]s:%[4]d https3://%[1]s:%[5]d",
		zone, portTLS, portHTTPS, portQUIC, portHTTPS3)
}

// tlsDirective is the directive tls of each server block.
func (w *world) tlsDirective() string {
	if w.streams == nil {
		return ""
	}
	return fmt.Sprintf(" tls %s %s\n", w.tls.file, w.tls.keyFile)
}

// streamClients send queries over TCP, TLS, HTTPS and QUIC, which they may repeat over another connection
// if the server was restarted, or closed the connection while it was idle.
type streamClients struct {
	world   *world
	clients []*streamClient
}

// A streamClient sends the queries of one protocol, one after the other over one connection.
type streamClient struct {
	world *world
	name  string
	port  uint16
	turn  chan struct{} // held while the connection is used: a mutex would stop the virtual clock
	conn  net.Conn
	http  *http.Client
	quic  *quicConn
}

func newStreamClients(w *world) *streamClients {
	s := &streamClients{world: w}
	for i, name := range []string{"tcp", "tls", "https", "quic", "https3"} {
		port := []uint16{53, portTLS, portHTTPS, portQUIC, portHTTPS3}[i]
		c := &streamClient{world: w, name: name, port: port, turn: make(chan struct{}, 1)}
		switch name {
		case "https3":
			c.http = &http.Client{Transport: &http3.Transport{Dial: c.dialHTTPS3}}
		case "https":
			h2 := w.IntN(2) == 0
			c.name = map[bool]string{true: "https, HTTP/2", false: "https, HTTP/1.1"}[h2]
			c.http = &http.Client{Transport: &http.Transport{DialTLSContext: c.dialHTTPS(h2), ForceAttemptHTTP2: h2, MaxConnsPerHost: 1}}
		}
		s.clients = append(s.clients, c)
	}
	return s
}

// close closes the connections.
func (s *streamClients) close() {
	for _, c := range s.clients {
		c.turn <- struct{}{}
		c.drop()
		<-c.turn
	}
}

func (c *streamClient) drop() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	if c.quic != nil {
		c.quic.close()
		c.quic = nil
	}
}

// connect opens a connection.
func (c *streamClient) connect(ctx context.Context, protocols ...string) (net.Conn, error) {
	tcp, err := c.world.server.connect(netip.AddrFrom4([4]byte{10, 250, 9, 1}), c.port)
	if err != nil || c.port == 53 {
		return tcp, err
	}
	encrypted := tls.Client(tcp, c.tlsConfig(protocols...))
	return encrypted, encrypted.HandshakeContext(ctx)
}

func (c *streamClient) tlsConfig(protocols ...string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(c.world.tls.own.Leaf)
	return &tls.Config{ServerName: upstreamName, RootCAs: roots, NextProtos: protocols}
}

func (c *streamClient) dialHTTPS(h2 bool) func(context.Context, string, string) (net.Conn, error) {
	protocol := "http/1.1"
	if h2 {
		protocol = "h2"
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx, protocol) }
}

// longestAnswer bounds the time of a query: that of a parked one, and of a restart.
const longestAnswer = longestStop

// ask sends a query and returns the reply. The caller has the turn.
func (c *streamClient) ask(packet []byte) (reply []byte, err error) {
	longest := longestAnswer
	if c.port == portQUIC || c.port == portHTTPS3 {
		longest += longestHandOver // one process at a time reads the socket, and none while they wait for each other
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	for {
		restarts, used := c.world.restarts.Load(), c.conn != nil || c.http != nil || c.quic != nil
		mayStop := c.world.handOvers.running()
		reply, err = c.exchange(ctx, packet)
		mayStop = mayStop || c.world.handOvers.running()
		switch {
		case err == nil || ctx.Err() != nil:
			return reply, err
		case isSilence(err) && mayStop: // the process is stopped
		case c.world.restarts.Load() != restarts || c.world.down.Load():
			time.Sleep(100 * time.Millisecond)
		case !used:
			return nil, err
		}
		c.drop()
	}
}

func (c *streamClient) exchange(ctx context.Context, packet []byte) ([]byte, error) {
	switch {
	case c.http != nil:
		return c.post(ctx, packet)
	case c.port == portQUIC:
		return c.exchangeQUIC(ctx, packet)
	}
	if c.conn == nil {
		conn, err := c.connect(ctx)
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	deadline, _ := ctx.Deadline()
	_ = c.conn.SetReadDeadline(deadline)
	if _, err := c.conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(c.conn, length[:]); err != nil {
		return nil, err
	}
	reply := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(c.conn, reply)
	return reply, err
}

// post sends a query over HTTPS (RFC 8484).
func (c *streamClient) post(ctx context.Context, packet []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+upstreamName+"/dns-query", bytes.NewReader(packet))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/dns-message")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("status %s", resp.Status))
	}
	return reply, err
}

// converged compares the answers of all protocols for the names of the server's own data.
func (s *streamClients) converged() {
	w := s.world
	names := []string{w.files[0].name(0), w.files[1].alias(), podName("shop", 0)}
	for _, service := range serviceNames {
		names = append(names, service+".bank.svc."+clusterZone, "_http._tcp."+service+".shop.svc."+clusterZone)
	}
	for _, name := range names {
		m := new(mdns.Msg).SetQuestion(name, mdns.TypeSRV)
		m.SetEdns0(4096, false)
		packet := must(m.Pack())
		var first string
		for _, c := range s.clients {
			c.turn <- struct{}{}
			reply, err := c.ask(packet)
			<-c.turn
			got := new(mdns.Msg)
			if err == nil {
				err = got.Unpack(reply)
			}
			if err != nil {
				w.fail("%s over %s: %v", name, c.name, err)
				continue
			}
			if opt := got.IsEdns0(); opt != nil { // the target of an ExternalName may be refreshed meanwhile
				opt.Option = slices.DeleteFunc(opt.Option, func(o mdns.EDNS0) bool {
					e, ok := o.(*mdns.EDNS0_EDE)
					return ok && e.InfoCode == mdns.ExtendedErrorCodeStaleAnswer
				})
			}
			text := fmt.Sprint(got.MsgHdr, read(got), got.IsEdns0())
			if first == "" {
				first = text
			}
			if text != first {
				w.fail("%s over %s: got %s, want that over TCP: %s", name, c.name, text, first)
			}
		}
	}
}
