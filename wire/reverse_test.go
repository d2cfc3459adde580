package wire

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func parsed(t *testing.T, name string) Name {
	t.Helper()
	n, err := ParseName(name)
	if err != nil {
		t.Fatalf("ParseName(%q): %v", name, err)
	}
	return n
}

func TestParseReverse(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32() >> r.IntN(8))
		}
		ip := netip.AddrFrom16(b)
		if r.IntN(2) == 0 {
			ip = netip.AddrFrom4([4]byte(b[:4]))
		}
		name, err := dns.ReverseAddr(ip.String())
		if err != nil {
			t.Fatal(err)
		}
		labels := dns.SplitDomainName(name)
		cut := r.IntN(len(labels) - 1)
		name = strings.Join(labels[cut:], ".") + "."
		want := netip.PrefixFrom(ip, ip.BitLen()-cut*ip.BitLen()/(len(labels)-2)).Masked()
		n := parsed(t, name)
		if got, ok := ParseReverse([]byte(n)); !ok || got != want {
			t.Fatalf("ParseReverse(%s) = %s, %v; want %s, true", name, got, ok, want)
		}
		if !WithinReverse(n) {
			t.Errorf("WithinReverse(%s) = false, want true", name)
		}
	}
}

func TestParseReverseInvalid(t *testing.T) {
	six := strings.Repeat("0.", 31)
	for _, name := range []string{
		"01.0.0.10.in-addr.arpa.", "1.00.0.10.in-addr.arpa.", "256.0.0.10.in-addr.arpa.", "1000.0.0.10.in-addr.arpa.",
		"x.10.in-addr.arpa.", "1.1.0.0.10.in-addr.arpa.", "-1.0.0.10.in-addr.arpa.", "1.in-addr.arpa.example.",
		`1\007in-addr.arpa.`, `1.\001\007in-addr.arpa.`, "00." + six + "ip6.arpa.", "g." + six + "ip6.arpa.",
		"0.0." + six + "ip6.arpa.", "1.0.0.10.ip6.arpa.x.", `0\003ip6.arpa.`, "xip6.arpa.", "arpa.", ".",
	} {
		if got, ok := ParseReverse([]byte(parsed(t, name))); ok {
			t.Errorf("ParseReverse(%s) = %s, true; want false", name, got)
		}
	}
}

func TestParseReverseAllocations(t *testing.T) {
	for _, name := range []string{"1.0.0.10.in-addr.arpa.", strings.Repeat("0.", 32) + "ip6.arpa."} {
		wire := []byte(parsed(t, name))
		if n := testing.AllocsPerRun(100, func() { ParseReverse(wire) }); n > 0 {
			t.Errorf("ParseReverse(%s): %v allocations, want none", name, n)
		}
	}
}

func TestParseIPv4(t *testing.T) {
	for _, text := range []string{"0.0.0.0", "255.255.255.255", "10.1.2.3", "1.2.3", "1.2.3.4.5", "1.2.3.4.", ".1.2.3.4", "01.2.3.4", "1.2.3.00", "256.1.1.1", "1.2.3.1000", "", "a.b.c.d", "1.2.3.4a", "::1", "1..2.3", "1.2.3.", "1.2.3.4 "} {
		want, err := netip.ParseAddr(text)
		valid := err == nil && want.Is4()
		for _, sep := range []string{".", "-"} {
			form := strings.ReplaceAll(text, ".", sep)
			got, ok := ParseIPv4([]byte(form), sep[0])
			if ok && got != want || ok != valid {
				t.Errorf("ParseIPv4(%q) = %v, %v; want %v, %v", form, got, ok, want, valid)
			}
		}
	}
}
