package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/judge"
	"github.com/seamark/seamark/observe/traffic"
)

// A filter with an IPv4-mapped address matches clients recorded with the IPv4 address.
func TestFilterClients(t *testing.T) {
	client := netip.MustParseAddr("10.1.2.3")
	for text, want := range map[string]bool{
		"10.1.2.3": true, "10.1.2.3/8": true, "::ffff:10.1.2.3": true, "::ffff:10.0.0.0/104": true,
		"10.1.2.4": false, "::ffff:11.0.0.0/104": false, "::/0": false,
	} {
		f, err := newFilter(httptest.NewRequest("GET", "/?client="+text, nil))
		if err != nil || f.selects(&traffic.Event{Client: client}) != want {
			t.Errorf("client=%s: error %v, selected %t, want %t", text, err, !want, want)
		}
	}
}

// FuzzParameters: any parameters of any page of the API lead to a complete JSON reply, and to the same
// one again. Wrong ones are refused with a reason.
func FuzzParameters(f *testing.F) {
	pages := []string{"GET /v1/explain", "GET /v1/records", "GET /v1/cache", "POST /v1/cache/flush", "GET /v1/top", "HEAD /v1/tail"}
	for i, query := range []string{
		"name=a.example&type=AAAA&client=10.0.0.1&server=.", "zone=Example&directive=file&name=a&type=srv",
		"limit=100&name=a&type=TYPE65", "name=.", "by=names&limit=501", "rcode=nxdomain&client=10.0.0.0/8&slower=1ms&source=x",
		"client=::ffff:10.0.0.0/104&slower=-1s", "name=a..b&limit=-1&by=%zz;x", "client=fe80::1%25eth0",
	} {
		f.Add(byte(i), query)
	}

	a := &Admin{block: new(config.Block)}
	a.SetPorts(nil)
	recorder, registry, log := traffic.NewRecorder(nil), new(metrics.Registry), slog.New(slog.DiscardHandler)
	j := judge.New(registry, nil, recorder, log)
	f.Cleanup(j.Stop)
	s := newService(options{}, recorder, j, registry, log)
	s.blocks = []*Admin{a}
	f.Cleanup(s.Stop)

	serve := func(page byte, query string) *httptest.ResponseRecorder {
		method, path, _ := strings.Cut(pages[int(page)%len(pages)], " ")
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, nil)
		r.URL = &url.URL{Path: path, RawQuery: query}
		r.Header.Set("X-Seamark", "1")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	f.Fuzz(func(t *testing.T, page byte, query string) {
		first, again := serve(page, query), serve(page, query)
		if first.Code != again.Code || first.Body.String() != again.Body.String() && first.Code != http.StatusOK {
			t.Errorf("%q: got %d %s, and again %d %s", query, first.Code, first.Body, again.Code, again.Body)
		}
		if !slices.Contains([]int{http.StatusOK, http.StatusBadRequest}, first.Code) {
			t.Errorf("%q: got status %d, want 200 or 400", query, first.Code)
		}

		var reply any
		if err := json.Unmarshal(first.Body.Bytes(), &reply); err != nil && first.Body.Len() > 0 {
			t.Errorf("%q: got %q, want JSON: %v", query, first.Body, err)
		}
		if m, ok := reply.(map[string]any); first.Code != http.StatusOK && (!ok || m["error"] == "") {
			t.Errorf("%q: got %d %q, want a reason", query, first.Code, first.Body)
		}
	})
}
