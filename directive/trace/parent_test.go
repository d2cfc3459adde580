package trace

import (
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	trace128 = "80f198ee56343ba864fe8b2a57d3eff7"
	trace64  = "64fe8b2a57d3eff7"
	spanID   = "e457b5a2e4d86bd1"
	aboveID  = "05e3ac9a4f6e3b90"
)

// text returns a parent in the form of the header b3. The sampling state u is undecided.
func (p parent) text() string {
	s := map[sampling]string{undecided: "u", unsampled: "0", sampled: "1", debugged: "d"}[p.sampling]
	if !p.valid() {
		return s
	}
	s = traceText(p.trace) + "-" + hex.EncodeToString(p.id[:]) + "-" + s
	if p.above != [8]byte{} {
		s += "-" + hex.EncodeToString(p.above[:])
	}
	return s
}

func TestParents(t *testing.T) {
	for _, test := range []struct{ header, want, wantOTLP string }{
		{"", "u", ""},
		{"traceparent: 00-" + trace128 + "-" + spanID + "-01", trace128 + "-" + spanID + "-1", ""},
		{"traceparent: 00-" + trace128 + "-" + spanID + "-00", trace128 + "-" + spanID + "-0", ""},
		{"traceparent: 00-" + trace128 + "-" + spanID + "-02", trace128 + "-" + spanID + "-0", ""},
		{"traceparent: 00-0000000000000000" + trace64 + "-" + spanID + "-03", trace64 + "-" + spanID + "-1", ""},
		{"traceparent: 01-" + trace128 + "-" + spanID + "-01", trace128 + "-" + spanID + "-1", ""},
		{"traceparent: cc-" + trace128 + "-" + spanID + "-01-what.else", trace128 + "-" + spanID + "-1", ""},
		{"traceparent: 00-" + trace128 + "-" + spanID + "-01-more", "u", ""},
		{"traceparent: cc-" + trace128 + "-" + spanID + "-01.more", "u", ""},
		{"traceparent: ff-" + trace128 + "-" + spanID + "-01", "u", ""},
		{"traceparent: 00-" + strings.ToUpper(trace128) + "-" + spanID + "-01", "u", ""},
		{"traceparent: 00-" + strings.Repeat("0", 32) + "-" + spanID + "-01", "u", ""},
		{"traceparent: 00-" + trace128 + "-0000000000000000-01", "u", ""},
		{"traceparent: 00-" + trace128 + "-" + spanID, "u", ""},
		{"traceparent: 00-" + trace128 + "-" + spanID + "-0g", "u", ""},
		{"traceparent: 00-" + trace128 + "-" + spanID + "-01\ntraceparent: 00-" + trace128 + "-" + aboveID + "-01", "u", ""},

		{"b3: " + trace128 + "-" + spanID, trace128 + "-" + spanID + "-u", ""},
		{"b3: " + trace64 + "-" + spanID + "-1", trace64 + "-" + spanID + "-1", ""},
		{"b3: " + trace64 + "-" + strings.ToUpper(spanID) + "-d", trace64 + "-" + spanID + "-d", ""},
		{"b3: " + trace128 + "-" + spanID + "-0-" + aboveID, trace128 + "-" + spanID + "-0-" + aboveID, ""},
		{"b3: 0", "0", ""},
		{"b3: 1", "1", ""},
		{"b3: d", "d", ""},
		{"b3: x", "u", ""},
		{"b3: " + trace64, "u", ""},
		{"b3: " + trace64 + "-" + spanID + "-", "u", ""},
		{"b3: " + trace64 + "-" + spanID + "-2", "u", ""},
		{"b3: " + trace64 + "-" + spanID + "-1-", "u", ""},
		{"b3: " + trace64 + "-" + spanID + "-" + aboveID, "u", ""},
		{"b3: " + trace64[1:] + "-" + spanID + "-1", "u", ""},
		{"b3: " + trace128 + "-" + spanID + "-1-" + aboveID + "-1", "u", ""},
		{"b3: " + strings.Repeat("0", 16) + "-" + spanID + "-1", "u", ""},

		{"X-B3-TraceId: " + trace128 + "\nX-B3-SpanId: " + spanID, trace128 + "-" + spanID + "-u", ""},
		{"x-b3-traceid: " + trace64 + "\nx-b3-spanid: " + spanID + "\nx-b3-parentspanid: " + aboveID + "\nx-b3-sampled: True", trace64 + "-" + spanID + "-1-" + aboveID, ""},
		{"X-B3-TraceId: " + trace64 + "\nX-B3-SpanId: " + spanID + "\nX-B3-Flags: 1\nX-B3-Sampled: 0", trace64 + "-" + spanID + "-d", ""},
		{"X-B3-TraceId: 1\nX-B3-SpanId: abc\nX-B3-Flags: 0", "0000000000000001-0000000000000abc-u", ""},
		{"X-B3-Sampled: 0", "0", ""},
		{"X-B3-Sampled: false", "0", ""},
		{"X-B3-Flags: 1", "d", ""},
		{"X-B3-Sampled: yes\nX-B3-TraceId: " + trace64 + "\nX-B3-SpanId: " + spanID, "u", ""},
		{"X-B3-TraceId: " + trace64, "u", ""},
		{"X-B3-SpanId: " + spanID, "u", ""},
		{"X-B3-ParentSpanId: " + aboveID + "\nX-B3-Sampled: 1", "u", ""},
		{"X-B3-TraceId: " + trace128 + "0\nX-B3-SpanId: " + spanID, "u", ""},
		{"X-B3-TraceId: +" + trace64 + "\nX-B3-SpanId: " + spanID, "u", ""},

		// Of several formats, that of the collector.
		{"traceparent: 00-" + trace128 + "-" + aboveID + "-01\nb3: " + trace64 + "-" + spanID + "-1", trace64 + "-" + spanID + "-1", trace128 + "-" + aboveID + "-1"},
		{"X-B3-Sampled: 0\nb3: " + trace64 + "-" + spanID + "-1", trace64 + "-" + spanID + "-1", ""},
		{"traceparent: 00-\nb3: 0", "0", ""},
		{"traceparent: 00-" + trace128 + "-" + spanID + "-01\nb3: ?", trace128 + "-" + spanID + "-1", ""},
	} {
		header := http.Header{}
		for line := range strings.Lines(test.header) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			header.Add(key, value)
		}
		wantOTLP := test.want
		if test.wantOTLP != "" {
			wantOTLP = test.wantOTLP
		}
		for kind, want := range map[string]string{zipkin: test.want, otlp: wantOTLP} {
			if got := readParent(header, kind).text(); got != want {
				t.Errorf("%s of\n%s\ngot %s, want %s", kind, test.header, got, want)
			}
		}
	}
}

