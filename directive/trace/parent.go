package trace

import (
	"encoding/hex"
	"strings"
)

// A parent is the span of a client that a query belongs to, as a header of HTTP or the
// metadata of gRPC have it.
type parent struct {
	trace    [16]byte // zero if there is none
	id       [8]byte
	above    [8]byte // the parent of the client's span; zero if it is not known
	sampling sampling
}

// sampling is a client's decision about its trace.
type sampling uint8

const (
	undecided sampling = iota
	unsampled          // the trace is not to be recorded
	sampled
	debugged // sampled, and collectors are to keep the trace
)

// readParent returns the parent in a header, whose keys are in canonical form. Of several
// formats it prefers the collector's own. Without a valid header the parent is zero.
func readParent(header map[string][]string, kind string) parent {
	formats := [...]func(header map[string][]string) (parent, bool){fromB3, fromB3Headers, fromTraceparent}
	if kind == otlp {
		formats = [...]func(header map[string][]string) (parent, bool){fromTraceparent, fromB3, fromB3Headers}
	}
	for _, read := range formats {
		if p, ok := read(header); ok {
			return p
		}
	}
	return parent{}
}

// only returns the value of a key, "" unless there is exactly one.
func only(header map[string][]string, key string) string {
	if v := header[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}

func fromTraceparent(header map[string][]string) (parent, bool) {
	return parseTraceparent(only(header, "Traceparent"))
}

func fromB3(header map[string][]string) (parent, bool) { return parseB3(only(header, "B3")) }

func fromB3Headers(header map[string][]string) (parent, bool) {
	return parseB3Headers(only(header, "X-B3-Traceid"), only(header, "X-B3-Spanid"), only(header, "X-B3-Parentspanid"),
		only(header, "X-B3-Sampled"), only(header, "X-B3-Flags"))
}

// parseTraceparent parses the header traceparent: https://www.w3.org/TR/trace-context/.
func parseTraceparent(s string) (p parent, ok bool) {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' || strings.ToLower(s[:length]) != s[:length] {
		return parent{}, false
	}

	// Later versions may have more fields.
	var version, flags [1]byte
	if !parseID(version[:], s[:2]) || version[0] == 0xff || len(s) > length && (version[0] == 0 || s[length] != '-') ||
		!parseID(flags[:], s[53:length]) || !parseID(p.trace[:], s[3:35]) || !parseID(p.id[:], s[36:52]) {
		return parent{}, false
	}

	p.sampling = unsampled
	if flags[0]&1 != 0 {
		p.sampling = sampled
	}
	return p, p.valid()
}

// parseB3 parses the header b3, {TraceId}-{SpanId}-{SamplingState}-{ParentSpanId}:
// https://github.com/openzipkin/b3-propagation.
func parseB3(s string) (p parent, ok bool) {
	if len(s) == 1 {
		p.sampling, ok = parseSampling(s)
		return p, ok
	}

	trace, rest, _ := strings.Cut(s, "-")
	id, rest, more := strings.Cut(rest, "-")
	if len(trace) != 16 && len(trace) != 32 || len(id) != 16 || !parseID(p.trace[:], trace) || !parseID(p.id[:], id) {
		return parent{}, false
	}
	if more {
		state, above, more := strings.Cut(rest, "-")
		if p.sampling, ok = parseSampling(state); !ok || more && (len(above) != 16 || !parseID(p.above[:], above)) {
			return parent{}, false
		}
	}
	return p, p.valid()
}

func parseSampling(s string) (sampling, bool) {
	switch s {
	case "0":
		return unsampled, true
	case "1":
		return sampled, true
	case "d":
		return debugged, true
	}
	return undecided, false
}

// parseB3Headers parses the values of the headers whose names begin with X-B3. They may have
// no IDs. Leading zeros of an ID may be absent, as they are from some clients.
func parseB3Headers(trace, id, above, sample, flags string) (p parent, ok bool) {
	switch strings.ToLower(sample) {
	case "":
	case "0", "false":
		p.sampling = unsampled
	case "1", "true":
		p.sampling = sampled
	default:
		return parent{}, false
	}
	if flags == "1" {
		p.sampling = debugged
	}

	if trace == "" && id == "" && above == "" {
		return p, p.sampling != undecided
	}
	ok = parseID(p.trace[:], trace) && parseID(p.id[:], id) && (above == "" || parseID(p.above[:], above))
	if !ok || !p.valid() {
		return parent{}, false
	}
	return p, true
}

// parseID parses an ID in hexadecimal, without any number of its leading zeros.
func parseID(to []byte, s string) bool {
	if s == "" || len(s) > 2*len(to) {
		return false
	}
	const zeros = "00000000000000000000000000000000"
	var buf [len(zeros)]byte
	_, err := hex.Decode(to, append(append(buf[:0], zeros[:2*len(to)-len(s)]...), s...))
	return err == nil
}

// valid reports whether the IDs of the client's span are.
func (p *parent) valid() bool { return p.trace != [16]byte{} && p.id != [8]byte{} }

// traceText returns the ID of a trace in hexadecimal: 16 digits if it has 64 bits, as the
// collectors of Zipkin write it, else 32.
func traceText(id [16]byte) string {
	if [8]byte(id[:8]) == [8]byte{} {
		return hex.EncodeToString(id[8:])
	}
	return hex.EncodeToString(id[:])
}
