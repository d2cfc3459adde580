package index

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/clustertest"
)

func TestDashedAddresses(t *testing.T) {
	for ip, label := range map[string]string{
		"10.0.0.1":        "10-0-0-1",
		"fd00::1":         "fd00--1",
		"fd00::":          "fd00--0", // no label ends in a dash
		"::":              "--0",
		"::1":             "--1",
		"2001:db8::a":     "2001-db8--a",
		"1:2:3:4:5:6:7:8": "1-2-3-4-5-6-7-8",
	} {
		if got := string(AppendDashed(nil, netip.MustParseAddr(ip))); got != label {
			t.Errorf("%s is %s, want %s", ip, got, label)
		}
		if got, ok := ParsePodLabel([]byte(label)); !ok || got.String() != ip {
			t.Errorf("%s is %v, want %s", label, got, ip)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		ip := clustertest.RandomAddr(r)
		label := AppendDashed(nil, ip)
		if back, ok := ParsePodLabel(label); !ok || back != ip {
			t.Fatalf("parsePodLabel(%s): got %v, want %s", label, back, ip)
		}
		if back, ok := AddrOfLabel(label); !ok || back != ip {
			t.Fatalf("AddrOfLabel(%s): got %v, want %s", label, back, ip)
		}
	}
}

// ParsePodLabel agrees with netip: three dashes, no two of them adjacent, are the dots of
// IPv4; all others are colons.
func TestParsePodLabelAgainstNetip(t *testing.T) {
	check := func(label string) {
		t.Helper()
		text := strings.ReplaceAll(label, "-", ":")
		if strings.Count(label, "-") == 3 && !strings.Contains(label, "--") {
			text = strings.ReplaceAll(label, "-", ".")
		}
		want, err := netip.ParseAddr(text)
		ok := err == nil && !strings.ContainsAny(label, ".:%")
		if ok {
			want = want.Unmap()
		}
		if got, found := ParsePodLabel([]byte(label)); found != ok || ok && got != want {
			t.Errorf("undash(%q) = %v, %v, want %v, %v", label, got, found, want, ok)
		}
	}
	for _, label := range []string{
		"", "-", "--", "---", "----", "0", "1-2-3", "1-2-3-4", "1-2-3-4-", "-1-2-3", "1-2-3-256", "01-2-3-4", "1-2-3-04", "1-2-3-4-5",
		"1--2--3", "1-2-3-4-5-6-7-8-9", "1-2-3-4-5-6-7--8", "1-2-3-4-5-6-7--", "--2-3-4-5-6-7-8", "1--8", "1---8", "12345--", "fd00--1-", "-1--",
		"--ffff-a00-1", "--ffff-10.0.0.1", "fe80--1%eth0", "fd00:-1", "g--1", "a-b-c-d", "1-2-3-4%1", "0-0-0-0", "0000-0-0-0",
	} {
		check(label)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		var b strings.Builder
		for range r.IntN(20) {
			b.WriteString([]string{"-", "-", "--", "0", "1", "f", "25", "255", "abcd", "g", "00", "."}[r.IntN(12)])
		}
		check(b.String())
	}
}

func TestDottedNames(t *testing.T) {
	for _, c := range []struct {
		name, labels string
		same         bool
	}{
		{"east", "\x04east", true},
		{"eu.west", "\x02eu\x04west", true},
		{"eu.west", "\x04west", false},
		{"eu.west", "\x07eu.west", false},
		{"", "", true},
		{"east", "", false},
	} {
		if got := equalLabels([]byte(c.labels), c.name); got != c.same {
			t.Errorf("equalLabels(%q, %q): got %v, want %v", c.labels, c.name, got, c.same)
		}
	}
	for tail, want := range map[string]bool{"\x04west": true, "\x02eu\x04west": true, "\x03est": false, "est": false, "\x02eu": false} {
		if got := EndsIn([]byte("\x02eu\x04west"), []byte(tail)); got != want {
			t.Errorf("endsIn(eu.west, %q): got %v, want %v", tail, got, want)
		}
	}
}

func TestParseHashLabel(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 100_000 {
		ip := clustertest.RandomAddr(r)
		label := AppendHashLabel(nil, ip)
		if h, ok := ParseHashLabel(label); !ok || h != hashOf(ip) {
			t.Fatalf("%s becomes %s and then %x, want %x", ip, label, h, hashOf(ip))
		}
	}
	for _, label := range []string{
		"", "3", "626362616330373", "626362616330373700", "62636261633037373737", // of a wrong length
		"3063626163303737", // leading zeros are omitted
		"6263626163303767", "6263626163303747", "626362616330373:", "62-362616330373", "10-0-0-1", "db-0",
	} {
		if h, ok := ParseHashLabel([]byte(label)); ok {
			t.Errorf("%q is the hash %x, want none", label, h)
		}
	}
	if h, ok := ParseHashLabel([]byte("30")); !ok || h != 0 {
		t.Errorf("30 is %x, %v, want the hash 0", h, ok)
	}
}