// A valid value contains the IDs and the sampling state that are read from it. Others do no
// harm.
func FuzzParent(f *testing.F) {
	f.Add("00-"+trace128+"-"+spanID+"-01", trace128+"-"+spanID+"-d-"+aboveID, trace64, spanID, aboveID, "1", "0")
	f.Add("cc-"+trace128+"-"+spanID+"-00-x", trace64+"-"+spanID, "1", "abc", "", "false", "1")
	f.Add("", "0", "", "", "", "TRUE", "")
	trim := func(id string) string { return strings.TrimLeft(strings.ToLower(id), "0") }
	f.Fuzz(func(t *testing.T, traceparent, b3, trace, id, above, sample, flags string) {
		if p, ok := parseTraceparent(traceparent); ok {
			// The form of the W3C differs from that of B3 in the version and the flags.
			want := traceparent[3:52]
			if got := strings.Repeat("0", 32-len(traceText(p.trace))) + p.text(); !strings.HasPrefix(got, want+"-") || p.above != [8]byte{} || p.sampling != sampled && p.sampling != unsampled {
				t.Errorf("traceparent %q: got %s, want %s", traceparent, got, want)
			}
		} else if p != (parent{}) {
			t.Errorf("invalid traceparent %q: got %s", traceparent, p.text())
		}
		if p, ok := parseB3(b3); ok {
			want := strings.TrimPrefix(strings.ToLower(b3), strings.Repeat("0", 16))
			if got := p.text(); got != want && strings.TrimSuffix(got, "-u") != want && got+"-"+strings.Repeat("0", 16) != want {
				t.Errorf("b3 %q: got %s, want %s", b3, got, want)
			}
		} else if p != (parent{}) {
			t.Errorf("invalid b3 %q: got %s", b3, p.text())
		}
		if p, ok := parseB3Headers(trace, id, above, sample, flags); ok && p.valid() {
			if got := hex.EncodeToString(p.trace[:]); trim(got) != trim(trace) {
				t.Errorf("X-B3-TraceId %q: got %s", trace, got)
			}
			if got := hex.EncodeToString(p.id[:]); trim(got) != trim(id) {
				t.Errorf("X-B3-SpanId %q: got %s", id, got)
			}
			if got := hex.EncodeToString(p.above[:]); trim(got) != trim(above) {
				t.Errorf("X-B3-ParentSpanId %q: got %s", above, got)
			}
		} else if p.trace != [16]byte{} || p.id != [8]byte{} || p.above != [8]byte{} {
			t.Errorf("X-B3-TraceId %q, X-B3-SpanId %q, X-B3-ParentSpanId %q: got %s", trace, id, above, p.text())
		}
	})
}

