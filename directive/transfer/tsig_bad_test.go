package transfer_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
)

// exchangePacket sends a packet and returns the reply, over UDP or TCP.
func exchangePacket(t *testing.T, network string, at netip.AddrPort, packet []byte) *mdns.Msg {
	t.Helper()
	conn, err := mdns.DialTimeout(network, at.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(packet); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 65535)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	r := new(mdns.Msg)
	if err := r.Unpack(buf[:n]); err != nil {
		t.Fatal(err)
	}
	return r
}

// signedQuery returns a query with a signature of some age, and its MAC.
func signedQuery(t *testing.T, name string, key, secret string, age time.Duration) (packet []byte, mac string) {
	t.Helper()
	m := new(mdns.Msg).SetQuestion(name, mdns.TypeA)
	m.SetTsig(key, mdns.HmacSHA256, 300, time.Now().Add(-age).Unix())
	packet, mac, err := mdns.TsigGenerate(m, secret, "", false)
	if err != nil {
		t.Fatal(err)
	}
	return packet, mac
}

// Forged, recorded and late queries are refused over UDP and TCP, with the error and the times
// of RFC 8945 §5.2. A reply is signed unless the key or the MAC is wrong.
func TestTSIGBadQueries(t *testing.T) {
	at := freePort(t)
	run(t, at, "example.org {\n tsig {\n secret key.example. "+secret+"\n require all\n}\n whoami\n}")
	valid, validMAC := signedQuery(t, "a.example.org.", "key.example.", secret, 0)
	late, lateMAC := signedQuery(t, "a.example.org.", "key.example.", secret, 301*time.Second)
	early, earlyMAC := signedQuery(t, "a.example.org.", "key.example.", secret, -303*time.Second)
	unknown, _ := signedQuery(t, "a.example.org.", "other.example.", secret, 0)
	otherName, otherType, otherTime := bytes.Clone(valid), bytes.Clone(valid), bytes.Clone(valid)
	otherName[13] ^= 1 // a.example.org. becomes another name
	otherType[12+15+1] = byte(mdns.TypeTXT)
	mac, err := hex.DecodeString(validMAC)
	if err != nil {
		t.Fatal(err)
	}
	otherTime[bytes.Index(valid, mac)-5] ^= 1 // the last byte of the time, before the fudge and the size of the MAC
	forged := bytes.Clone(valid)
	forged[bytes.Index(valid, mac)] ^= 0x80
	for _, network := range []string{"udp", "tcp"} {
		for name, c := range map[string]struct {
			packet  []byte
			mac     string // of the query if the reply is signed
			failure uint16
		}{
			"valid": {valid, validMAC, mdns.RcodeSuccess}, "recorded": {valid, validMAC, mdns.RcodeSuccess},
			"forged MAC": {forged, "", mdns.RcodeBadSig}, "other name": {otherName, "", mdns.RcodeBadSig}, "other type": {otherType, "", mdns.RcodeBadSig}, "other time": {otherTime, "", mdns.RcodeBadSig},
			"unknown key": {unknown, "", mdns.RcodeBadKey}, "recorded too long ago": {late, lateMAC, mdns.RcodeBadTime}, "in the future": {early, earlyMAC, mdns.RcodeBadTime},
		} {
			r := exchangePacket(t, network, at, c.packet)
			s := r.IsTsig()
			want := mdns.RcodeNotAuth
			if c.failure == 0 {
				want = mdns.RcodeSuccess
			}
			if s == nil || s.Error != c.failure || r.Rcode != want || c.failure != 0 && len(r.Answer) > 0 {
				t.Errorf("%s over %s: got\n%v\nwant %s with error %d", name, network, r, mdns.RcodeToString[want], c.failure)
				continue
			}
			if c.mac == "" {
				if s.MACSize != 0 {
					t.Errorf("%s over %s: got a signed reply, want no MAC", name, network)
				}
				continue
			}
			if s.MACSize != 32 {
				t.Errorf("%s over %s: got a MAC of %d bytes, want 32", name, network, s.MACSize)
			}
			if c.failure != mdns.RcodeBadTime {
				continue
			}
			sent := new(mdns.Msg)
			if err := sent.Unpack(c.packet); err != nil {
				t.Fatal(err)
			}
			other, err := hex.DecodeString(s.OtherData)
			if err != nil || len(other) != 6 || s.TimeSigned != sent.IsTsig().TimeSigned {
				t.Errorf("%s over %s: got time %d and other data %q, want the query's time and 6 bytes", name, network, s.TimeSigned, s.OtherData)
				continue
			}
			if now := time.Unix(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, other...))), 0); time.Since(now).Abs() > 20*time.Second {
				t.Errorf("%s over %s: got server time %v, want the present", name, network, now)
			}
		}
	}
}

