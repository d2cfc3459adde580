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

// quiet is a log that keeps its lines.
func quiet() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), &b
}

func shown(t *testing.T, r *metrics.Registry) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wants(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}

func TestProbe(t *testing.T) {
	const answer = "a.example. 5 IN A 192.0.2.1"
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.LocalAddr().String()
	free.Close()
	within := regexp.MustCompile(`within \d+ms`)
	other := func(r *dns.Msg) { r.Id++ }
	tests := []struct {
		name  string
		reply reply
		err   string // a part of it; "" if the probe succeeds
	}{
		{"an answer", always(answer), ""},
		{"an answer and a code, which is not looked at", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure }, answer)}
		}, ""},
		{"an answer of another type", always("a.example. 5 IN CNAME b.example."), ""},
		{"the name's case", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Question[0].Name = "A.Example." }, answer)}
		}, ""},
		{"NODATA", always(), "no records of type A for a.example. in the answer of ADDR, which is NOERROR"},
		{"REFUSED", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Rcode = dns.RcodeRefused })}
		}, "no records of type A for a.example. in the answer of ADDR, which is REFUSED"},
		{"an error without a question", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Rcode, r.Question = dns.RcodeFormatError, nil })}
		}, "which is FORMERR"},
		{"silence", silence, "no answer from ADDR within TIME"},
		{"nobody", nil, "connection refused"},
		{"garbage", func(*dns.Msg, string) [][]byte { return [][]byte{[]byte("garbage")} },
			"no answer from ADDR within TIME, but a packet that is too short for a message"},
		{"garbage of ours", func(m *dns.Msg, _ string) [][]byte { return [][]byte{append(pack(m, nil)[:12], 0xff, 0xff)} },
			"no answer from ADDR within TIME, but a message that cannot be read"},
		{"wrong ids", func(m *dns.Msg, _ string) [][]byte { return [][]byte{pack(m, other, answer)} },
			"no answer from ADDR within TIME, but a message with another id"},
		{"an echo", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Response = false }, answer)}
		}, "but a message that is no reply"},
		{"another question", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{pack(m, func(r *dns.Msg) { r.Question[0].Name = "b.example." }, answer)}
		}, "but a reply to another question"},
		{"strays before the answer", func(m *dns.Msg, _ string) [][]byte {
			return [][]byte{[]byte("garbage"), {}, pack(m, other), append(pack(m, nil)[:12], 0xff, 0xff), pack(m, nil, answer)}
		}, ""},
		{"truncated", func(m *dns.Msg, network string) [][]byte {
			if network == "udp" {
				return [][]byte{pack(m, func(r *dns.Msg) { r.Truncated = true })}
			}
			return [][]byte{pack(m, nil, answer)}
		}, ""},
		{"truncated in a record", func(m *dns.Msg, network string) [][]byte {
			out := pack(m, func(r *dns.Msg) { r.Truncated = network == "udp" }, answer)
			if network == "udp" {
				out = out[:len(out)-3]
			}
			return [][]byte{out}
		}, ""},
		{"truncated, and silence by TCP", func(m *dns.Msg, network string) [][]byte {
			if network == "udp" {
				return [][]byte{pack(m, func(r *dns.Msg) { r.Truncated = true }, answer)}
			}
			return nil
		}, "reading from TCP"},
		{"truncated, and garbage by TCP", func(m *dns.Msg, network string) [][]byte {
			if network == "udp" {
				return [][]byte{pack(m, func(r *dns.Msg) { r.Truncated = true }, answer)}
			}
			return [][]byte{pack(m, other, answer)}
		}, "asking ADDR: a message with another id"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			addr := nobody
			if c.reply != nil {
				addr = listen(t, c.reply)
			}
			log, _ := quiet()
			r := new(metrics.Registry)
			p := newProber(Probe{"x", addr, "a.example.", time.Second, dns.TypeA}, r, "kubedns", log)
			if got := p.health(); got != (health{Err: "waiting for first probe"}) {
				t.Errorf("before: %+v", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			if c.err == "" {
				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
			}
			defer cancel()
			p.probe(ctx)
			got := p.health()
			got.Err = within.ReplaceAllString(got.Err, "within TIME")
			if c.err == "" {
				if !got.IsOk || got.Err != "" || got.LatencySeconds <= 0 {
					t.Errorf("%+v", got)
				}
				wants(t, shown(t, r), "kubedns_probe_x_errors 0", "kubedns_probe_x_latency_ms_count 1")
				return
			}
			if want := strings.ReplaceAll(c.err, "ADDR", addr); got.IsOk || got.LatencySeconds != 0 || !strings.Contains(got.Err, want) {
				t.Errorf("%+v, want %s", got, want)
			}
			wants(t, shown(t, r), "kubedns_probe_x_errors 1", "kubedns_probe_x_latency_ms_count 0")
		})
	}
}

