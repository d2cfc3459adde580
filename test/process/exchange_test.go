//go:build unix

package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/seamark/seamark/wire/grpcmessage"
)

// A question is a query of a step, and how it is sent.
type question struct {
	m      *dns.Msg
	secret map[string]string // of TSIG, by key
	net    string            // udp, tcp, tcp-tls, https, grpc, or http and grpc+h2c without TLS
	at     string
	proxy  []byte // a PROXY header in front of the query or the connection
	alone  bool   // it has a datagram of its own
	within time.Duration
	cert   *tls.Certificate // of the client
	header http.Header      // of a request of HTTP
}

// transports are the words that name a transport.
var transports = map[string]string{
	"+tcp": "tcp", "+tls": "tcp-tls", "+https": "https", "+http": "http", "+grpc": "grpc", "+h2c": "grpc+h2c",
	"+quic": "quic", "+h3": "h3",
}

// question parses the part of a step in front of the arrow: "example.org A +tcp".
func (s *script) question(text string) (*question, error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return nil, fmt.Errorf("want a name and a type")
	}

	q := &question{m: new(dns.Msg), header: http.Header{}, net: "udp", at: "127.0.0.1:" + s.vars["$PORT"], within: attempt}
	q.m.SetQuestion(dns.Fqdn(words[0]), dns.StringToType[words[1]])
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=") // a secret may contain another =
		n, _ := strconv.Atoi(value)
		var err error
		switch {
		case transports[word] != "":
			q.net = transports[word]
		case word == "+do":
			q.m.SetEdns0(1232, true)
		case word == "+cert":
			q.cert = new(tls.Certificate)
			*q.cert, err = tls.LoadX509KeyPair(filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem"))
		case word == "+nsid":
			q.m.SetEdns0(1232, false)
			q.m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_NSID{Code: dns.EDNS0NSID}}
		case word == "+cd":
			q.m.CheckingDisabled = true
		case word == "+norec":
			q.m.RecursionDesired = false
		case name == "+subnet":
			err = setSubnet(q.m, value)
		case name == "+edns":
			q.m.SetEdns0(uint16(n), false)
		case name == "+id":
			q.m.Id = uint16(n)
		case name == "+opcode":
			q.m.Opcode = n
		case name == "+tsig":
			// The sum of a signature is of the packed message: it is computed when that is sent.
			key, secret, _ := strings.Cut(value, ":")
			q.m.SetTsig(dns.Fqdn(key), dns.HmacSHA256, 300, time.Now().Unix())
			q.secret = map[string]string{dns.Fqdn(key): secret}
		case name == "+port":
			q.at = net.JoinHostPort("127.0.0.1", value)
		case name == "+at":
			q.at = value
		case name == "+from":
			q.proxy, err = proxyHeader(value)
		case name == "+header":
			field, text, _ := strings.Cut(value, ":")
			q.header.Add(field, text)
		case name == "+proxy" || name == "+proxyalone":
			q.alone = name == "+proxyalone"
			q.proxy, err = hex.DecodeString(value)
		case dns.StringToClass[word] != 0:
			q.m.Question[0].Qclass = dns.StringToClass[word]
		default:
			err = fmt.Errorf("unknown word %q", word)
		}
		if err != nil {
			return nil, err
		}
	}
	return q, nil
}

// setSubnet adds the option client subnet (RFC 7871) of an IPv4 network.
func setSubnet(m *dns.Msg, network string) error {
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		return err
	}
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_SUBNET{
		Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(prefix.Bits()), Address: prefix.Addr().AsSlice(),
	}}
	return nil
}

// proxyHeader returns a PROXY header of version 2 that names a client, with port 4711.
func proxyHeader(client string) ([]byte, error) {
	addr, err := netip.ParseAddr(client)
	if err != nil {
		return nil, err
	}
	family, size := byte(0x12), byte(12)
	if addr.Is6() {
		family, size = 0x22, 36
	}
	header := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21"), family, 0, size)
	header = append(append(header, addr.AsSlice()...), make([]byte, addr.BitLen()/8)...)
	return append(header, 0x12, 0x67, 0, 53), nil
}

// exchange sends the query and returns the reply.
func (q *question) exchange() (*dns.Msg, error) {
	switch q.net {
	case "udp", "tcp", "tcp-tls":
		c, err := q.connect()
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return q.exchangeOver(c)
	case "quic":
		return q.overQUIC()
	}
	return q.request()
}

