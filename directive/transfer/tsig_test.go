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

const secret = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="

// Queries are verified as another implementation signs them, over UDP and TCP, and the
// replies are signed.
func TestTSIG(t *testing.T) {
	at := freePort(t)
	run(t, at, "example.org {\n tsig {\n secret key.example. "+secret+"\n require TXT\n}\n whoami\n}")
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct {
			name, secret string
			age          time.Duration
			rcode        int
			failure      uint16
		}{
			{"key.example.", secret, 0, mdns.RcodeSuccess, 0},
			{"KEY.example.", secret, 0, mdns.RcodeSuccess, 0},
			{"key.example.", "AAAA", 0, mdns.RcodeNotAuth, mdns.RcodeBadSig},
			{"other.example.", secret, 0, mdns.RcodeNotAuth, mdns.RcodeBadKey},
			{strings.Repeat(strings.Repeat("k", 49)+".", 5), secret, 0, mdns.RcodeNotAuth, mdns.RcodeBadKey},
			{"key.example.", secret, time.Hour, mdns.RcodeNotAuth, mdns.RcodeBadTime},
		} {
			m := new(mdns.Msg).SetQuestion("a.example.org.", mdns.TypeA)
			m.SetTsig(c.name, mdns.HmacSHA256, 300, time.Now().Add(-c.age).Unix())
			client := mdns.Client{Net: network, Timeout: patience, TsigSecret: map[string]string{c.name: c.secret, strings.ToLower(c.name): c.secret}}
			r, _, err := client.Exchange(m, at.String())
			if r == nil || r.Rcode != c.rcode || r.IsTsig() == nil || r.IsTsig().Error != c.failure || c.rcode == 0 && err != nil {
				t.Errorf("%s %s, %s old, over %s: got %v, %v, want %s with error %d", c.name, c.secret, c.age, network, r, err, mdns.RcodeToString[c.rcode], c.failure)
			}
		}
		r, _, err := (&mdns.Client{Net: network, Timeout: patience}).Exchange(new(mdns.Msg).SetQuestion("a.example.org.", mdns.TypeTXT), at.String())
		if err != nil || r.Rcode != mdns.RcodeRefused {
			t.Errorf("TXT without a signature over %s: got %v, %v, want REFUSED", network, r, err)
		}
	}
}

// Knot, NSD and BIND, and a secondary, copy a zone with signed transfers and NOTIFY. Another
// secondary copies it from them.
func TestTSIGFollowers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	key := &tsigKey{"key.example.", secret}
	for name, d := range daemons {
		t.Run(name, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "db")
			write(t, db, zoneFile(1, 2999))
			primary, follower, copied, second := freePort(t), freePort(t), freePort(t), freePort(t)
			text := "example.org {\n tsig {\n secret key.example. " + secret + "\n require AXFR IXFR SOA\n require_opcode NOTIFY\n}\n"
			run(t, primary, fmt.Sprintf("%s file %s\n transfer {\n to %s %s\n key key.example.\n}\n}", text, db, follower, copied))
			run(t, copied, fmt.Sprintf("example.org {\n tsig {\n secret key.example. %s\n require_opcode NOTIFY\n}\n secondary {\n transfer from %s\n key key.example.\n}\n transfer {\n to *\n}\n}", secret, primary))
			d.follow(t, follower, primary, key, "example.org")
			for serial := uint32(1); serial < 3; serial++ {
				if serial > 1 {
					write(t, db, zoneFile(int(serial), 2999))
				}
				for _, at := range []string{"follower", "copy"} {
					eventually(t, func() string {
						if at == "copy" && soa(copied, "example.org.") != serial || at != "copy" && soa(follower, "example.org.") != serial {
							return at + " has another serial number"
						}
						return same(copied, follower, "example.org.")
					})
				}
			}
			log := run(t, second, fmt.Sprintf("example.org {\n tsig {\n secret key.example. %s\n}\n secondary {\n transfer from %s\n key key.example.\n}\n transfer {\n to *\n}\n}", secret, follower))
			eventually(t, func() string {
				if why := differs(follower, second, 2); why != "" {
					return why + "\n" + log.String()
				}
				return ""
			})
		})
	}
}

