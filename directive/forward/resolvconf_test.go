package forward

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// FuzzResolvConf: each line of a file leads to the server that it leads to alone, and to none if it is
// a comment.
func FuzzResolvConf(f *testing.F) {
	f.Add("nameserver 192.0.2.1\n# nameserver 192.0.2.2\nsearch a b\nnameserver\t2001:db8::1%eth0 x\n")
	f.Add("nameserver 192.0.2.1\r\nnameserver ::ffff:192.0.2.3\nnameserver\nnameservers 1.1.1.1")
	f.Fuzz(func(t *testing.T, text string) {
		all := servers(text)
		n := 0
		for line := range strings.Lines(text) {
			for _, addr := range servers(line) {
				if n >= len(all) || all[n] != addr || addr.Is4In6() {
					t.Fatalf("%q: got %v, want %v of the line %q at %d", text, all, addr, line, n)
				}
				n++
			}
			if strings.HasPrefix(line, "#") && len(servers(line)) > 0 {
				t.Fatalf("%q: the comment %q has a server", text, line)
			}
		}
		if n != len(all) {
			t.Fatalf("%q: got %v, want %d servers", text, all, n)
		}
	})
}

func servers(text string) []netip.Addr {
	addrs, _ := parseResolvConf("resolv.conf", []byte(text))
	return addrs
}

// Damaged lines are reported with file and line, and the others are used.
func TestResolvConfDamagedLines(t *testing.T) {
	for _, c := range []struct{ text, servers, damaged string }{
		{"nameserver 192.0.2.1\n", "[192.0.2.1]", "[]"},
		{"nameserver [2001:db8::1]\n; \x01\n# \x00\n", "[2001:db8::1]", "[]"},
		{"nameserver [::1\nnameserver 192.0.2.1]\n\nnameserver [[::1]]", "[]",
			`[r:1: nameserver: want an IP address, got "[::1" r:2: nameserver: want an IP address, got "192.0.2.1]"` +
				` r:4: nameserver: want an IP address, got "[[::1]]"]`},
		{"nameserver 192.0.2.1\x00\nname\x00server 192.0.2.2\nsearch a\x1b\nnameserver 192.0.2.3\r\n", "[192.0.2.3]",
			`[r:1: a line with a control character: "nameserver 192.0.2.1\x00\n"` +
				` r:2: a line with a control character: "name\x00server 192.0.2.2\n"` +
				` r:3: a line with a control character: "search a\x1b\n"]`},
		{"nameserver 192.0.2.1:53\nnameserver\nnameservers x\noptions ndots:5", "[]",
			`[r:1: nameserver: want an IP address, got "192.0.2.1:53"]`},
	} {
		addrs, damaged := parseResolvConf("r", []byte(c.text))
		if got := fmt.Sprint(addrs); got != c.servers {
			t.Errorf("%q: got servers %s, want %s", c.text, got, c.servers)
		}
		if got := fmt.Sprint(damaged); got != c.damaged {
			t.Errorf("%q: got errors\n%s\nwant\n%s", c.text, got, c.damaged)
		}
	}
}
