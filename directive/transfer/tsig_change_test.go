package transfer_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

const otherSecret = "c2VjcmV0LW5vLiUwMDE5"

// keyFile returns the text of a file with keys.
func keyFile(name, secret string) string {
	return fmt.Sprintf("key %q { algorithm hmac-sha256; secret %q; };\n", name, secret)
}

// signedAXFR returns a query for a transfer, and its MAC.
func signedAXFR(t *testing.T, secret string) (packet []byte, mac string) {
	t.Helper()
	m := new(mdns.Msg).SetAxfr("example.org.")
	m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Unix())
	packet, mac, err := mdns.TsigGenerate(m, secret, "", false)
	if err != nil {
		t.Fatal(err)
	}
	return packet, mac
}

// A transfer that has begun is signed to its end with the key of its query, when the key changes
// or is removed meanwhile. Further transfers need the present keys.
func TestTSIGKeyChangesDuringTransfer(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	for name, c := range map[string]struct {
		keys    string
		failure uint16
	}{
		"changed": {keyFile("key.", otherSecret), mdns.RcodeBadSig},
		"removed": {keyFile("other.", secret), mdns.RcodeBadKey},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, keys := filepath.Join(dir, "db"), filepath.Join(dir, "keys")
			var zone strings.Builder
			zone.WriteString(zoneFile(1, 0))
			zone.WriteString(manyTexts())
			write(t, db, zone.String())
			write(t, keys, keyFile("key.", secret))
			at := freePort(t)
			log := run(t, at, fmt.Sprintf("example.org {\n tsig {\n secrets %s\n require all\n}\n file %s\n transfer {\n to *\n}\n}", keys, db))

			conn, err := mdns.DialTimeout("tcp", at.String(), patience)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.Conn.(*net.TCPConn).SetReadBuffer(64 << 10)
			_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
			packet, mac := signedAXFR(t, secret)
			if _, err := conn.Write(packet); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 65535)
			for count, messages := 0, 0; count < 4000+12; messages++ {
				n, err := conn.Read(buf)
				m := new(mdns.Msg)
				if err == nil {
					err = m.Unpack(append([]byte(nil), buf[:n]...))
				}
				if err == nil && m.IsTsig() == nil {
					err = fmt.Errorf("not signed: %v", m.MsgHdr)
				}
				if err == nil {
					err = mdns.TsigVerify(buf[:n], secret, mac, messages > 0)
				}
				if err != nil {
					t.Fatalf("message %d, after %d records: %v", messages, count, err)
				}
				mac = m.IsTsig().MAC
				count += len(m.Answer)
				if messages > 0 {
					continue
				}
				write(t, keys, c.keys)
				eventually(t, func() string {
					if !strings.Contains(log.String(), "tsig: Read keys") {
						return "the keys are not read"
					}
					return ""
				})
				if strings.Contains(log.String(), "Sent zone") {
					t.Fatal("the transfer ended before the keys changed")
				}
			}
			packet, _ = signedAXFR(t, secret)
			if r := exchangePacket(t, "tcp", at, packet); r.Rcode != mdns.RcodeNotAuth || r.IsTsig() == nil || r.IsTsig().Error != c.failure || len(r.Answer) > 0 {
				t.Errorf("with the previous key: got %v, want NOTAUTH with error %d", r, c.failure)
			}
		})
	}
}

// A secondary whose key changes during a transfer verifies the rest with the key of its query.
func TestTSIGKeyChangesAtSecondary(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, keyFile("key.", secret))
	begun, changed := make(chan struct{}), make(chan struct{})
	s := &mdns.Server{Listener: l, TsigSecret: map[string]string{"key.": secret}, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		if q.IsTsig() == nil || w.TsigStatus() != nil {
			t.Errorf("got query %v, %v, want a valid signature", q, w.TsigStatus())
			return
		}
		mac := q.IsTsig().MAC
		for i, records := range [][]string{{"example.org. 60 SOA ns. host. 1 60 60 600 60", "www.example.org. 60 A 192.0.2.1"}, {"b.example.org. 60 A 192.0.2.2", "example.org. 60 SOA ns. host. 1 60 60 600 60"}} {
			m := new(mdns.Msg).SetReply(q)
			for _, text := range records {
				rr, _ := mdns.NewRR(text)
				m.Answer = append(m.Answer, rr)
			}
			m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Unix())
			packet, next, err := mdns.TsigGenerate(m, secret, mac, i > 0)
			if err != nil {
				t.Error(err)
				return
			}
			mac = next
			_, _ = w.Write(packet)
			if i == 0 {
				close(begun)
				<-changed
			}
		}
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = l.Close(); <-done })
	at := freePort(t)
	log := run(t, at, fmt.Sprintf("example.org {\n tsig {\n secrets %s\n}\n secondary {\n transfer from %s\n key key.\n}\n}", keys, l.Addr()))
	<-begun
	write(t, keys, keyFile("key.", otherSecret))
	eventually(t, func() string {
		if !strings.Contains(log.String(), "tsig: Read keys") {
			return "the keys are not read"
		}
		return ""
	})
	close(changed)
	eventually(t, func() string {
		if got := answer(at, "b.example.org."); got != "192.0.2.2" {
			return "got " + got + ": " + log.String()
		}
		return ""
	})
}
