//go:build linux

package builtin

import (
	"bytes"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// A way is a transport, with the address that the server has to take for the client's.
type way struct {
	name, client string
	send         func(packet []byte) (*mdns.Msg, error)
}

// ways returns each transport, and those with PROXY headers, also for a client that an acl allows.
func (s *encrypted) ways() (all []way) {
	for name, send := range s.transports() {
		all = append(all, way{name, "127.0.0.1", send})
	}
	for _, client := range []string{"192.0.2.7", "198.51.100.7"} {
		header := proxyV2(client + ":4711")
		send := map[string]func(packet []byte) (*mdns.Msg, error){
			"HTTPS": func(packet []byte) (*mdns.Msg, error) { return s.askHTTPS(header, packet) },
			"gRPC":  func(packet []byte) (*mdns.Msg, error) { return s.askGRPCFrom(header, packet) },
			"UDP": func(packet []byte) (*mdns.Msg, error) {
				c, err := net.Dial("udp", s.address("dns"))
				if err != nil {
					return nil, err
				}
				return exchange(c, append(bytes.Clone(header), packet...))
			},
		}
		for name, scheme := range map[string]string{"TCP": "dns", "TLS": "tls"} {
			send[name] = func(packet []byte) (*mdns.Msg, error) {
				c, err := net.Dial("tcp", s.address(scheme))
				if err == nil {
					_, err = c.Write(header)
				}
				if err != nil {
					return nil, err
				}
				if name == "TLS" {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				return exchange(c, packet)
			}
		}
		for name, send := range send {
			all = append(all, way{name + " with PROXY", client, send})
		}
	}
	return all
}

// recursive is an upstream over UDP and TCP. It answers TXT records with the name, and A records, except
// that none.example and names below no.search do not exist, and records what arrives.
type recursive struct {
	address string
	failing atomic.Bool // answers SERVFAIL
	mu      sync.Mutex
	arrived []*mdns.Msg
}

func newRecursive(t *testing.T) *recursive {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := &recursive{address: l.Addr().String()}
	for _, s := range []*mdns.Server{{Listener: l}, {PacketConn: packets}} {
		s.Handler, s.UDPSize = r, 1<<16-1
		s.MsgAcceptFunc = func(mdns.Header) mdns.MsgAcceptAction { return mdns.MsgAccept }
		s.MsgInvalidFunc = func(m []byte, err error) { t.Errorf("the upstream got %.100x: %v", m, err) }
		started, ended := make(chan struct{}), make(chan error, 1)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown(); <-ended })
	}
	return r
}

func (r *recursive) ServeDNS(w mdns.ResponseWriter, q *mdns.Msg) {
	r.mu.Lock()
	r.arrived = append(r.arrived, q)
	r.mu.Unlock()
	m := new(mdns.Msg).SetReply(q)
	if r.failing.Load() {
		m.Rcode = mdns.RcodeServerFailure
	} else if len(q.Question) == 1 && q.Opcode == mdns.OpcodeQuery {
		name := q.Question[0].Name
		m.Answer = []mdns.RR{&mdns.TXT{Hdr: mdns.RR_Header{Name: name, Rrtype: mdns.TypeTXT, Class: mdns.ClassINET, Ttl: 300}, Txt: []string{"of " + strings.ToLower(name)}}}
		if q.Question[0].Qtype == mdns.TypeA {
			m.Answer = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 300}, A: net.IPv4(192, 0, 2, 1)}}
		}
		if strings.HasSuffix(strings.ToLower("."+name), "no.search.") || strings.EqualFold(name, "none.example.") {
			soa, _ := mdns.NewRR("example. 300 IN SOA ns mail 1 2 3 4 300")
			m.Rcode, m.Answer, m.Ns = mdns.RcodeNameError, nil, []mdns.RR{soa}
		}
	}
	_ = w.WriteMsg(m) // the client reports a missing reply
}

// take returns the messages that have arrived since the last call.
func (r *recursive) take() []*mdns.Msg {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.arrived
	r.arrived = nil
	return all
}

// withOptions returns a query of at most size bytes, with as many options as it has room for: each
// kind again and again.
func withOptions(t *testing.T, name string, size int) []byte {
	t.Helper()
	const kinds = "\x00\x03\x00\x00" + "\x00\x0c\x00\x01x" + "\x00\x08\x00\x04\x00\x01\x00\x00" +
		"\x00\x0a\x00\x08cookieco" + "\xfd\xe9\x00\x00"
	packet := packed(t, name)
	packet[11] = 1
	list := strings.Repeat(kinds, (size-len(packet)-11)/len(kinds))
	return append(wire.AppendOPT(packet, wire.NoError, false, len(list)), list...)
}