// A query is followed if every selects it and its client records the trace. The header of one
// that is not selected is not read.
func TestClientSampling(t *testing.T) {
	for value, want := range map[string]bool{
		"": true, "0": false, "1": true, "d": true, "x": true,
		trace64 + "-" + spanID + "-0": false, trace64 + "-" + spanID + "-1": true, trace64 + "-" + spanID: true,
	} {
		tr, q := &Trace{every: 2}, dns.NewQuery(nil)
		q.Header = http.Header{"B3": {value}}
		for i := 1; i <= 4; i++ {
			if got := tr.TraceDNS(q) != nil; got != (want && i%2 == 0) {
				t.Errorf("b3 %q, query %d: followed %v, want %v", value, i, got, want && i%2 == 0)
			}
		}
	}
}

// The header of a query that is not selected, or whose client does not record its trace, costs
// no allocation.
func TestHeaderAllocations(t *testing.T) {
	header := http.Header{"B3": {trace128 + "-" + spanID + "-0-" + aboveID}, "Traceparent": {"00-" + trace128 + "-" + spanID + "-00"}}
	for _, every := range []string{"0", "1", "1000000000"} {
		for _, kind := range []string{"zipkin", "otlp"} {
			b, _, err := plan("trace " + kind + " 192.0.2.1:1 {\n every " + every + "\n}")
			if err != nil {
				t.Fatal(err)
			}
			port, mux := &dns.Port{}, dns.NewMux(dns.NewParkingLot(1), nil)
			if err := mux.Route(wire.Root, b.Chain.CopyFor("https://:443", ".")); err != nil {
				t.Fatal(err)
			}
			port.Swap(mux)
			q, lent := dns.NewQuery(nil), make([]byte, 0, 4096)
			packet := wire.AppendRequest(nil, 4, wire.FlagRD, []byte("\x03www\x00"), wire.TypeA)
			if n := testing.AllocsPerRun(1000, func() {
				q.Reset(packet, dns.TCP, time.Unix(0, 0))
				q.Header = header
				port.Serve(q, lent)
				q.Observe(time.Unix(0, 0))
			}); n != 0 {
				t.Errorf("%s, every %s: got %v allocations, want none", kind, every, n)
			}
		}
	}
}
