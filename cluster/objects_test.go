package cluster

import (
	"bytes"
	"net/netip"
	"testing"
)

// From skips plain IPv4 endpoints with another address, and no others.
func TestEndpointsFrom(t *testing.T) {
	ip := netip.MustParseAddr
	plain := func(a string) Endpoint { return Endpoint{Addr: ip(a), Ready: true} }
	for _, first := range []Endpoint{
		plain("10.0.0.1"), {Addr: ip("10.0.0.1")}, plain("2001:db8::1"),
		{Addr: ip("10.0.0.9"), Hostname: "a"}, {Addr: ip("10.0.0.9"), Zone: "z"},
	} {
		others := AppendEndpoint(AppendEndpoint(nil, plain("10.0.0.2")), Endpoint{Addr: ip("1.0.0.10")})
		rest := string(AppendEndpoint(AppendEndpoint(nil, first), plain("10.0.0.1")))
		if got := Endpoints(string(others) + rest).From([4]byte{10, 0, 0, 1}); string(got) != rest {
			t.Errorf("%v: got % x, want % x", first, got, rest)
		}
		if got := Endpoints(others).From([4]byte{10, 0, 0, 1}); got != "" {
			t.Errorf("From an address that is missing: got % x, want none", got)
		}
	}
}

func TestAppendEndpoint(t *testing.T) {
	got := AppendEndpoint(nil, Endpoint{Addr: netip.MustParseAddr("10.1.2.3"), Ready: true})
	if want := []byte{flagReady, 10, 1, 2, 3}; !bytes.Equal(got, want) {
		t.Errorf("endpoint 10.1.2.3, ready: got % x, want % x", got, want)
	}
}