// connect opens a connection for queries.
func (q *question) connect() (net.Conn, error) {
	network, withTLS := strings.CutSuffix(q.net, "-tls")
	c, err := q.dial(context.Background(), network, q.at)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(q.within))
	if withTLS {
		config := &tls.Config{InsecureSkipVerify: true}
		if q.cert != nil {
			config.Certificates = []tls.Certificate{*q.cert}
		}
		c = tls.Client(c, config)
	}
	return c, nil
}

func (q *question) exchangeOver(c net.Conn) (*dns.Msg, error) {
	conn := &dns.Conn{Conn: c, TsigSecret: q.secret, UDPSize: dns.MaxMsgSize}
	m := q.m.Copy() // the TSIG record is removed from it
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	reply, err := conn.ReadMsg()
	// The library does not verify the signature of a reply NOTAUTH, which an update may have for its zone.
	if errors.Is(err, dns.ErrAuth) && reply.Rcode == dns.RcodeNotAuth {
		err = nil
	}
	if err == nil && reply.Id != q.m.Id {
		err = fmt.Errorf("got ID %d, want %d", reply.Id, q.m.Id)
	}
	return reply, err
}

// pack returns the query with an ID, signed if it has a TSIG record.
func (q *question) pack(id uint16) ([]byte, error) {
	m := q.m.Copy()
	m.Id = id
	for _, secret := range q.secret {
		m.IsTsig().OrigId = id
		packet, _, err := dns.TsigGenerate(m, secret, "", false)
		return packet, err
	}
	return m.Pack()
}

// overQUIC sends the query over DNS over QUIC (RFC 9250).
func (q *question) overQUIC() (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), q.within)
	defer cancel()
	c, err := quic.DialAddr(ctx, q.at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}}, nil)
	if err != nil {
		return nil, err
	}
	defer c.CloseWithError(0, "")
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}

	packet, err := q.pack(0)
	if err == nil {
		_, err = s.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...))
	}
	if err != nil {
		return nil, err
	}
	_ = s.Close()
	_ = s.SetReadDeadline(time.Now().Add(q.within))
	body, err := io.ReadAll(s)
	if err != nil || len(body) < 2 {
		return nil, fmt.Errorf("got %d bytes, error %w", len(body), err)
	}
	reply := new(dns.Msg)
	return reply, reply.Unpack(body[2:])
}

// dial connects, and sends the PROXY header.
func (q *question) dial(ctx context.Context, network, at string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, at)
	if err != nil || q.proxy == nil {
		return c, err
	}
	if u, ok := c.(*net.UDPConn); ok && !q.alone {
		return &proxiedUDP{u, q.proxy}, nil
	}
	_, err = c.Write(q.proxy)
	return c, err
}

// A proxiedUDP writes a header in front of each datagram.
type proxiedUDP struct {
	*net.UDPConn
	header []byte
}

func (c *proxiedUDP) Write(p []byte) (int, error) {
	n, err := c.UDPConn.Write(slices.Concat(c.header, p))
	return max(0, n-len(c.header)), err
}

// request sends the query in a request of HTTP or gRPC.
func (q *question) request() (*dns.Msg, error) {
	packet, err := q.pack(q.m.Id)
	if err != nil {
		return nil, err
	}
	isGRPC := strings.HasPrefix(q.net, "grpc")
	scheme, path, contentType := "https", "/dns-query", "application/dns-message"
	if isGRPC {
		packet, path, contentType = grpcmessage.Append(nil, packet), grpcmessage.Path, grpcmessage.ContentType
	}
	if q.net == "http" || q.net == "grpc+h2c" {
		scheme = "http"
	}

	protocols := new(http.Protocols)
	protocols.SetHTTP1(!isGRPC)
	protocols.SetHTTP2(scheme == "https")
	protocols.SetUnencryptedHTTP2(q.net == "grpc+h2c")
	transport := &http.Transport{
		Protocols: protocols, DialContext: q.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Timeout: q.within, Transport: transport}
	if q.net == "h3" {
		over := &http3.Transport{TLSClientConfig: transport.TLSClientConfig}
		defer over.Close()
		client.Transport = over
	}
	post, err := http.NewRequest(http.MethodPost, scheme+"://"+q.at+path, bytes.NewReader(packet))
	if err != nil {
		return nil, err
	}
	post.Header = q.header.Clone()
	post.Header.Set("Content-Type", contentType)
	r, err := client.Do(post)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("got status %d\n%s", r.StatusCode, body)
	}
	if err == nil && isGRPC {
		if body, err = grpcmessage.Parse(body); err != nil {
			err = fmt.Errorf("%w; status %s%s", err, r.Header.Get("Grpc-Status"), r.Trailer.Get("Grpc-Status"))
		}
	}
	if err != nil {
		return nil, err
	}
	reply := new(dns.Msg)
	return reply, reply.Unpack(body)
}
