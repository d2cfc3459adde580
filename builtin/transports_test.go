package builtin

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// everyScheme are the keys of a server block for all schemes. The addresses are in this order.
const everyScheme = "dns://. tls://. https://. https3://. quic://. grpc://."

// transports returns, for a server with everyScheme, functions that send a message over each
// transport on a connection of its own and return the reply.
func (s *encrypted) transports() map[string]func(packet []byte) (*mdns.Msg, error) {
	insecure := &tls.Config{InsecureSkipVerify: true}
	post := func(port string, client *http.Client) func([]byte) (*mdns.Msg, error) {
		return func(packet []byte) (*mdns.Msg, error) {
			response, err := client.Post("https://127.0.0.1:"+port+"/dns-query", messageType, bytes.NewReader(packet))
			if err != nil {
				return nil, err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			m := new(mdns.Msg)
			if err == nil && response.StatusCode != 200 {
				err = fmt.Errorf("status %d", response.StatusCode)
			}
			if err == nil {
				err = m.Unpack(body)
			}
			return m, err
		}
	}
	conn := func(dial func() (net.Conn, error)) func([]byte) (*mdns.Msg, error) {
		return func(packet []byte) (*mdns.Msg, error) {
			c, err := dial()
			if err != nil {
				return nil, err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			messages := mdns.Conn{Conn: c} // its ReadMsg would verify signatures
			if _, err := messages.Write(packet); err != nil {
				return nil, err
			}
			buf := make([]byte, 65535)
			n, err := messages.Read(buf)
			m := new(mdns.Msg)
			if err == nil {
				err = m.Unpack(buf[:n])
			}
			return m, err
		}
	}
	return map[string]func(packet []byte) (*mdns.Msg, error){
		"UDP":    conn(func() (net.Conn, error) { return net.Dial("udp", "127.0.0.1:"+s.port(0)) }),
		"TCP":    conn(func() (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+s.port(0)) }),
		"TLS":    conn(func() (net.Conn, error) { return tls.Dial("tcp", "127.0.0.1:"+s.port(1), insecure) }),
		"HTTP/2": post(s.port(2), httpClient(s.t, true)),
		"HTTP/1": post(s.port(2), httpClient(s.t, false)),
		"HTTP/3": post(s.port(3), http3Client(s.t)),
		"QUIC": func(packet []byte) (*mdns.Msg, error) {
			c, err := s.quicAt(4)
			if err != nil {
				return nil, err
			}
			return c.exchange(packet)
		},
		"gRPC": func(packet []byte) (*mdns.Msg, error) {
			return askGRPC(s.t, s.grpcAt(s.t, 5, skipVerify()), grpcQuery, packet)
		},
	}
}

// quicAt connects to the nth address.
func (s *encrypted) quicAt(n int) (doqClient, error) {
	c, err := quic.DialAddr(s.t.Context(), "127.0.0.1:"+s.port(n), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"doq"}}, nil)
	if err == nil {
		s.t.Cleanup(func() { _ = c.CloseWithError(0, "") })
	}
	return doqClient{s.t, c}, err
}

