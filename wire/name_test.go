package wire

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/miekg/dns"
)

func TestParseName(t *testing.T) {
	l63 := strings.Repeat("a", 63)
	for _, tt := range []struct {
		in   string
		wire string // "" if it is an error
		text string // the result of String
	}{
		{".", "\x00", "."},
		{"local", "\x05local\x00", "local."},
		{"local.", "\x05local\x00", "local."},
		{"Web.Shop.SVC", "\x03web\x04shop\x03svc\x00", "web.shop.svc."},
		{"*.shop.", "\x01*\x04shop\x00", "*.shop."},
		{"_http._tcp.", "\x05_http\x04_tcp\x00", "_http._tcp."},
		{`a\.b.c.`, "\x03a.b\x01c\x00", `a\.b.c.`},
		{`a\\b.`, "\x03a\\b\x00", `a\\b.`},
		{`a\046b.`, "\x03a.b\x00", `a\.b.`},
		{`\065.`, "\x01a\x00", "a."}, // an escaped upper-case letter is lower-cased, too
		{`\000\032\127\255.`, "\x04\x00\x20\x7F\xFF\x00", `\000\032\127\255.`},
		{"a b.", "\x03a b\x00", `a\032b.`},
		{`\"\(\)\;\@\$.`, "\x06\"();@$\x00", `\"\(\)\;\@\$.`},
		{"\xC3\xA9.", "\x02\xC3\xA9\x00", `\195\169.`},
		{`\12.`, "\x0212\x00", "12."}, // not three digits: the escape stands for the first
		{`a\.`, "\x02a.\x00", `a\..`}, // an escaped dot does not end a label
		{l63 + ".", "\x3F" + l63 + "\x00", l63 + "."},
		{strings.Repeat("a.", 64), strings.Repeat("\x01a", 64) + "\x00", strings.Repeat("a.", 64)},
		{strings.Repeat("a.", 127), strings.Repeat("\x01a", 127) + "\x00", strings.Repeat("a.", 127)}, // 255 bytes
		{strings.Repeat(l63+".", 3) + l63[:61] + ".", strings.Repeat("\x3F"+l63, 3) + "\x3D" + l63[:61] + "\x00",
			strings.Repeat(l63+".", 3) + l63[:61] + "."}, // 255 bytes

		{in: ""},
		{in: ".."},
		{in: ".a"},
		{in: "a..b"},
		{in: "a.."},
		{in: `a\`},
		{in: `\256.`},
		{in: `\999.`},
		{in: l63 + "a."},
		{in: l63 + "a"},
		{in: strings.Repeat("a.", 128)},
		{in: strings.Repeat(l63+".", 3) + l63[:62] + "."}, // 256 bytes
	} {
		n, err := ParseName(tt.in)
		switch {
		case tt.wire == "":
			if err == nil {
				t.Errorf("ParseName(%q) = %q, want an error", tt.in, string(n))
			}
			continue
		case err != nil:
			t.Errorf("ParseName(%q): %v", tt.in, err)
			continue
		case string(n) != tt.wire:
			t.Errorf("ParseName(%q) = %q, want %q", tt.in, string(n), tt.wire)
		}
		if s := n.String(); s != tt.text {
			t.Errorf("ParseName(%q).String() = %q, want %q", tt.in, s, tt.text)
		}
		if again, err := ParseName(n.String()); err != nil || again != n {
			t.Errorf("ParseName(%q) = %q, %v; want %q", n.String(), string(again), err, string(n))
		}
	}
}

func TestNameStringMalformed(t *testing.T) {
	if s := Name("").String(); s != "." {
		t.Errorf("String of the zero Name: got %q, want \".\"", s)
	}
	// String shows the bytes of an incomplete label.
	if s := Name("\x05ab").String(); s != "ab." {
		t.Errorf("got %q, want \"ab.\"", s)
	}
}

func TestLabelsAndWithin(t *testing.T) {
	name := func(s string) Name {
		n, err := ParseName(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for s, want := range map[string]int{".": 0, "local": 1, "svc.cluster.local": 3, `a\.b.c`: 2, strings.Repeat("a.", 127): 127} {
		if got := name(s).Labels(); got != want {
			t.Errorf("%s: got %d labels, want %d", s, got, want)
		}
	}
	for _, tt := range []struct {
		name, zone string
		want       bool
	}{
		{"web.shop.svc.cluster.local", "cluster.local", true},
		{"cluster.local", "cluster.local", true},
		{"CLUSTER.local", "cluster.LOCAL", true},
		{"cluster.local", ".", true},
		{".", ".", true},
		{".", "local", false},
		{"local", "cluster.local", false},
		{"notcluster.local", "cluster.local", false},
		{`x\007cluster.local`, "cluster.local", false}, // a byte inside a label is not a length
		{"cluster.local.example", "cluster.local", false},
	} {
		if got := name(tt.name).Within(name(tt.zone)); got != tt.want {
			t.Errorf("Within(%s, %s) = %v, want %v", tt.name, tt.zone, got, tt.want)
		}
	}
	labels := string(AppendLabel(AppendLabel(nil, "web"), "shop"))
	if got := name("svc").Join(labels); got != name("web.shop.svc") {
		t.Errorf("Join: got %s, want web.shop.svc.", got)
	}
}

// expand writes out a name of a message and returns its end. The header has
// twelve zero bytes, and the names follow it.
func TestExpand(t *testing.T) {
	long := strings.Repeat("\x01a", 126) // 252 bytes without the root
	for _, tt := range []struct {
		what string
		in   string // after the header
		off  int    // offset in in
		want string // "" if it is malformed
		next int
	}{
		{"root", "\x00", 0, "\x00", 1},
		{"written out", "\x01a\x02bc\x00X", 0, "\x01a\x02bc\x00", 6},
		{"spelling kept", "\x02Ab\x00", 0, "\x02Ab\x00", 4},
		{"pointer", "\x01a\x00\xC0\x0C", 3, "\x01a\x00", 5},
		{"label and pointer", "\x01a\x00\x01b\xC0\x0C", 3, "\x01b\x01a\x00", 7},
		{"pointer to a suffix", "\x01b\x01a\x00\xC0\x0E", 5, "\x01a\x00", 7},
		{"pointer to a pointer", "\x01a\x00\xC0\x0C\xC0\x0F", 5, "\x01a\x00", 7},
		{"pointer to the root", "\x01a\x00\xC0\x0E", 3, "\x00", 5},
		{"255 bytes", long + "\x01b\x00", 0, long + "\x01b\x00", 255},
		{"255 bytes by a pointer", long + "\x00\x01b\xC0\x0C", 253, "\x01b" + long + "\x00", 257},

		{"256 bytes", long + "\x02bc\x00", 0, "", 0},
		{"257 bytes by a pointer", long + "\x00\x01b\x01b\xC0\x0C", 253, "", 0},
		{"nothing", "", 0, "", 0},
		{"ends inside a label", "\x03ab", 0, "", 0},
		{"ends without the root", "\x02ab", 0, "", 0},
		{"ends inside a pointer", "\x01a\xC0", 0, "", 0},
		{"pointer to itself", "\xC0\x0C", 0, "", 0},
		{"pointer to its own name", "\x01a\xC0\x0C", 0, "", 0},
		{"pointer into its own name", "\x01a\x01b\xC0\x0E", 0, "", 0},
		{"pointer forward", "\xC0\x0E\x01a\x00", 0, "", 0},
		{"pointer forward, from one that went back", "\xC0\x0E\xC0\x0C", 2, "", 0},
		{"two that point to each other", "\xC0\x0E\xC0\x0C", 0, "", 0},
		{"pointer behind the end", "\xC0\xFF", 0, "", 0},
		{"pointer into the header", "\x01a\xC0\x02", 0, "", 0},
		{"pointer to the header's last byte", "\xC0\x0B", 0, "", 0},
		{"reserved label type 01", "\x41a\x00", 0, "", 0},
		{"reserved label type 10", "\x81a\x00", 0, "", 0},
	} {
		msg := append(make([]byte, HeaderLen), tt.in...)
		buf := []byte("before")
		out, next, err := expand(buf, msg, HeaderLen+tt.off)
		if tt.want == "" {
			if err == nil {
				t.Errorf("%s: got %q, want an error", tt.what, out)
			}
			if string(out) != "before" {
				t.Errorf("%s: after an error buf is %q, want it unchanged", tt.what, out)
			}
			continue
		}
		if err != nil || string(out) != "before"+tt.want || next != HeaderLen+tt.next {
			t.Errorf("%s: got %q, next at %d, %v; want %q, %d", tt.what, out, next-HeaderLen, err, tt.want, tt.next)
		}
		if skipped, ok := skip(msg, HeaderLen+tt.off); !ok || skipped != next {
			t.Errorf("%s: skipped to %d, %v; want %d", tt.what, skipped-HeaderLen, ok, tt.next)
		}
	}
}

// A chain of pointers, each to the one before, as long as a pointer can reach.
func TestExpandLongChain(t *testing.T) {
	msg := append(make([]byte, HeaderLen), 1, 'a', 0)
	last := HeaderLen
	for len(msg) < 1<<14 {
		at := len(msg)
		msg = append(msg, 0xC0|byte(last>>8), byte(last))
		last = at
	}
	out, next, err := expand(nil, msg, last)
	if err != nil || !bytes.Equal(out, []byte("\x01a\x00")) || next != len(msg) {
		t.Errorf("got %q, next at %d, %v; want a., %d", out, next, err, len(msg))
	}
}

// FuzzName checks that ParseName reads the result of String as the same name, and
// that the oracle reads the same name, apart from letter case.
//
// Intended differences: the oracle accepts the empty string, reads \256 as the
// byte 0, and may miscount backslashes after a character that is not ASCII; such
// names are not compared.
// See CVE-2026-2291 in docs/reference/advisories.md.
func FuzzName(f *testing.F) {
	for _, s := range []string{
		"", ".", "..", "a", "a.", ".a", "a..b", "Web.Shop.svc.cluster.local.", `a\.b.`, `a\\.b`, `\065\255.`, `\256.`, `\12.`,
		`\`, `a\`, "a b.", "\x00\xFF.", `\"(;@$.`, strings.Repeat("a.", 127), strings.Repeat("a.", 128),
		strings.Repeat("a", 63), strings.Repeat("a", 64) + ".b", `*._tcp.`, `a\.`, `a\\.`, `\46.`, `\046.`, `a.\`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err == nil {
			if again, err := ParseName(n.String()); err != nil || again != n {
				t.Fatalf("ParseName(%q) = %q, String %q; parsed again: got %q, %v", s, string(n), n, string(again), err)
			}
			if len(n) > MaxName || n[len(n)-1] != 0 || n.Labels() > MaxLabels {
				t.Fatalf("ParseName(%q) = %q, want a valid name", s, string(n))
			}
		}
		if strings.Contains(s, `\`) && strings.ContainsFunc(s, func(c rune) bool { return c > unicode.MaxASCII }) {
			return
		}
		b := make([]byte, len(s)+2)
		end, theirs := dns.PackDomainName(dns.Fqdn(s), b, 0, nil, false)
		if err != nil {
			if _, ok := dns.IsDomainName(s); ok && theirs == nil && end <= MaxName && s != "" && !strings.HasSuffix(err.Error(), "is not a byte") {
				t.Fatalf("ParseName(%q): got error %v, want %q as miekg/dns", s, err, b[:end])
			}
			return
		}
		if theirs != nil {
			t.Fatalf("ParseName(%q) = %q, want an error as of miekg/dns: %v", s, string(n), theirs)
		}
		for i, c := range b[:end] {
			b[i] = lower(c)
		}
		if string(b[:end]) != string(n) {
			t.Fatalf("ParseName(%q) = %q, want %q as miekg/dns", s, string(n), b[:end])
		}
	})
}

// copyLower handles eight bytes at a time. It must agree with lower for every
// byte at every offset in names of up to 25 bytes.
func TestCopyLower(t *testing.T) {
	for n := range 26 {
		from, to := make([]byte, n+1), make([]byte, n+1)
		for at := range n {
			for c := range 256 {
				for i := range from {
					from[i] = 'Z'
				}
				from[at], to[n] = byte(c), 7
				copyLower(to[:n], from)
				for i, got := range to[:n] {
					if got != lower(from[i]) {
						t.Fatalf("%d bytes, 0x%02x at %d: got byte %d 0x%02x", n, c, at, i, got)
					}
				}
				if to[n] != 7 {
					t.Fatalf("%d bytes, 0x%02x at %d: wrote behind the end", n, c, at)
				}
			}
		}
	}
}
