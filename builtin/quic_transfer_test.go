package builtin

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

const transferSecret = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="

const zoneCorefile = `quic://. {
    tls cert.pem key.pem
    tsig . {
        secret key. ` + transferSecret + `
        require AXFR IXFR
    }
    file zone example.
    file small small.
    transfer {
        to *
    }
}
`

// serveZone serves example., whose transfers are many messages, over QUIC. Transfers need a
// signature.
func serveZone(t *testing.T) *encrypted {
	s := serveEncrypted(t, "quic://. {"+answersExample)
	var zone strings.Builder
	zone.WriteString("$ORIGIN example.\n@ 300 IN SOA ns mail 5 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n")
	for i := range 5000 {
		fmt.Fprintf(&zone, "h%d 300 IN TXT \"%s\"\n", i, strings.Repeat("x", 100))
	}
	for file, text := range map[string]string{"zone": zone.String(), "small": "$ORIGIN small.\n@ 300 IN SOA ns mail 5 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.load(zoneCorefile)
	return s
}

// messagesOn returns the messages of a stream up to its end.
func messagesOn(s *quic.Stream) (messages [][]byte, err error) {
	all, err := io.ReadAll(s)
	for err == nil && len(all) > 0 {
		if len(all) < 2 || len(all)-2 < int(binary.BigEndian.Uint16(all)) {
			return nil, fmt.Errorf("incomplete message after %d others", len(messages))
		}
		end := 2 + int(binary.BigEndian.Uint16(all))
		messages = append(messages, all[2:end])
		all = all[end:]
	}
	return messages, err
}

// signed returns a query with a signature, and its MAC.
func signed(t *testing.T, m *mdns.Msg) (packet []byte, mac string) {
	t.Helper()
	m.Id = 0
	m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Unix())
	packet, mac, err := mdns.TsigGenerate(m, transferSecret, "", false)
	if err != nil {
		t.Fatal(err)
	}
	return packet, mac
}

// readTransfer reads a transfer of n records. It checks the ID and the signature of each message.
func readTransfer(s *quic.Stream, mac string, n int) error {
	messages, err := messagesOn(s)
	if err != nil {
		return err
	}
	var records []mdns.RR
	for i, packet := range messages {
		m := new(mdns.Msg)
		// TsigVerify changes the packet.
		if err := m.Unpack(slices.Clone(packet)); err != nil || m.Id != 0 || m.Rcode != mdns.RcodeSuccess || m.IsTsig() == nil {
			return fmt.Errorf("message %d: got %v, error %v; want the ID 0 and a signature", i, m, err)
		}
		if err := mdns.TsigVerify(packet, transferSecret, mac, i > 0); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		mac = m.IsTsig().MAC
		records = append(records, m.Answer...)
	}
	if len(records) != n || len(messages) < 2 && n > 1 || records[0].Header().Rrtype != mdns.TypeSOA || records[n-1].Header().Rrtype != mdns.TypeSOA {
		return fmt.Errorf("got %d records in %d messages, want %d between SOA records", len(records), len(messages), n)
	}
	return nil
}

// A transfer is one stream with many messages (RFC 9250 §4.2), beside others of the connection.
func TestQUICTransfer(t *testing.T) {
	s := serveZone(t)
	c := s.dialQUIC(nil)
	type transfer struct {
		stream  *quic.Stream
		mac     string
		records int
	}
	var transfers []transfer
	for range 3 {
		packet, mac := signed(t, new(mdns.Msg).SetAxfr("example."))
		transfers = append(transfers, transfer{c.stream(withLength(packet)), mac, 5004})
		packet, mac = signed(t, new(mdns.Msg).SetIxfr("example.", 5, "ns.example.", "mail.example."))
		transfers = append(transfers, transfer{c.stream(withLength(packet)), mac, 1})
	}
	c.mustAnswer("h1.example.")
	var reading sync.WaitGroup // at the same time, since they share the connection's window
	for i, x := range transfers {
		reading.Go(func() {
			_ = x.stream.Close()
			if err := readTransfer(x.stream, x.mac, x.records); err != nil {
				t.Errorf("transfer %d: %v", i, err)
			}
		})
	}
	reading.Wait()
	unsigned := new(mdns.Msg).SetAxfr("example.")
	unsigned.Id = 0
	packet, err := unsigned.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.exchange(t.Context(), packet); err != nil || m.Rcode != mdns.RcodeRefused {
		t.Errorf("AXFR without a signature: got reply %v, error %v; want REFUSED", m, err)
	}
	c.mustAnswer("h1.example.")
	// A transfer of one message: of 39 messages kdig 3.2 sometimes reports fewer.
	out := s.run("kdig", "+quic", "@127.0.0.1", "-p", s.port(0), "-y", "hmac-sha256:key.:"+transferSecret, "AXFR", "small.")
	if !strings.Contains(out, "1 messages, 4 records") || strings.Contains(out, "WARNING") {
		t.Errorf("kdig: got\n%s\nwant 4 records", out)
	}
}

