package trace

import (
	"encoding/hex"
	"encoding/json"
	"net/netip"
)

// A zipkinSpan is a span of version 2 of Zipkin's interface:
// https://zipkin.io/zipkin-api/zipkin2-api.yaml.
type zipkinSpan struct {
	TraceID        string            `json:"traceId"`
	ID             string            `json:"id"`
	ParentID       string            `json:"parentId,omitempty"`
	Name           string            `json:"name"`
	Kind           string            `json:"kind,omitempty"`
	Timestamp      int64             `json:"timestamp"` // microseconds since 1970
	Duration       int64             `json:"duration"`  // microseconds, at least 1
	LocalEndpoint  *zipkinEndpoint   `json:"localEndpoint"`
	RemoteEndpoint *zipkinEndpoint   `json:"remoteEndpoint,omitempty"`
	Tags           map[string]string `json:"tags,omitempty"`
	Shared         bool              `json:"shared,omitempty"`
	Debug          bool              `json:"debug,omitempty"`
}

type zipkinEndpoint struct {
	ServiceName string `json:"serviceName,omitempty"`
	IPv4        string `json:"ipv4,omitempty"`
	IPv6        string `json:"ipv6,omitempty"`
	Port        uint16 `json:"port,omitempty"`
}

func newZipkinEndpoint(service string, at netip.AddrPort) *zipkinEndpoint {
	e := &zipkinEndpoint{ServiceName: service, Port: at.Port()}
	switch a := at.Addr().Unmap().WithZone(""); {
	case a.Is4():
		e.IPv4 = a.String()
	case a.Is6():
		e.IPv6 = a.String()
	}
	return e
}

// encodeZipkin returns spans as a request in JSON.
func encodeZipkin(service string, spans []span) ([]byte, error) {
	list := make([]zipkinSpan, 0, len(spans))
	for i := range spans {
		s := &spans[i]
		z := zipkinSpan{
			TraceID: traceText(s.trace), ID: hex.EncodeToString(s.id[:]), Name: s.name,
			Timestamp: s.start.UnixMicro(), Duration: max(1, s.duration.Microseconds()),
			LocalEndpoint: newZipkinEndpoint(service, s.local), Tags: map[string]string{},
			Kind:   map[int]string{server: "SERVER", client: "CLIENT"}[s.kind],
			Shared: s.shared, Debug: s.debug,
		}

		if s.parent != [8]byte{} {
			z.ParentID = hex.EncodeToString(s.parent[:])
		}
		if s.remote.IsValid() {
			z.RemoteEndpoint = newZipkinEndpoint("", s.remote)
		}
		for _, t := range s.tags {
			z.Tags[t.key] = t.value
		}
		if s.err != "" {
			z.Tags["error"] = s.err
		}
		list = append(list, z)
	}
	return json.Marshal(list)
}
