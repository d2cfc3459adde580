package sidecar

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/metrics"
)

// bufferLog returns a logger without time stamps and the buffer it writes to.
func bufferLog() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), &b
}

func metricsText(t *testing.T, r *metrics.Registry) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// wantLines checks that text has all lines.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("got\n%s\nwant the line %s", text, line)
		}
	}
}

func TestProbe(t *testing.T) {
	const answer = "a.example. 5 IN A 192.0.2.1"
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused := free.LocalAddr().String()
	free.Close()
	timeouts := regexp.MustCompile(`within \S+s\b`)
	otherID := func(r *dns.Msg) { r.Id++ }
	tests := []struct {
		name  string
		reply reply
		err   string // a part of it; "" if the probe succeeds
	}{
		{"an answer", always(answer), ""},
		{"an answer with an error code", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure }, answer)}
		}, ""},
		{"an answer of another type", always("a.example. 5 IN CNAME b.example."), ""},
		{"a question in another case", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Question[0].Name = "A.Example." }, answer)}
		}, ""},
		{"NODATA", always(), "querying ADDR: a.example. A: reply NOERROR without records"},
		{"REFUSED", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Rcode = dns.RcodeRefused })}
		}, "querying ADDR: a.example. A: reply REFUSED without records"},
		{"an error without a question", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Rcode, r.Question = dns.RcodeFormatError, nil })}
		}, "reply FORMERR without records"},
		{"no reply", silence, "querying ADDR: no reply within TIME"},
		{"closed port", nil, "connection refused"},
		{"garbage", func(*dns.Msg, string) [][]byte { return [][]byte{[]byte("garbage")} },
			"querying ADDR: no reply within TIME, but a packet shorter than a message header"},
		{"garbage behind a valid header", func(m *dns.Msg, _ string) [][]byte { return [][]byte{append(pack(m, nil)[:12], 0xff, 0xff)} },
			"querying ADDR: no reply within TIME, but a malformed message"},
		{"another ID", func(m *dns.Msg, _ string) [][]byte { return [][]byte{pack(m, otherID, answer)} },
			"querying ADDR: no reply within TIME, but a message with another ID"},
		{"the query echoed", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Response = false }, answer)}
		}, "but a message that is not a reply"},
		{"another question", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Question[0].Name = "b.example." }, answer)}
		}, "but a reply to another question"},
		{"invalid datagrams before the answer", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{[]byte("garbage"), {}, pack(m, otherID), append(pack(m, nil)[:12], 0xff, 0xff), pack(m, nil, answer)}
		}, ""},
		{"truncated", func(m *dns.Msg, network string) [][]byte {
			if network == "udp" {
				return [][]byte{pack(m, func(r *dns.Msg) { r.Truncated = true })}
			}
			return [][]byte{pack(m, nil, answer)}
		}, ""},
		{"truncated inside a record", func(m *dns.Msg, network string) [][]byte {
			out := pack(m, func(r *dns.Msg) { r.Truncated = network == "udp" }, answer)
			if network == "udp" {
				out = out[:len(out)-3]
			}
			return [][]byte{out}
		}, ""},
		{"truncated, no reply over TCP", func(m *dns.Msg, network string) [][]byte {
			if network == "udp" {
				return [][]byte{pack(m, func(r *dns.Msg) { r.Truncated = true }, answer)}
			}
			return nil
		}, "reading from a TCP connection"},
		{"truncated, another ID over TCP", func(m *dns.Msg, network string) [][]byte {
			if network == "udp" {
				return [][]byte{pack(m, func(r *dns.Msg) { r.Truncated = true }, answer)}
			}
			return [][]byte{pack(m, otherID, answer)}
		}, "querying ADDR: a message with another ID"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			addr := unused
			if c.reply != nil {
				addr = listen(t, c.reply)
			}
			log, _ := bufferLog()
			r := new(metrics.Registry)
			p := newProber(Probe{"x", addr, "a.example.", time.Second, dns.TypeA}, r, "kubedns", log)
			if got := p.health(); got != (health{Err: "waiting for first probe"}) {
				t.Errorf("before the first probe: got %+v, want the error \"waiting for first probe\"", got)
			}
			p.probe(t.Context())
			got := p.health()
			got.Err = timeouts.ReplaceAllString(got.Err, "within TIME")
			if c.err == "" {
				if !got.IsOk || got.Err != "" || got.LatencySeconds <= 0 {
					t.Errorf("got %+v, want success with a latency", got)
				}
				wantLines(t, metricsText(t, r), "kubedns_probe_x_errors 0", "kubedns_probe_x_latency_ms_count 1")
				return
			}
			if want := strings.ReplaceAll(c.err, "ADDR", addr); got.IsOk || got.LatencySeconds != 0 || !strings.Contains(got.Err, want) {
				t.Errorf("got %+v, want a failure with %q", got, want)
			}
			wantLines(t, metricsText(t, r), "kubedns_probe_x_errors 1", "kubedns_probe_x_latency_ms_count 0")
		})
	}
}

