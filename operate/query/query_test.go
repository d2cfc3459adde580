package query_test

import (
	"testing"

	"github.com/seamark/seamark/operate/query"
)

func TestWithPort(t *testing.T) {
	for server, want := range map[string]string{
		"192.0.2.1":           "192.0.2.1:53",
		"192.0.2.1:54":        "192.0.2.1:54",
		"2001:db8::1":         "[2001:db8::1]:53",
		"[2001:db8::1]":       "[2001:db8::1]:53",
		"[2001:db8::1]:54":    "[2001:db8::1]:54",
		"fe80::1%eth0":        "[fe80::1%eth0]:53",
		"[fe80::1%eth0]":      "[fe80::1%eth0]:53",
		"[fe80::1%eth0]:54":   "[fe80::1%eth0]:54",
		"dns.example":         "dns.example:53",
		"dns.example:54":      "dns.example:54",
		"::ffff:192.0.2.1":    "[::ffff:192.0.2.1]:53",
		"[::ffff:192.0.2.1]:": "[::ffff:192.0.2.1]:",
	} {
		if got := query.WithPort(server); got != want {
			t.Errorf("WithPort(%q): got %q, want %q", server, got, want)
		}
	}
}
