package forward

import (
	"strings"
	"testing"
)

// FuzzResolvConf: each line of a file leads to the server that it leads to alone, and to none if it is
// a comment.
func FuzzResolvConf(f *testing.F) {
	f.Add("nameserver 192.0.2.1\n# nameserver 192.0.2.2\nsearch a b\nnameserver\t2001:db8::1%eth0 x\n")
	f.Add("nameserver 192.0.2.1\r\nnameserver ::ffff:192.0.2.3\nnameserver\nnameservers 1.1.1.1")
	f.Fuzz(func(t *testing.T, text string) {
		all := parseResolvConf([]byte(text))
		n := 0
		for line := range strings.Lines(text) {
			for _, addr := range parseResolvConf([]byte(line)) {
				if n >= len(all) || all[n] != addr || addr.Is4In6() {
					t.Fatalf("%q: got %v, want %v of the line %q at %d", text, all, addr, line, n)
				}
				n++
			}
			if strings.HasPrefix(line, "#") && len(parseResolvConf([]byte(line))) > 0 {
				t.Fatalf("%q: the comment %q has a server", text, line)
			}
		}
		if n != len(all) {
			t.Fatalf("%q: got %v, want %d servers", text, all, n)
		}
	})
}
