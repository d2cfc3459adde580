package admin

import "testing"

// An address that other networks may reach is public.
func TestPublicAddress(t *testing.T) {
	for addr, want := range map[string]bool{
		"localhost:8053": false, "127.0.0.2:8053": false, "[::1]:8053": false, "unix:/run/admin.sock": false, "10.0.0.1:8053": false,
		"[fd00::1]:8053": false, ":8053": true, "0.0.0.0:8053": true, "[::]:8053": true, "192.0.2.1:8053": true, "dns.example.org:8053": true,
	} {
		if got := public(addr); got != want {
			t.Errorf("%s: got %t, want %t", addr, got, want)
		}
	}
}
