package zone

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// Hashes are those of RFC 5155 appendix A.
func TestNSEC3Hash(t *testing.T) {
	p := nsec3Param{12, "\xaa\xbb\xcc\xdd"}
	for _, text := range []string{"example.", "a.example.", "*.w.example.", "xx.example.", "."} {
		name, err := wire.ParseName(text)
		if err != nil {
			t.Fatal(err)
		}
		want := dns.HashName(text, dns.SHA1, 12, "aabbccdd")
		sum := p.hash([]byte(name))
		if got := nsec3Encoding.EncodeToString(sum[:]); got != want {
			t.Errorf("hash of %s: got %s, want %s", text, got, want)
		}
	}
}

func TestNSEC3HashAllocations(t *testing.T) {
	p := nsec3Param{12, "\xaa\xbb\xcc\xdd"}
	name := []byte("\x03www\x07example\x03org\x00")
	if n := testing.AllocsPerRun(100, func() { p.hash(name) }); n != 0 {
		t.Errorf("hash: %v allocations, want 0", n)
	}
}
