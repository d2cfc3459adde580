package resolvconf

import (
	"strings"
	"testing"
)

func TestParseResolver(t *testing.T) {
	const server = "nameserver 192.0.2.1\n"
	for _, c := range []struct{ name, text, want string }{
		{"plain", server + "search a.example. b.example\noptions edns0 ndots:2\n", server + "search a.example b.example\noptions edns0 ndots:2\n"},
		{"domain", server + "domain corp.example\n", server + "search corp.example\n"},
		{"search after domain", server + "domain a\nsearch b c\n", server + "search b c\n"},
		{"domain after search", server + "search b c\ndomain a. x\n", server + "search a\n"},
		{"a search line without names", server + "search a\nsearch\n", server + "search a\n"},
		{"the root", server + "search . a\n", server + "search . a\n"},
		{"no nameserver", "search a\n", "nameserver 127.0.0.1\nsearch a\n"},
		{"empty", "", "nameserver 127.0.0.1\n"},
		{"nameservers without addresses", "nameserver\nnameserver dns.example\n" + server, server},
		{"an address of an interface", "nameserver fe80::1%eth0 x\n", "nameserver fe80::1%eth0\n"},
		{"the last option of a name counts", server + "options ndots:2 edns0\noptions ndots:3\n", server + "options ndots:3 edns0\n"},
		{"remarks and other lines", "# nameserver 192.0.2.7\n;domain x\nsortlist 192.0.2.0\nfamily inet4\n" + server, server},
	} {
		if got := ParseResolver([]byte(c.text)).String(); got != c.want {
			t.Errorf("%s: %q: got\n%swant\n%s", c.name, strings.TrimSpace(c.text), got, c.want)
		}
	}
}