// A client that stops reading a transfer gets a reset after the write timeout. Its other queries
// are answered.
func TestQUICTransferSlowReader(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	s := serveZone(t)
	s.load(strings.Replace(zoneCorefile, "tls", "timeouts {\n write 1s\n }\n tls", 1))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := quic.DialAddr(ctx, "127.0.0.1:"+s.port(0), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}},
		&quic.Config{InitialStreamReceiveWindow: 20000, MaxStreamReceiveWindow: 20000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseWithError(0, "") }()
	c := doqClient{t, conn}
	packet, _ := signed(t, new(mdns.Msg).SetAxfr("example."))
	stream := c.stream(withLength(packet))
	_ = stream.Close()
	s.eventually("the transfer is given up", func() bool {
		var text strings.Builder
		_ = s.metrics.WriteText(&text)
		return strings.Contains(text.String(), `closed_total{why="slow_reader"} 1`)
	})
	c.mustAnswer("h1.example.")
	var reset *quic.StreamError
	if _, err := io.ReadAll(stream); !errors.As(err, &reset) || reset.ErrorCode != 4 {
		t.Errorf("the transfer: got %v, want a reset with DOQ_EXCESSIVE_LOAD", err)
	}
}

// Clients that leave a transfer do not disturb others.
func TestQUICTransferCancelled(t *testing.T) {
	s := serveZone(t)
	c := s.dialQUIC(nil)
	packet, mac := signed(t, new(mdns.Msg).SetAxfr("example."))
	for i := range 50 {
		stream := c.stream(withLength(packet))
		_ = stream.Close()
		if i%2 == 0 {
			if _, err := io.ReadFull(stream, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		stream.CancelRead(3) // DOQ_REQUEST_CANCELLED
	}
	stream := c.stream(withLength(packet))
	_ = stream.Close()
	if err := readTransfer(stream, mac, 5004); err != nil {
		t.Error(err)
	}
}

// Replies to padded queries are padded to multiples of 468 bytes, others are not padded (RFC
// 9250 §5.4, RFC 8467 §4.1).
func TestQUICPadding(t *testing.T) {
	s := serveZone(t)
	c := s.dialQUIC(nil)
	for _, name := range []string{"h1.example.", "example.", strings.Repeat("long.", 40) + "example.", "elsewhere."} {
		for _, padding := range []int{-1, 0, 1, 100, 2000} {
			m := new(mdns.Msg).SetQuestion(name, mdns.TypeTXT)
			m.Id = 0
			m.SetEdns0(1232, false)
			if padding >= 0 {
				m.IsEdns0().Option = append(m.IsEdns0().Option, &mdns.EDNS0_PADDING{Padding: make([]byte, padding)})
			}
			packet, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			stream := c.stream(withLength(packet))
			_ = stream.Close()
			messages, err := messagesOn(stream)
			if err != nil || len(messages) != 1 {
				t.Fatalf("%s: got %d messages, error %v; want one", name, len(messages), err)
			}
			if padded := len(messages[0])%468 == 0; padded != (padding >= 0) {
				t.Errorf("%s, padding of %d bytes (-1 is none): got a reply of %d bytes", name, padding, len(messages[0]))
			}
		}
	}
}