// signedAt returns a message with the signature of some time ago. Its ID is 0, as in QUIC.
func signedAt(t *testing.T, m *mdns.Msg, age time.Duration) []byte {
	t.Helper()
	m.Id = 0
	m.SetTsig("key.", mdns.HmacSHA256, 300, time.Now().Add(-age).Unix())
	packet, _, err := mdns.TsigGenerate(m, transferSecret, "", false)
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

// A recorded query, NOTIFY message or transfer that is sent again is accepted for as long as its
// signature permits, and is BADTIME afterwards, over each transport.
func TestTSIGReplayed(t *testing.T) {
	var refreshes atomic.Int64 // SOA queries of the secondary, which are only made for NOTIFY messages
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	primary := &mdns.Server{Listener: l, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		if q.Question[0].Qtype == mdns.TypeSOA {
			refreshes.Add(1)
		}
		soa, _ := mdns.NewRR("copied. 300 IN SOA ns mail 5 3600 600 86400 60")
		reply := new(mdns.Msg).SetReply(q)
		reply.Answer = []mdns.RR{soa}
		if q.Question[0].Qtype == mdns.TypeAXFR {
			reply.Answer = append(reply.Answer, soa)
		}
		_ = w.WriteMsg(reply)
	})}
	go func() { _ = primary.ActivateAndServe() }()
	t.Cleanup(func() { _ = primary.Shutdown() })

	s := serveEncrypted(t, "dns://. {\n whoami\n}")
	if err := os.WriteFile("db", []byte("$ORIGIN example.\n@ 300 IN SOA ns mail 5 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\na 300 TXT answered\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.load(everyScheme + ` {
    tls cert.pem key.pem
    tsig . {
        secret key. ` + transferSecret + `
        require all
        require_opcode NOTIFY
    }
    file db example.
    secondary copied. {
        transfer from ` + l.Addr().String() + `
    }
    transfer {
        to *
    }
}`)
	notify := func() *mdns.Msg { return new(mdns.Msg).SetNotify("copied.") }
	query := func() *mdns.Msg { return new(mdns.Msg).SetQuestion("a.example.", mdns.TypeTXT) }
	axfr := func() *mdns.Msg { return new(mdns.Msg).SetAxfr("example.") }
	kinds := map[string]func() *mdns.Msg{"query": query, "NOTIFY": notify, "AXFR": axfr}
	transports := s.transports()
	s.eventually("the zone is copied", func() bool {
		r, err := transports["TCP"](signedAt(t, new(mdns.Msg).SetQuestion("copied.", mdns.TypeSOA), 0))
		return err == nil && len(r.Answer) == 1
	})
	before := refreshes.Load()
	for name, send := range transports {
		for kind, message := range kinds {
			late := signedAt(t, message(), 302*time.Second)
			for range 2 {
				r, err := send(late)
				if err != nil || r.Rcode != mdns.RcodeNotAuth || r.IsTsig() == nil || r.IsTsig().Error != mdns.RcodeBadTime || len(r.Answer) > 0 {
					t.Errorf("%s over %s, sent 302 s later: got %v, error %v; want NOTAUTH with BADTIME", kind, name, r, err)
				}
			}
		}
	}
	if got := refreshes.Load(); got != before {
		t.Errorf("NOTIFY messages, sent 302 s later: got %d refreshes, want none", got-before)
	}
	for name, send := range transports {
		for kind, message := range kinds {
			now, before := signedAt(t, message(), 0), refreshes.Load()
			for i := range 3 {
				r, err := send(now)
				want := mdns.RcodeSuccess
				if kind == "AXFR" && !strings.Contains("TCP TLS QUIC", name) {
					want = mdns.RcodeRefused
				}
				if err != nil || r.Rcode != want || r.IsTsig() == nil || r.IsTsig().Error != 0 || kind == "query" && len(r.Answer) != 1 || kind == "AXFR" && want == 0 && len(r.Answer) != 5 {
					t.Errorf("%s over %s, sent %d times: got %v, error %v; want %s", kind, name, i+1, r, err, mdns.RcodeToString[want])
				}
			}
			if kind == "NOTIFY" {
				s.eventually("NOTIFY starts a refresh", func() bool { return refreshes.Load() > before })
			}
		}
	}
}

// A view selects a block over each transport, by the client and by the query.
func TestViewTransports(t *testing.T) {
	block := func(view, answer string) string {
		return everyScheme + " {\n" + view + "\n tls cert.pem key.pem\n template IN TXT . {\n  answer \"{{ .Name }} 60 IN TXT " + answer + "\"\n }\n}\n"
	}
	s := serveEncrypted(t, block("view other {\n expr incidr(client_ip(), '192.0.2.0/24')\n}", "other")+
		block("view local {\n expr client_ip() == '127.0.0.1' && name() startsWith 'a.'\n}", "local")+block("", "rest"))
	for name, send := range s.transports() {
		for query, want := range map[string]string{"a.example.": "local", "b.example.": "rest"} {
			if got := remote(send(packed(t, query))); got != want {
				t.Errorf("%s over %s: got %s, want %s", query, name, got, want)
			}
		}
	}
}
