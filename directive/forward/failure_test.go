package forward

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// The last error of an upstream says why it does not answer, without the addresses of sockets and the
// URL of the query.
func TestUpstreamFailureSaysWhy(t *testing.T) {
	ca := newTestCA(t)
	untrusted := newTLSUpstream(t, ca.config(false))
	gone := newFakeUpstream(t, noReply)
	gone.stop()
	unavailable := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer unavailable.Close()

	for _, c := range []struct{ forward, want string }{
		{"forward . " + gone.addr, "connection refused over UDP (ICMP port unreachable)"},
		{"forward . " + gone.addr + " {\n force_tcp\n}", "connection refused over TCP"},
		{"forward . " + newFakeUpstream(t, noReply).addr + " {\n read_timeout 50ms\n}", "no reply in time over UDP"},
		{"forward . " + newFakeUpstream(t, noReply).addr + " {\n force_tcp\n read_timeout 50ms\n}",
			"no reply in time over TCP"},
		{"forward . tls://" + untrusted.addr, "tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{"forward . " + unavailable.URL + " {\n tls " + certificateOf(t, ca, unavailable) + "\n}",
			"got status 503 Service Unavailable"},
		{"forward . " + newFakeUpstream(t, answerWithCode(mdns.RcodeServerFailure)).addr, "reply SERVFAIL"},
		{"forward . " + newFakeUpstream(t, answerWithCode(mdns.RcodeRefused)).addr, "reply REFUSED"},
	} {
		before := time.Now()
		r := newHarness(t, c.forward)
		set := r.forward[0].set
		if got := set.failures(); len(got) != 0 {
			t.Errorf("%s: got %+v before the first query, want none", c.forward, got)
		}

		_, _ = r.ask(query("secret.example.", mdns.TypeA), dns.UDP)
		chaintest.Eventually(t, c.forward, func() bool { return len(set.failures()) == 1 })
		got := set.failures()[0]
		if !strings.HasPrefix(got.Error, c.want) || strings.Contains(got.Error, "secret") ||
			got.Object != set.current.Load().all[0].String() || got.At.Before(before) {
			t.Errorf("%s: got %+v, want the error %q since %v", c.forward, got, c.want, before)
		}
	}
}

// certificateOf returns a file with the certificate of a server.
func certificateOf(t *testing.T, ca *testCA, s *httptest.Server) string {
	t.Helper()
	if err := os.WriteFile(ca.file("other.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return ca.file("other.pem")
}

// An upstream without an error has no failure, also when it answers that a name does not exist.
func TestUpstreamWithoutFailure(t *testing.T) {
	r := newHarness(t, "forward . "+newFakeUpstream(t, answerWithCode(mdns.RcodeNameError)).addr)
	r.wantAnswer("a.example.", mdns.TypeA, "NXDOMAIN")
	if got := r.forward[0].set.failures(); len(got) != 0 {
		t.Errorf("got %+v, want none", got)
	}
}

func TestDescribeError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}, "no connection in time over TCP"},
		{&net.OpError{Op: "read", Net: "udp4", Err: os.NewSyscallError("read", syscall.EHOSTUNREACH)},
			"no route to host over UDP"},
		{&net.OpError{Op: "write", Net: "udp", Err: os.NewSyscallError("write", syscall.EPERM)},
			"operation not permitted over UDP"},
		{&net.OpError{Op: "remote error", Err: io.EOF}, "remote error: EOF"},
		{&net.OpError{Op: "read", Net: "tcp", Err: errClosed}, "connection closed by the upstream over TCP"},
		{errProbe, "no reply to a health check"},
		{os.ErrDeadlineExceeded, "no reply in time"},
		{x509.UnknownAuthorityError{}, "x509: certificate signed by unknown authority"},
	} {
		if got := describe(c.err); got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
}