// A changed file of keys takes effect at once. If it is not valid, the previous keys stay.
func TestTSIGSecretsFile(t *testing.T) {
	const second = "ab//CD/8" // not a comment
	file := filepath.Join(t.TempDir(), "keys")
	text := func(secret string) string {
		return fmt.Sprintf("// comment\nkey \"key.example.\" { algorithm hmac-sha256; # comment\n secret %q; };\n/* comment */", secret)
	}
	write(t, file, text(secret))
	at := freePort(t)
	log := run(t, at, "example.org {\n tsig {\n secrets "+file+"\n require all\n}\n whoami\n}")
	accepted := func(secret string) string {
		m := new(mdns.Msg).SetQuestion("a.example.org.", mdns.TypeA)
		m.SetTsig("key.example.", mdns.HmacSHA256, 300, time.Now().Unix())
		client := mdns.Client{Timeout: patience, TsigSecret: map[string]string{"key.example.": secret}}
		r, _, err := client.Exchange(m, at.String())
		if err != nil || r.Rcode != mdns.RcodeSuccess {
			return fmt.Sprintf("secret %s: got %v, %v\n%s", secret, r, err, log)
		}
		return ""
	}
	if why := accepted(secret); why != "" {
		t.Fatal(why)
	}
	write(t, file, text(second))
	eventually(t, func() string { return accepted(second) })
	if why := accepted(secret); why == "" {
		t.Error("the previous secret is still accepted")
	}
	for _, invalid := range []string{"", "key", text("?"), `key a { secret "` + secret + `"; } key a { secret "` + secret + `"; }`} {
		write(t, file, invalid)
	}
	write(t, file, "invalid")
	eventually(t, func() string {
		if !strings.Contains(log.String(), "tsig: Failed to read keys") {
			return "no error is logged"
		}
		return ""
	})
	if why := accepted(second); why != "" {
		t.Error(why)
	}
}

// A reload of the Corefile with another secret takes effect for a copied zone.
func TestTSIGSecretReload(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(1, 9))
	primary, at := freePort(t), freePort(t)
	run(t, primary, fmt.Sprintf("example.org {\n tsig {\n secret key. %s\n require all\n}\n file %s\n transfer {\n to *\n}\n}", secret, db))
	text := func(secret string) string {
		return fmt.Sprintf("example.org {\n tsig {\n secret key. %s\n}\n secondary {\n transfer from %s\n key key.\n}\n}", secret, primary)
	}
	old, log := serve(t, at, nil, text("AAAA"))
	eventually(t, func() string {
		if !strings.Contains(log.String(), "BADSIG") {
			return "the primary does not reject the key: " + log.String()
		}
		return ""
	})
	plan, log := serve(t, at, old, text(secret))
	defer func() { plan.Stop(t.Context()) }()
	eventually(t, func() string {
		if got := soa(at, "example.org."); got != 1 {
			return fmt.Sprintf("got serial number %d, want 1: %s", got, log)
		}
		return ""
	})
}

// A NOTIFY message is repeated until a reply has a valid signature.
func TestTSIGNotifyReply(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	key := map[string]string{"key.": secret}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	type message struct{ valid, signed bool }
	messages := make(chan message, 9)
	count := 0
	s := &mdns.Server{PacketConn: conn, TsigSecret: key, MsgAcceptFunc: func(mdns.Header) mdns.MsgAcceptAction { return mdns.MsgAccept }, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, m *mdns.Msg) {
		reply := new(mdns.Msg).SetReply(m)
		if count++; count > 1 {
			reply.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Unix())
		}
		messages <- message{m.IsTsig() != nil && w.TsigStatus() == nil, count > 1}
		_ = w.WriteMsg(reply)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, zoneFile(1, 9))
	run(t, freePort(t), fmt.Sprintf("example.org {\n tsig {\n secret key. %s\n}\n file %s\n transfer {\n to %s\n key key.\n}\n}", secret, db, conn.LocalAddr()))
	for _, want := range []message{{true, false}, {true, true}} {
		select {
		case got := <-messages:
			if got != want {
				t.Errorf("got message %+v, want %+v", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("no NOTIFY message arrived")
		}
	}
	// A third message may be on its way when the signed reply arrives.
	for n := range 2 {
		select {
		case got := <-messages:
			if n > 0 {
				t.Errorf("got message %+v after a signed reply", got)
			}
		case <-time.After(time.Duration(3+2*n) * time.Second): // the third is sent after two seconds, the fourth after four
			return
		}
	}
}
