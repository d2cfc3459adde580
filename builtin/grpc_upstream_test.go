package builtin

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// serveGRPC starts a server of CoreDNS's gRPC service, with google.golang.org/grpc.
func serveGRPC(t *testing.T, l net.Listener, c credentials.TransportCredentials, answer func(*mdns.Msg) ([]byte, error)) {
	s := grpc.NewServer(grpc.ForceServerCodec(packetCodec{}), grpc.Creds(c))
	query := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var packet []byte
		q := new(mdns.Msg)
		if err := decode(&packet); err != nil {
			return nil, err
		}
		if err := q.Unpack(packet); err != nil {
			return nil, err
		}
		reply, err := answer(q)
		return &reply, err
	}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "coredns.dns.DnsService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Query", Handler: query}},
	}, struct{}{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

// answerGRPC answers by the first label of the query name.
func answerGRPC(q *mdns.Msg) ([]byte, error) {
	m := new(mdns.Msg).SetReply(q)
	label, _, _ := strings.Cut(q.Question[0].Name, ".")
	switch label {
	case "notfound":
		return nil, status.Error(codes.NotFound, "no such name")
	case "error":
		return nil, status.Error(codes.Internal, "100 % broken")
	case "short":
		return []byte("short"), nil
	case "empty":
		return nil, nil
	case "large":
		return make([]byte, 65536), nil
	case "wrong":
		m.Question[0].Name = "other.example."
	case "missing":
		m.Rcode = mdns.RcodeNameError
	}
	m.Answer = []mdns.RR{&mdns.TXT{Hdr: mdns.RR_Header{Name: m.Question[0].Name, Rrtype: mdns.TypeTXT, Class: mdns.ClassINET, Ttl: 60}, Txt: []string{"upstream"}}}
	if m.Rcode != mdns.RcodeSuccess {
		m.Answer = nil
	}
	return m.Pack()
}

// lookupTXT returns the response code, and the first record's text if there is one.
func (s *encrypted) lookupTXT(name string) string {
	s.t.Helper()
	m, _, err := (&mdns.Client{Timeout: patience}).Exchange(new(mdns.Msg).SetQuestion(name, mdns.TypeTXT), "127.0.0.1:"+s.port(0))
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	if len(m.Answer) == 1 {
		return m.Answer[0].(*mdns.TXT).Txt[0]
	}
	return mdns.RcodeToString[m.Rcode]
}

func listenOn(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestGRPCUpstream(t *testing.T) {
	const other = "\n whoami\n}\n" // whose answer to TXT queries is NODATA
	s := serveEncrypted(t, ". {\n whoami\n}")
	pair, err := tls.LoadX509KeyPair("cert.pem", "key.pem")
	if err != nil {
		t.Fatal(err)
	}
	plain, encrypted := listenOn(t, "tcp", "127.0.0.1:0"), listenOn(t, "tcp", "127.0.0.1:0")
	path := filepath.Join(t.TempDir(), "s")
	serveGRPC(t, plain, insecure.NewCredentials(), answerGRPC)
	serveGRPC(t, encrypted, credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}}), answerGRPC)
	serveGRPC(t, listenOn(t, "unix", path), insecure.NewCredentials(), answerGRPC)
	closed := listenOn(t, "tcp", "127.0.0.1:0")
	closed.Close()
	at := plain.Addr().String()
	for _, c := range []struct{ name, directive, query, want string }{
		{"address", "grpc . " + at, "a.example.", "upstream"},
		{"Unix domain socket", "grpc . unix://" + path, "a.example.", "upstream"},
		{"TLS", "grpc . " + encrypted.Addr().String() + " {\n tls ca.pem\n tls_servername dns.example\n}", "a.example.", "upstream"},
		{"another name in the certificate", "grpc . " + encrypted.Addr().String() + " {\n tls ca.pem\n tls_servername other.example\n}", "a.example.", "SERVFAIL"},
		{"unknown authority", "grpc . " + encrypted.Addr().String() + " {\n tls\n}", "a.example.", "SERVFAIL"},
		{"TLS to a server without", "grpc . " + at + " {\n tls\n}", "a.example.", "SERVFAIL"},
		{"no TLS to a server with TLS", "grpc . " + encrypted.Addr().String(), "a.example.", "SERVFAIL"},
		{"first upstream closed", "grpc . " + closed.Addr().String() + " " + at + " {\n policy sequential\n}", "a.example.", "upstream"},
		{"upstreams closed", "grpc . " + closed.Addr().String() + " {\n fallthrough\n}", "a.example.", "NOERROR"},
		{"another zone", "grpc example.org " + at, "a.example.", "NOERROR"},
		{"except", "grpc . " + at + " {\n except example\n}", "a.example.", "NOERROR"},
		{"NXDOMAIN", "grpc . " + at, "missing.example.", "NXDOMAIN"},
		{"NXDOMAIN falls through", "grpc . " + at + " {\n fallthrough\n}", "missing.example.", "NOERROR"},
		{"NXDOMAIN falls through in its zone", "grpc . " + at + " {\n fallthrough example\n}", "missing.example.", "NOERROR"},
		{"NXDOMAIN outside the zones of fallthrough", "grpc . " + at + " {\n fallthrough example.org\n}", "missing.example.", "NXDOMAIN"},
		{"status NOT_FOUND", "grpc . " + at, "notfound.example.", "NXDOMAIN"},
		{"status INTERNAL", "grpc . " + at, "error.example.", "SERVFAIL"},
		{"status INTERNAL falls through", "grpc . " + at + " {\n fallthrough\n}", "error.example.", "NOERROR"},
		{"short reply", "grpc . " + at, "short.example.", "SERVFAIL"},
		{"empty reply", "grpc . " + at, "empty.example.", "SERVFAIL"},
		{"large reply", "grpc . " + at, "large.example.", "SERVFAIL"},
		{"reply to another question", "grpc . " + at, "wrong.example.", "SERVFAIL"},
		{"query after errors", "grpc . " + at, "a.example.", "upstream"},
	} {
		s.load(". {\n " + c.directive + other)
		if got := s.lookupTXT(c.query); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	var text strings.Builder
	if err := s.metrics.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`coredns_grpc_responses_total{to="` + at + `",rcode="NXDOMAIN"} 5`,
		`coredns_grpc_requests_total{to="unix://` + path + `"} 1`,
		`coredns_grpc_request_duration_seconds_count{to="unix://` + path + `"} 1`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}
