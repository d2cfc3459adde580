package trace

import (
	"net/netip"
	"strings"
	"time"

	"github.com/seamark/seamark/wire/protobuf"
	"google.golang.org/protobuf/encoding/protowire"
)

// The field numbers come from the messages in
// https://github.com/open-telemetry/opentelemetry-proto: ExportTraceServiceRequest and
// ExportTraceServiceResponse, trace.proto, resource.proto and common.proto.

// appendMessage appends a field that is a message, whose fields add appends.
func appendMessage(buf []byte, field protowire.Number, add func(buf []byte) []byte) []byte {
	buf = protowire.AppendTag(buf, field, protowire.BytesType)
	return protowire.AppendBytes(buf, add(nil))
}

func appendText(buf []byte, field protowire.Number, text string) []byte {
	buf = protowire.AppendTag(buf, field, protowire.BytesType)
	return protowire.AppendString(buf, strings.ToValidUTF8(text, "?"))
}

func appendBytes(buf []byte, field protowire.Number, b []byte) []byte {
	buf = protowire.AppendTag(buf, field, protowire.BytesType)
	return protowire.AppendBytes(buf, b)
}

func appendNumber(buf []byte, field protowire.Number, n int) []byte {
	buf = protowire.AppendTag(buf, field, protowire.VarintType)
	return protowire.AppendVarint(buf, uint64(n))
}

// appendTime appends a time after start. The system's clock may be set between the two.
func appendTime(buf []byte, field protowire.Number, start time.Time, after time.Duration) []byte {
	buf = protowire.AppendTag(buf, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(buf, uint64(start.UnixNano()+max(0, after.Nanoseconds())))
}

// appendAttribute appends a KeyValue whose AnyValue addValue appends.
func appendAttribute(buf []byte, field protowire.Number, key string, addValue func(buf []byte) []byte) []byte {
	return appendMessage(buf, field, func(buf []byte) []byte {
		return appendMessage(appendText(buf, 1, key), 2, addValue)
	})
}

func appendTextAttribute(buf []byte, field protowire.Number, key, value string) []byte {
	return appendAttribute(buf, field, key, func(buf []byte) []byte { return appendText(buf, 1, value) })
}

// appendAddress appends the attributes of a peer, with the names of OpenTelemetry's
// conventions.
func appendAddress(buf []byte, field protowire.Number, role string, at netip.AddrPort) []byte {
	if !at.IsValid() {
		return buf
	}
	buf = appendTextAttribute(buf, field, role+".address", at.Addr().Unmap().String())
	return appendAttribute(buf, field, role+".port", func(buf []byte) []byte {
		return appendNumber(buf, 3, int(at.Port()))
	})
}

// encodeOTLP returns spans as an ExportTraceServiceRequest.
func encodeOTLP(service string, spans []span) []byte {
	return appendMessage(nil, 1, func(buf []byte) []byte { // ResourceSpans
		buf = appendMessage(buf, 1, func(buf []byte) []byte { // Resource
			return appendTextAttribute(buf, 1, "service.name", service)
		})
		return appendMessage(buf, 2, func(buf []byte) []byte { // ScopeSpans
			buf = appendMessage(buf, 1, func(buf []byte) []byte { return appendText(buf, 1, "seamark") })
			for i := range spans {
				buf = appendMessage(buf, 2, spans[i].appendOTLP)
			}
			return buf
		})
	})
}

// appendOTLP appends the fields of a Span.
func (s *span) appendOTLP(buf []byte) []byte {
	buf = appendBytes(buf, 1, s.trace[:])
	buf = appendBytes(buf, 2, s.id[:])
	if s.parent != [8]byte{} {
		buf = appendBytes(buf, 4, s.parent[:])
	}
	buf = appendText(buf, 5, s.name)
	buf = appendNumber(buf, 6, s.kind)
	buf = appendTime(buf, 7, s.start, 0)
	buf = appendTime(buf, 8, s.start, s.duration)

	const attributes = 9
	for _, t := range s.tags {
		buf = appendTextAttribute(buf, attributes, t.key, t.value)
	}
	switch s.kind {
	case server:
		buf = appendAddress(buf, attributes, "client", s.remote)
		buf = appendAddress(buf, attributes, "server", s.local)
	case client:
		buf = appendAddress(buf, attributes, "server", s.remote)
	}

	if s.err != "" {
		buf = appendMessage(buf, 15, func(buf []byte) []byte { // Status
			return appendNumber(appendText(buf, 2, s.err), 3, 2) // STATUS_CODE_ERROR
		})
	}
	return buf
}

// rejectedOTLP returns how many spans a collector has rejected: the field rejected_spans of
// partial_success in an ExportTraceServiceResponse. It returns 0 for an invalid response.
func rejectedOTLP(response []byte) (rejected int) {
	m := protobuf.Message{Rest: response}
	for m.NextOf(1) {
		if m.Type != protowire.BytesType {
			continue
		}
		success := m.Embedded()
		for success.NextOf(1) {
			if success.Type == protowire.VarintType {
				rejected = int(success.Varint())
			}
		}
	}
	return rejected
}