// The question is as it was asked for.
func TestProbeQuestion(t *testing.T) {
	asked := make(chan dns.Question, 1)
	addr := listen(t, func(m *dns.Msg, _ string) [][]byte {
		if !m.RecursionDesired || m.IsEdns0() != nil {
			t.Errorf("%v", m)
		}
		asked <- m.Question[0]
		return [][]byte{pack(m, nil)}
	})
	for text, want := range map[string]uint16{"": dns.TypeANY, ",5,A": dns.TypeA, ",5,AAAA": dns.TypeAAAA, ",5,SRV": dns.TypeSRV, ",5,ANY": dns.TypeANY} {
		parsed, err := ParseProbe("x," + addr + ",a.example" + text)
		if err != nil {
			t.Fatal(err)
		}
		log, _ := quiet()
		newProber(parsed, new(metrics.Registry), "", log).probe(t.Context())
		if q := <-asked; q != (dns.Question{Name: "a.example.", Qtype: want, Qclass: dns.ClassINET}) {
			t.Errorf("%s: asked %v", text, q)
		}
	}
}

// The log has a line when a probe begins to fail and one when it succeeds again.
func TestProbeLog(t *testing.T) {
	var works atomic.Bool
	addr := listen(t, func(m *dns.Msg, _ string) [][]byte {
		if works.Load() {
			return always("a.example. 5 IN A 192.0.2.1")(m, "")
		}
		return [][]byte{pack(m, nil)}
	})
	log, lines := quiet()
	r := new(metrics.Registry)
	p := newProber(Probe{"x", addr, "a.example.", time.Second, dns.TypeA}, r, "", log)
	for _, now := range []bool{false, false, true, true, true, false, false} {
		works.Store(now)
		p.probe(t.Context())
	}
	var got []string
	for line := range strings.Lines(lines.String()) {
		got = append(got, strings.Join(strings.Fields(line)[:3], " "))
	}
	if want := `level=WARN msg="probe fails"|level=INFO msg="probe succeeds"|level=WARN msg="probe fails"`; strings.Join(got, "|") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, "|"), want)
	}
	wants(t, shown(t, r), "probe_x_errors 4", "probe_x_latency_ms_count 3")
}

// A probe that the sidecar's own end cuts off says nothing of the server.
func TestProbeCutOff(t *testing.T) {
	asked := make(chan struct{}, 1)
	addr := listen(t, func(*dns.Msg, string) [][]byte { asked <- struct{}{}; return nil })
	log, lines := quiet()
	r := new(metrics.Registry)
	p := newProber(Probe{"x", addr, "a.example.", time.Minute, dns.TypeA}, r, "", log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.probe(ctx) }()
	<-asked
	cancel()
	<-ended
	if got := p.health(); got.Err != "waiting for first probe" || lines.Len() > 0 {
		t.Errorf("%+v, %s", got, lines)
	}
	wants(t, shown(t, r), "probe_x_errors 0")
}