// A secondary with a key rejects the replies of a primary that are not signed, signed with
// another secret, or signed long ago, and serves nothing.
func TestTSIGBadReplies(t *testing.T) {
	for name, c := range map[string]struct {
		sign func(m *mdns.Msg, requestMAC string) ([]byte, error)
		want string // in the log
	}{
		"not signed": {func(m *mdns.Msg, _ string) ([]byte, error) { return m.Pack() }, "the reply is not signed"},
		"another secret": {func(m *mdns.Msg, mac string) ([]byte, error) {
			m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Unix())
			packet, _, err := mdns.TsigGenerate(m, "AAAA", mac, false)
			return packet, err
		}, "the signature of the reply is not valid"},
		"without the MAC of the query": {func(m *mdns.Msg, _ string) ([]byte, error) {
			m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Unix())
			packet, _, err := mdns.TsigGenerate(m, secret, "", false)
			return packet, err
		}, "the signature of the reply is not valid"},
		"an hour ago": {func(m *mdns.Msg, mac string) ([]byte, error) {
			m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Add(-time.Hour).Unix())
			packet, _, err := mdns.TsigGenerate(m, secret, mac, false)
			return packet, err
		}, "the signature of the reply is too old, or from the future: it is from "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := &mdns.Server{Listener: l, TsigSecret: map[string]string{"key.": secret}, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
				if q.IsTsig() == nil || w.TsigStatus() != nil {
					t.Errorf("got query %v, %v, want a valid signature", q, w.TsigStatus())
					return
				}
				soa, _ := mdns.NewRR("example.org. 60 SOA ns. host. 1 60 60 600 60")
				a, _ := mdns.NewRR("www.example.org. 60 A 192.0.2.1")
				m := new(mdns.Msg).SetReply(q)
				m.Answer = []mdns.RR{soa, a, soa}
				packet, err := c.sign(m, q.IsTsig().MAC)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = w.Write(packet)
			})}
			done := make(chan struct{})
			go func() { defer close(done); _ = s.ActivateAndServe() }()
			t.Cleanup(func() { _ = l.Close(); <-done })
			at := freePort(t)
			log := run(t, at, fmt.Sprintf("example.org {\n tsig {\n secret key. %s\n}\n secondary {\n transfer from %s\n key key.\n}\n}", secret, l.Addr()))
			eventually(t, func() string {
				if text := log.String(); !strings.Contains(text, "Failed to transfer zone") || !strings.Contains(text, c.want) {
					return "no error with " + c.want + " is logged: " + text
				}
				return ""
			})
			if got := answer(at, "www.example.org."); got != "SERVFAIL" {
				t.Errorf("got answer %s, want SERVFAIL", got)
			}
		})
	}
}

// When the file of keys changes while the server runs, a secondary and NOTIFY messages use the
// new secret: the zone follows its primary, whose file changes, too.
func TestTSIGSecretsFileOfTransfers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	db, keys := filepath.Join(dir, "db"), filepath.Join(dir, "keys")
	text := func(secret string) string {
		return fmt.Sprintf("key \"key.example.\" { algorithm hmac-sha256; secret %q; };\n", secret)
	}
	write(t, db, zoneFile(1, 9))
	write(t, keys, text(secret))
	primary, copied := freePort(t), freePort(t)
	from := run(t, primary, fmt.Sprintf("example.org {\n tsig {\n secrets %s\n require all\n}\n file %s\n transfer {\n to %s\n key key.example.\n}\n}", keys, db, copied))
	log := run(t, copied, fmt.Sprintf("example.org {\n tsig {\n secrets %s\n require_opcode NOTIFY\n}\n secondary {\n transfer from %s\n key key.example.\n}\n}", keys, primary))
	await := func(serial uint32) {
		t.Helper()
		eventually(t, func() string {
			if got := soa(copied, "example.org."); got != serial {
				return fmt.Sprintf("got serial number %d, want %d\n%s%s", got, serial, log, from)
			}
			return ""
		})
	}
	await(1)
	for serial := 2; serial < 6; serial++ {
		secret := fmt.Sprintf("c2VjcmV0LW5vLiUwMDE%d", serial)
		write(t, keys, text(secret))
		for _, l := range []*chaintest.Log{from, log} {
			eventually(t, func() string {
				if n := strings.Count(l.String(), "tsig: Read keys"); n < serial-1 {
					return fmt.Sprintf("the file was read %d times\n%s", n, l)
				}
				return ""
			})
		}
		write(t, db, zoneFile(serial, 9))
		await(uint32(serial))
	}
}
