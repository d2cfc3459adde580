package streams

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"github.com/seamark/seamark/wire"
)

// FuzzHTTPSParameters: the query of a GET request is refused with a status of a client's error, or is
// the one message whose encoding the client would send (RFC 8484 §4.1).
func FuzzHTTPSParameters(f *testing.F) {
	f.Add("dns=AAABAAABAAAAAAAAAWEAAAEAAQ", "application/dns-message", true)
	f.Add("dns=AAAB&dns=AAAB", "*/*", true)
	f.Add("ct&dns=AA%3D%3D", "", false)
	f.Fuzz(func(t *testing.T, query, accept string, second bool) {
		r := &http.Request{
			Method: http.MethodGet, ProtoMajor: 1, URL: &url.URL{Path: "/dns-query", RawQuery: query},
			Header: http.Header{"Accept": {accept}}, Body: http.NoBody,
		}
		if second {
			r.ProtoMajor = 2
		}

		packet, refused := (&queries{}).message(httptest.NewRecorder(), r, netip.Addr{})
		if refused != 0 {
			if packet != nil || refused < 400 || refused > 499 {
				t.Fatalf("%q: got status %d and %x", query, refused, packet)
			}
			return
		}
		values, _ := url.ParseQuery(query)
		again, err := base64.RawURLEncoding.DecodeString(values.Get("dns"))
		if len(values["dns"]) != 1 || err != nil || !bytes.Equal(packet, again) || len(packet) > wire.MaxMessage {
			t.Fatalf("%q: got %x, want %x (%v)", query, packet, again, err)
		}
	})
}