// Queries of attackers, by what went wrong in other servers, get the same reply over each transport,
// and no more reaches the upstream than the server means to ask.
func TestAdvisories(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	up := newRecursive(t)
	s := serveEncrypted(t, "dns://. {\n whoami\n}")
	for file, text := range map[string]string{
		"open":   "$ORIGIN open.example.\n@ 300 IN SOA ns mail 5 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n",
		"closed": "$ORIGIN closed.open.example.\n@ 300 IN SOA ns mail 5 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n",
		"db":     "$ORIGIN signed.example.\n@ 300 IN SOA ns mail 5 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\na 300 TXT answered\n",
		"resolv": "search no.search example\nnameserver 127.0.0.1\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("long.", 40)
	body := `
    tls cert.pem key.pem
    nsid server
    tsig signed.example {
        secret key. ` + transferSecret + `
        require all
        require_opcode NOTIFY
    }
    rewrite stop name exact alias.example. secret.example.
    rewrite stop name suffix x. ` + long + `example.
    acl secret.example {
        allow net 192.0.2.0/24
        block
    }
    autopath resolv
    cache
    transfer signed.example open.example {
        to *
    }
    transfer closed.open.example {
        to 203.0.113.1
    }
    file db signed.example
    file open open.example
    file closed closed.open.example
    forward forward.none.example ` + newRecursive(t).address + `
    forward . ` + up.address + `
}
`
	block := "\n tls cert.pem key.pem\n template IN TXT {\n  answer \"{{ .Name }} 60 IN TXT below\"\n }\n}\n"
	s.load("dns://. tls://. https://. grpc://. {\n proxyproto {\n  allow 127.0.0.0/8\n }" + body + "https3://. quic://. {" + body +
		strings.ReplaceAll(everyScheme, "://.", "://block.none.example") + " {" + block)

	opcode := func(code, questions byte) []byte {
		packet := packed(t, "a.example.")
		packet[2], packet[5] = packet[2]&^0x78|code<<3, questions
		return packet
	}
	counts := func(at int, high, low byte) []byte {
		packet := packed(t, "a.example.")
		packet[at], packet[at+1] = high, low
		return packet
	}
	txt := func() *mdns.Msg { return new(mdns.Msg).SetQuestion("a.signed.example.", mdns.TypeTXT) }
	plain := func(m *mdns.Msg) []byte {
		m.Id = 0
		packet, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return packet
	}
	forged := func(m *mdns.Msg, key, secret string) []byte {
		m.Id = 0
		m.SetTsig(key, mdns.HmacSHA256, 300, time.Now().Unix())
		packet, _, err := mdns.TsigGenerate(m, secret, "", false)
		if err != nil {
			t.Fatal(err)
		}
		return packet
	}
	right := forged(txt(), "key.", transferSecret)
	twice := append(bytes.Clone(right), right[len(packed(t, "a.signed.example.")):]...)
	twice[11] = 2
	notLast := append(bytes.Clone(right), "\x00\x00\x29\x04\xD0\x00\x00\x00\x00\x00\x00"...)
	notLast[11] = 2

	const refused, notAuth, notImp, formErr, nxDomain = "REFUSED", "NOTAUTH", "NOTIMP", "FORMERR", "NXDOMAIN"
	for _, c := range []struct {
		name   string // with the advisory
		packet []byte
		want   string // text of the TXT record, or the response code; for clients that the acl blocks
		ask    string // names in queries to the upstream; "" if there are none
	}{
		{"CVE-2026-26017 acl", packed(t, "secret.example."), refused, ""},
		{"CVE-2026-26017 acl and rewrite", packed(t, "alias.example."), refused, ""},
		{"CVE-2026-26017 acl and letter case", packed(t, "aLiaS.eXample."), refused, ""},
		{"coredns#8289 acl and cached answers", packed(t, "SECRET.example."), refused, ""},
		{"coredns#8290 acl and autopath", plain(new(mdns.Msg).SetQuestion("secret.no.search.", mdns.TypeA)), nxDomain, "secret.no.search."},

		{"CVE-2026-86003 UPDATE", opcode(5, 1), notImp, ""},
		{"CVE-2026-86003 UPDATE of two zones", opcode(5, 2), notImp, ""},
		{"CVE-2026-86003 IQUERY", opcode(1, 1), notImp, ""},
		{"CVE-2026-86003 STATUS", opcode(2, 1), notImp, ""},
		{"CVE-2026-86003 DSO", opcode(6, 0), notImp, ""},
		{"CVE-2026-86003 opcode 15", opcode(15, 1), notImp, ""},
		{"CVE-2026-86003 NOTIFY", opcode(4, 1), notAuth, ""},
		{"CVE-2026-86003 signed UPDATE", forged(new(mdns.Msg).SetUpdate("signed.example."), "key.", transferSecret), notImp, ""},

		{"CVE-2026-82399 questions", counts(4, 255, 255), formErr, ""},
		{"CVE-2026-82399 answers", counts(6, 255, 255), formErr, ""},
		{"CVE-2026-82399 authority", counts(8, 255, 255), formErr, ""},
		{"CVE-2026-82399 additional", counts(10, 255, 255), formErr, ""},

		{"CVE-2026-33190 no signature", plain(txt()), refused, ""},
		{"CVE-2026-33190 wrong key", forged(txt(), "key.", "AAAA"), notAuth, ""},
		{"CVE-2026-35579 unknown key", forged(txt(), "other.", transferSecret), notAuth, ""},
		{"CVE-2026-35579 unknown key without a secret", forged(txt(), ".", ""), notAuth, ""},
		{"CVE-2026-35579 two signatures", twice, formErr, ""},
		{"CVE-2026-35579 a record after the signature", notLast, formErr, ""},
		{"CVE-2026-35579 right signature", right, "answered", ""},
		{"CVE-2026-12490 AXFR without a signature", plain(new(mdns.Msg).SetAxfr("signed.example.")), refused, ""},
		{"CVE-2026-12490 IXFR without a signature", plain(new(mdns.Msg).SetIxfr("signed.example.", 1, "ns.", "mail.")), refused, ""},
		{"CVE-2026-12490 AXFR with a wrong key", forged(new(mdns.Msg).SetAxfr("signed.example."), "key.", "AAAA"), notAuth, ""},
		{"CVE-2026-12490 NOTIFY without a signature", plain(new(mdns.Msg).SetNotify("signed.example.")), refused, ""},

		{"CVE-2026-33489 zone within another one", plain(new(mdns.Msg).SetAxfr("closed.open.example.")), refused, ""},
		{"CVE-2026-33489 letter case", plain(new(mdns.Msg).SetAxfr("cLosed.open.Example.")), refused, ""},
		{"CVE-2026-33489 IXFR", plain(new(mdns.Msg).SetIxfr("closed.open.example.", 1, "ns.", "mail.")), refused, ""},

		{"CVE-2026-44687 parent that does not exist", packed(t, "none.example."), nxDomain, "none.example."},
		{"CVE-2026-44687 name of another forward", packed(t, "a.forward.none.example."), "of a.forward.none.example.", ""},
		{"CVE-2026-44687 name of another server block", packed(t, "a.block.none.example."), "below", ""},
		{"CVE-2026-41292 options of each kind", withOptions(t, "options.example.", 1200), "of options.example.", "options.example."},
		{"CVE-2026-42944 a message of options", withOptions(t, "x.", 65535), "of " + long + "example.", long + "example."},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, w := range s.ways() {
				if len(c.packet) > 4000 && strings.HasPrefix(w.name, "UDP") {
					continue // no datagram has this size
				}
				want, ask := c.want, c.ask
				if allowed := w.client == "192.0.2.7"; allowed && c.packet[len(c.packet)-3] == byte(mdns.TypeA) {
					want, ask = "NOERROR", "secret.no.search. secret.example."
				} else if allowed && strings.Contains(c.name, "acl") {
					want, ask = "of secret.example.", "secret.example."
				}
				up.take()
				m, err := w.send(c.packet)
				if got := remote(m, err); got != want {
					t.Errorf("%s from %s: got %s, want %s", w.name, w.client, got, want)
				}
				for _, q := range up.take() { // none if the answer is cached
					if q.Opcode != mdns.OpcodeQuery || len(q.Question) != 1 || !strings.Contains(" "+ask, " "+strings.ToLower(q.Question[0].Name)) || q.Len() > 1232 {
						t.Errorf("%s from %s: the upstream got %v, want a query for %q at most", w.name, w.client, q, ask)
					}
				}
				if err == nil {
					onlyOnce(t, w.name, m)
				}
			}
		})
	}
}

// onlyOnce checks that no option of a reply is repeated.
func onlyOnce(t *testing.T, way string, m *mdns.Msg) {
	t.Helper()
	seen := map[uint16]bool{}
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if seen[o.Option()] {
				t.Errorf("%s: got option %d several times, want it once", way, o.Option())
			}
			seen[o.Option()] = true
		}
	}
}
