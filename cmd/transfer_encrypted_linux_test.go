package cmd_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/memorygroup"
)

// An encryptedPrimary is a server of 64 MB that lets everyone transfer a zone over TLS and QUIC.
type encryptedPrimary struct {
	*testing.T
	process  *process
	group    *memorygroup.Group
	tls, doq string // addresses
	pages    string
	records  int // of a transfer
}

// encryptedRecords is the number of records of the zone beside SOA records: more than the kernel's buffers hold.
const encryptedRecords = 20_000

func newEncryptedPrimary(t *testing.T, binary, writeTimeout string) *encryptedPrimary {
	t.Helper()
	dir := t.TempDir()
	s := &encryptedPrimary{T: t, group: memorygroup.New(t, 64<<20), records: encryptedRecords + 2}
	port := func() string { return "127.0.0.1:" + freeport.Reserve(t) }
	s.tls, s.doq, s.pages = port(), port(), port()

	var zone strings.Builder
	zone.WriteString("$ORIGIN example.org.\n@ 60 IN SOA ns admin 1 3600 600 86400 60\n@ 60 IN NS ns\n")
	for i := range encryptedRecords - 1 {
		fmt.Fprintf(&zone, "host%d 60 IN TXT %q\n", i, strings.Repeat("x", 100))
	}
	write(t, filepath.Join(dir, "zone"), zone.String())
	writeCertificate(t, dir)
	_, tlsPort, _ := net.SplitHostPort(s.tls)
	_, doqPort, _ := net.SplitHostPort(s.doq)
	s.process = startInGroupAt(t, s.group, binary, dir, fmt.Sprintf(`example.org:0 tls://example.org:%s quic://example.org:%s {
    bind 127.0.0.1
    tls cert.pem key.pem
    timeouts {
        write %s
    }
    prometheus %s
    file zone
    transfer {
        to *
    }
}
`, tlsPort, doqPort, writeTimeout, s.pages))
	return s
}

// axfr returns the query of a transfer with its length.
func axfr() []byte {
	m := new(dns.Msg).SetAxfr("example.org.")
	m.Id = 0
	packet, _ := m.Pack()
	return framed(packet)
}

func (s *encryptedPrimary) dialTLS(client string) (net.Conn, error) {
	s.Helper()
	tcp, err := dialFrom(client, s.tls)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { tcp.Close() })
	return tls.Client(tcp, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"dot"}}), nil
}

// slowTLS begins a transfer on a connection with a small buffer. It returns nil if the server refuses it, which has
// no room for so many of one client.
func (s *encryptedPrimary) slowTLS(client string) *tls.Conn {
	s.Helper()
	conn, err := s.dialTLS(client)
	if err != nil {
		return nil
	}
	secure := conn.(*tls.Conn)
	_ = secure.NetConn().(*net.TCPConn).SetReadBuffer(4096)
	_, _ = secure.Write(axfr())
	return secure
}

func (s *encryptedPrimary) dialQUIC(client string, config *quic.Config) (*quic.Conn, error) {
	s.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(client)})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { socket.Close() })
	to, err := net.ResolveUDPAddr("udp", s.doq)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	return quic.Dial(ctx, socket, to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}}, config)
}

// stream begins a transfer over QUIC.
func (s *encryptedPrimary) stream(conn *quic.Conn) *quic.Stream {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		s.Fatal(err)
	}
	_, _ = stream.Write(axfr())
	_ = stream.Close()
	return stream
}

// read reads a transfer, and fails the test unless it is complete.
func (s *encryptedPrimary) read(when string, r io.Reader) {
	s.Helper()
	records, soas := 0, 0
	for soas < 2 {
		var size [2]byte
		_, err := io.ReadFull(r, size[:])
		packet := make([]byte, binary.BigEndian.Uint16(size[:]))
		if err == nil {
			_, err = io.ReadFull(r, packet)
		}
		m := new(dns.Msg)
		if err == nil {
			err = m.Unpack(packet)
		}
		if err == nil && len(m.Answer) == 0 {
			err = fmt.Errorf("a message without records: %v", m)
		}
		if err != nil {
			s.Errorf("transfer %s: after %d records: %v", when, records, err)
			return
		}
		records += len(m.Answer)
		for _, rr := range m.Answer {
			if _, ok := rr.(*dns.SOA); ok {
				soas++
			}
		}
	}
	if records != s.records {
		s.Errorf("transfer %s: got %d records, want %d", when, records, s.records)
	}
}

// transfers fails the test unless another client has its transfers, and answers.
func (s *encryptedPrimary) transfers(client, when string) {
	s.Helper()
	overTLS, err := s.dialTLS(client)
	if err != nil {
		s.Fatalf("%s: %v", when, err)
	}
	_ = overTLS.SetDeadline(time.Now().Add(time.Minute))
	if _, err := overTLS.Write(axfr()); err != nil {
		s.Errorf("%s: %v", when, err)
	}
	s.read("over TLS, "+when, overTLS)
	_ = overTLS.Close()

	conn, err := s.dialQUIC(client, nil)
	if err != nil {
		s.Fatalf("%s: %v", when, err)
	}
	stream := s.stream(conn)
	_ = stream.SetReadDeadline(time.Now().Add(time.Minute))
	s.read("over QUIC, "+when, stream)
	_ = conn.CloseWithError(0, "")

	if reply, err := ask("udp", s.process.ports[0], "host1.example.org.", dns.TypeTXT); err != nil || len(reply.Answer) != 1 {
		s.Errorf("%s: got %v, error %v, want a record", when, reply, err)
	}
}

