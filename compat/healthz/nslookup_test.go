package healthz

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// nameserver starts a server over UDP and TCP that runs until the end of the test.
func nameserver(t *testing.T, answer func(q dns.Question, r *dns.Msg, network string)) string {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	handle := func(network string) dns.HandlerFunc {
		return func(w dns.ResponseWriter, m *dns.Msg) {
			r := new(dns.Msg).SetReply(m)
			answer(m.Question[0], r, network)
			_ = w.WriteMsg(r)
		}
	}
	for _, s := range []*dns.Server{{Listener: tcp, Handler: handle("tcp")}, {PacketConn: udp, Handler: handle("udp")}} {
		up, done := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		go func() { defer close(done); _ = s.ActivateAndServe() }()
		<-up
		t.Cleanup(func() { _ = s.Shutdown(); <-done })
	}
	return tcp.Addr().String()
}

func TestLookup(t *testing.T) {
	rr := func(text string) dns.RR {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		return rr
	}
	server := nameserver(t, func(q dns.Question, r *dns.Msg, network string) {
		switch {
		case q.Name == "four.example." && q.Qtype == dns.TypeA:
			r.Answer = []dns.RR{rr("four.example. 5 IN CNAME x.example."), rr("x.example. 5 IN A 192.0.2.4")}
		case q.Name == "six.example." && q.Qtype == dns.TypeAAAA:
			r.Answer = []dns.RR{rr("six.example. 5 IN AAAA 2001:db8::6")}
		case q.Name == "many.example." && network == "udp":
			r.Truncated = true
		case q.Name == "many.example.":
			r.Answer = []dns.RR{rr("many.example. 5 IN A 192.0.2.5")}
		case q.Name == "alias.example.":
			r.Answer = []dns.RR{rr("alias.example. 5 IN CNAME x.example.")}
		case q.Name == "none.example.", q.Name == "six.example.":
		case q.Name == "broken.example.":
			r.Rcode = dns.RcodeServerFailure
		default:
			r.Rcode = dns.RcodeNameError
		}
	})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	t.Setenv("PATH", t.TempDir())
	for _, c := range []struct{ text, out, err string }{
		{"nslookup four.example " + server, "Address: 192.0.2.4\n", ""},
		{"nslookup four.example. " + server + " >/dev/null", "", ""},
		{"nslookup six.example " + server, "Address: 2001:db8::6\n", ""},
		{"nslookup many.example " + server, "Address: 192.0.2.5\n", ""},
		{"nslookup alias.example " + server, "nslookup: ", "no address for alias.example."},
		{"nslookup none.example " + server, "nslookup: ", "no address for none.example."},
		{"nslookup broken.example " + server, "nslookup: ", "reply SERVFAIL for broken.example."},
		{"nslookup missing.example " + server + " >/dev/null 2>&1", "", "reply NXDOMAIN for missing.example."},
		{"nslookup four.example " + closed.Addr().String(), "nslookup: ", "connection refused"},
	} {
		run, err := newCommand(c.text)
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		out, err := run(t.Context())
		if !strings.Contains(string(out), c.out) || c.out == "" && len(out) > 0 ||
			(c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got output %q, error %v; want %q, %q", c.text, out, err, c.out, c.err)
		}
	}
}

// A lookup ends with its context if the server does not reply.
func TestLookupNoReply(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	received := make(chan struct{})
	go func() {
		defer close(received)
		_, _, _ = silent.ReadFrom(make([]byte, 512))
	}()
	l, err := parseLookup([]string{"a.example", silent.LocalAddr().String()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-received; cancel() }()
	if err := l.run(ctx, nil); err == nil || !strings.Contains(err.Error(), "no reply within") {
		t.Errorf("canceled lookup: got error %v, want no reply", err)
	}
	if err := l.run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no reply within") {
		t.Errorf("lookup without a reply: got error %v, want no reply", err)
	}
}

func TestParseLookup(t *testing.T) {
	for text, want := range map[string]string{
		"a.example":             "",
		"a.example ::1":         "[::1]:53",
		"a.example [::1]":       "[::1]:53",
		"a.example [::1]:10053": "[::1]:10053",
		"a.example 10.0.0.1":    "10.0.0.1:53",
		"a.example ns:10053":    "ns:10053",
	} {
		if l, err := parseLookup(strings.Fields(text)); err != nil || l.server != want || l.name != "a.example." {
			t.Errorf("parseLookup(%q): got %+v, error %v, want a.example. at %q", text, l, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                "want nslookup NAME",
		"a b c":           "want nslookup NAME",
		"-type=SRV a":     "no options, got -type=SRV",
		"a..b":            "want a name",
		"10.0.0.1":        "want a name",
		"a.example :53":   "want SERVER[:PORT]",
		"a.example ::1:x": "want SERVER[:PORT]",
	} {
		if _, err := parseLookup(strings.Fields(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseLookup(%q): got error %v, want %q", text, err, want)
		}
	}
}

// newCommand prefers an nslookup in PATH, with or without a shell, to the built-in
// one.
func TestLookupPrefersProgram(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal("sh not found")
	}
	server := nameserver(t, func(_ dns.Question, r *dns.Msg, _ string) { r.Rcode = dns.RcodeRefused })
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	prints := func(text, want string) {
		t.Helper()
		run, err := newCommand(text)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if out, _ := run(ctx); !strings.Contains(string(out), want) {
			t.Errorf("%s: got output %q, want %q", text, out, want)
		}
	}
	program := filepath.Join(dir, "nslookup")
	if err := os.WriteFile(program, []byte("#!"+sh+"\necho program $#\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	prints("nslookup a 'b c'", "program 2")
	if err := os.Symlink(sh, filepath.Join(dir, "sh")); err != nil {
		t.Fatal(err)
	}
	prints("nslookup a b; echo more", "more")
	prints("nslookup a b", "program 2")
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	prints("nslookup a.example "+server, "reply REFUSED")
	prints("nslookup a.example "+server+" || echo the shell", "the shell")
}