func TestProbeQuestion(t *testing.T) {
	received := make(chan dns.Question, 1)
	addr := listen(t, func(m *dns.Msg, _ string) [][]byte {
		if !m.RecursionDesired || m.IsEdns0() != nil {
			t.Errorf("got query %v, want RD and no OPT record", m)
		}
		received <- m.Question[0]
		return [][]byte{pack(m, nil)}
	})
	for text, want := range map[string]uint16{"": dns.TypeANY, ",5,A": dns.TypeA, ",5,AAAA": dns.TypeAAAA, ",5,SRV": dns.TypeSRV, ",5,ANY": dns.TypeANY} {
		parsed, err := ParseProbe("x," + addr + ",a.example" + text)
		if err != nil {
			t.Fatal(err)
		}
		log, _ := bufferLog()
		newProber(parsed, new(metrics.Registry), "", log).probe(t.Context())
		if q := <-received; q != (dns.Question{Name: "a.example.", Qtype: want, Qclass: dns.ClassINET}) {
			t.Errorf("probe a.example%s: got question %v, want type %s", text, q, dns.TypeToString[want])
		}
	}
}

// The sidecar logs the first failure and the first success after it.
func TestProbeLog(t *testing.T) {
	var works atomic.Bool
	addr := listen(t, func(m *dns.Msg, _ string) [][]byte {
		if works.Load() {
			return always("a.example. 5 IN A 192.0.2.1")(m, "")
		}
		return [][]byte{pack(m, nil)}
	})
	log, lines := bufferLog()
	r := new(metrics.Registry)
	p := newProber(Probe{"x", addr, "a.example.", time.Second, dns.TypeA}, r, "", log)
	for _, ok := range []bool{false, false, true, true, true, false, false} {
		works.Store(ok)
		p.probe(t.Context())
	}
	var got []string
	for line := range strings.Lines(lines.String()) {
		got = append(got, strings.Join(strings.Fields(line)[:3], " "))
	}
	if want := `level=WARN msg="Probe failed"|level=INFO msg="Probe succeeded"|level=WARN msg="Probe failed"`; strings.Join(got, "|") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, "|"), want)
	}
	wantLines(t, metricsText(t, r), "probe_x_errors 4", "probe_x_latency_ms_count 3")
}

// A probe canceled by the end of the sidecar has no result.
func TestProbeCanceled(t *testing.T) {
	received := make(chan struct{}, 1)
	addr := listen(t, func(*dns.Msg, string) [][]byte { received <- struct{}{}; return nil })
	log, lines := bufferLog()
	r := new(metrics.Registry)
	p := newProber(Probe{"x", addr, "a.example.", time.Minute, dns.TypeA}, r, "", log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.probe(ctx) }()
	<-received
	cancel()
	<-ended
	if got := p.health(); got.Err != "waiting for first probe" || lines.Len() > 0 {
		t.Errorf("got %+v and log %q, want no result and no log", got, lines)
	}
	wantLines(t, metricsText(t, r), "probe_x_errors 0")
}