func (s *encryptedPrimary) metric(series string) (value float64) {
	s.Helper()
	return seriesValue(s.T, s.pages, series)
}

// seriesValue returns the value of a series at an address for pages.
func seriesValue(t *testing.T, pages, series string) (value float64) {
	t.Helper()
	page, err := probe("127.0.0.9", "http://"+pages+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			_, _ = fmt.Sscan(rest, &value)
		}
	}
	return value
}

// slowReaders are ways to keep a server from finishing a transfer, or a connection that may ask for one.
var slowReaders = map[string]func(s *encryptedPrimary, client string, n int){
	"TLS, nothing is read": func(s *encryptedPrimary, client string, n int) {
		for range n {
			s.slowTLS(client)
		}
	},
	"TLS, a byte a second": func(s *encryptedPrimary, client string, n int) {
		for range n {
			if conn := s.slowTLS(client); conn != nil {
				go readByteASecond(s.Context(), conn)
			}
		}
	},
	"TLS, one connection asks again and again": func(s *encryptedPrimary, client string, n int) {
		if conn := s.slowTLS(client); conn != nil {
			for range n - 1 {
				_, _ = conn.Write(axfr())
			}
		}
	},
	"TLS, half of the handshake": func(s *encryptedPrimary, client string, n int) {
		for range n {
			tcp, err := dialFrom(client, s.tls)
			if err != nil {
				continue
			}
			s.Cleanup(func() { tcp.Close() })
			_, _ = io.WriteString(tcp, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
		}
	},
	"TLS, the sending half is closed": func(s *encryptedPrimary, client string, n int) {
		for range n {
			if conn := s.slowTLS(client); conn != nil {
				_ = conn.CloseWrite()
			}
		}
	},
	"QUIC, many connections, nothing is read": func(s *encryptedPrimary, client string, n int) {
		for range n {
			if conn, err := s.dialQUIC(client, &quic.Config{KeepAlivePeriod: time.Second}); err == nil {
				s.stream(conn)
			}
		}
	},
	"QUIC, many streams, no credit": func(s *encryptedPrimary, client string, n int) {
		conn, err := s.dialQUIC(client, &quic.Config{
			KeepAlivePeriod: time.Second, InitialStreamReceiveWindow: 1, MaxStreamReceiveWindow: 1,
			InitialConnectionReceiveWindow: 1, MaxConnectionReceiveWindow: 1,
		})
		if err != nil {
			s.Fatal(err)
		}
		for range n {
			s.stream(conn)
		}
	},
	"QUIC, a byte a second": func(s *encryptedPrimary, client string, n int) {
		conn, err := s.dialQUIC(client, &quic.Config{KeepAlivePeriod: time.Second})
		if err != nil {
			s.Fatal(err)
		}
		for range n {
			go readByteASecond(s.Context(), s.stream(conn))
		}
	},
}

// readByteASecond reads until the server ends the stream or the test ends.
func readByteASecond(ctx context.Context, r io.Reader) {
	for ctx.Err() == nil {
		if _, err := r.Read(make([]byte, 1)); err != nil {
			return
		}
		sleep(ctx, time.Second)
	}
}

// Ninety clients at one address that do not read their transfers over TLS or QUIC, or hardly, keep no other
// client from one, and what they leave unread is in the memory budget.
func TestEncryptedTransferSlowReaders(t *testing.T) {
	long(t)
	binary := buildServer(t)
	for name, begin := range slowReaders {
		t.Run(name, func(t *testing.T) {
			s := newEncryptedPrimary(t, binary, "5m")
			begin(s, "127.0.0.1", 90)
			s.transfers("127.0.0.2", "beside 90 slow readers")
			used, most := s.metric(`seamark_memory_used_bytes{part="replies"}`), s.metric(`seamark_memory_max_bytes{part="replies"}`)
			if used > most || used == 0 && !strings.Contains(name, "handshake") {
				t.Errorf("unsent replies: got %.0f bytes, want some, and %.0f at most", used, most)
			}
			if n := s.group.Kills(); n > 0 {
				t.Errorf("the kernel has killed %d processes", n)
			}
			t.Logf("%s: %.0f bytes of unsent replies", s.group, used)
		})
	}
}

// A transfer that its client does not read in time is ended, and so is a handshake.
func TestEncryptedTransferDeadline(t *testing.T) {
	long(t)
	s := newEncryptedPrimary(t, buildServer(t), "1s")
	for name, begin := range slowReaders {
		before := s.metric(`seamark_transport_connections_closed_total{why="slow_reader"}`)
		begin(s, "127.0.0.1", 1)
		if strings.Contains(name, "handshake") {
			continue
		}
		chaintest.Eventually(t, name+": the end of the transfer", func() bool {
			return s.metric(`seamark_transport_connections_closed_total{why="slow_reader"}`) > before
		})
	}
	chaintest.Eventually(t, "no memory of unsent replies", func() bool {
		return s.metric(`seamark_memory_used_bytes{part="replies"}`) == 0
	})
	s.transfers("127.0.0.1", "after slow readers")
}
