package hosts

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/directive/internal/hostsfile"
	"github.com/seamark/seamark/wire"
)

// parsed returns the addresses and names of a text, "address name", and its errors,
// "line: error".
func parsed(text string, domain wire.Name) (pairs, wrong []string) {
	hostsfile.Parse(text, domain, func(addr netip.Addr, name []byte) {
		pairs = append(pairs, addr.String()+" "+wire.Name(name).String())
	}, func(c hostsfile.Error) {
		wrong = append(wrong, fmt.Sprintf("%d: %s", c.Line, c.Text))
	})
	return pairs, wrong
}

func TestParse(t *testing.T) {
	label := strings.Repeat("a", 63)
	for _, c := range []struct {
		text         string
		pairs, wrong []string
	}{
		{"", nil, nil},
		{"\n\n  \n\t\r\n# comment\n#\n", nil, nil},
		{"10.0.0.1 a", []string{"10.0.0.1 a."}, nil},
		{"10.0.0.1 a b\tC.d.\n::1\t\tlocalhost # local\n", []string{"10.0.0.1 a.", "10.0.0.1 b.", "10.0.0.1 c.d.", "::1 localhost."}, nil},
		{"\xef\xbb\xbf10.0.0.1 a\r\n10.0.0.2 b\r\n", []string{"10.0.0.1 a.", "10.0.0.2 b."}, nil},
		{"  10.0.0.1 a#b c\n", []string{"10.0.0.1 a."}, nil},
		{"10.0.0.1 a\v\fb \r\r\n", []string{"10.0.0.1 a.", "10.0.0.1 b."}, nil},
		{"::ffff:10.0.0.1 a", []string{"10.0.0.1 a."}, nil},
		{"fe80::1%eth0 a\nfe80::2%1 b\nfe80::3% c\n10.0.0.1%a%b d", []string{"fe80::1 a.", "fe80::2 b.", "fe80::3 c.", "10.0.0.1 d."}, nil},
		{"%eth0 a\nfe80::1%eth0\nfe80::%1%eth0 b", []string{"fe80:: b."}, []string{
			`1: "%eth0" is not an IP address`, "2: no name after the address"}},
		{"10.0.0.1 _srv.a x-_y xn--bcher-kva bücher 0/26.a", []string{"10.0.0.1 _srv.a.", "10.0.0.1 x-_y.", "10.0.0.1 xn--bcher-kva.", `10.0.0.1 b\195\188cher.`, "10.0.0.1 0/26.a."}, nil},
		{"10.0.0.1 * *.a", []string{"10.0.0.1 *.", "10.0.0.1 *.a."}, nil},
		{"10.0.0.1\n10.0.0.2 # a\n", nil, []string{"1: no name after the address", "2: no name after the address"}},
		{"\n10.0.0.256 a\n10.0.0 b\n010.0.0.1 c\n:::1 d\na 10.0.0.1\n10.0.0.1 e", []string{"10.0.0.1 e."}, []string{
			`2: "10.0.0.256" is not an IP address`, `3: "10.0.0" is not an IP address`, `4: "010.0.0.1" is not an IP address`,
			`5: ":::1" is not an IP address`, `6: "a" is not an IP address`}},
		{"10.0.0.1/32 a\n10.0.0.1:53 a\n[::1] a", nil, []string{
			`1: "10.0.0.1/32" is not an IP address`, `2: "10.0.0.1:53" is not an IP address`, `3: "[::1]" is not an IP address`}},
		{"10.0.0.1 . .. a..b .a ok", []string{"10.0.0.1 ok."}, []string{
			`1: "." is not a name: a label is empty`, `1: ".." is not a name: a label is empty`,
			`1: "a..b" is not a name: a label is empty`, `1: ".a" is not a name: a label is empty`}},
		{"10.0.0.1 a.* *a a* **", nil, []string{
			`1: "a.*" is not a name: * can only be the whole first label`, `1: "*a" is not a name: * can only be the whole first label`,
			`1: "a*" is not a name: * can only be the whole first label`, `1: "**" is not a name: * can only be the whole first label`}},
		{"10.0.0.1 a\x00b a\\046b \x7f", nil, []string{
			`1: "a\x00b" is not a name: a byte is not allowed`, `1: "a\\046b" is not a name: a byte is not allowed`,
			`1: "\x7f" is not a name: a byte is not allowed`}},
		{"10.0.0.1 " + label + " " + label + "b", []string{"10.0.0.1 " + label + "."}, []string{
			`1: "` + label + `b" is not a name: a label has more than 63 bytes`}},
		// 255 bytes in wire form, and one more.
		{"10.0.0.1 " + strings.Repeat(label+".", 3) + label[2:], []string{"10.0.0.1 " + strings.Repeat(label+".", 3) + label[2:] + "."}, nil},
		{"10.0.0.1 " + strings.Repeat(label+".", 3) + label[1:], nil, []string{
			`1: "` + label + "." + label[:16] + `"... is not a name: more than 255 bytes`}},
		{"10.0.0.1 " + strings.Repeat("a ", hostsfile.MaxLine) + "\n10.0.0.2 b", []string{"10.0.0.2 b."}, []string{"1: longer than 1048576 bytes"}},
		{strings.Repeat("x", 100) + " a", nil, []string{`1: "` + strings.Repeat("x", 80) + `"... is not an IP address`}},
	} {
		pairs, wrong := parsed(c.text, "")
		if !slices.Equal(pairs, c.pairs) || !slices.Equal(wrong, c.wrong) {
			t.Errorf("%.100q\ngot  %.300q %.300q\nwant %.300q %.300q", c.text, pairs, wrong, c.pairs, c.wrong)
		}
	}
}

// The domain is appended to names of one label.
func TestParseDomain(t *testing.T) {
	domain, err := wire.ParseName("Example.org." + strings.Repeat("a.", 100))
	must(t, err)
	long := strings.Repeat("b", 63)
	suffix := domain.String()
	pairs, wrong := parsed("10.0.0.1 db a.b web\n10.0.0.2 dot. * *.c "+long+" d", domain)
	want := []string{"10.0.0.1 db." + suffix, "10.0.0.1 db.", "10.0.0.1 a.b.", "10.0.0.1 web." + suffix, "10.0.0.1 web.",
		"10.0.0.2 dot.", "10.0.0.2 *.", "10.0.0.2 *.c.", "10.0.0.2 " + long + ".", "10.0.0.2 d." + suffix, "10.0.0.2 d."}
	if !slices.Equal(pairs, want) {
		t.Errorf("got %q, want %q", pairs, want)
	}
	if want := []string{`2: "` + long + `" is too long with ` + suffix + " appended"}; !slices.Equal(wrong, want) {
		t.Errorf("got %q, want %q", wrong, want)
	}
}

// Every name that parse accepts is one that a query can have, and is in the index.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"10.0.0.1 a b.c # x\n::1 *.d\n", "\xef\xbb\xbffe80::1%1 a\r\n10.0.0.256 b", "10.0.0.1 a..b *.* . \x00\n\n1.1.1.1\v* _a.*",
		"0.0.0.0 " + strings.Repeat("x.", 127), "::ffff:1.2.3.4 a.b.c c b.c *.b.c\n1.2.3.4 a.b.c",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := newBuilder([]wire.Name{wire.Root}, true)
		last := 0
		hostsfile.Parse(text, "", func(addr netip.Addr, name []byte) {
			presentation := wire.Name(name).String()
			again, err := wire.ParseName(presentation)
			if err != nil || again != wire.Name(name) {
				t.Fatalf("name %q: parsed again it is %q, %v", name, again, err)
			}
			if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
				t.Fatalf("address %v: want one without a zone, not mapped into IPv6", addr)
			}
			b.add(addr, name)
		}, func(c hostsfile.Error) {
			if c.Line < last || c.Line > 1+strings.Count(text, "\n") || len(c.Text) > 500 {
				t.Fatalf("got error %q of line %d after one of line %d, want a line in this order that exists", c.Text, c.Line, last)
			}
			last = c.Line
		})
		x := b.index()
		hostsfile.Parse(text, "", func(addr netip.Addr, name []byte) {
			i, found := x.search(appendReversed(nil, name[:len(name)-1]))
			if found != present {
				t.Fatalf("search(%q): got %d, want %d", name, found, present)
			}
			addrs := x.addresses(x.names[i])
			slice := addr.AsSlice()
			all := addrs.v6
			if addr.Is4() {
				all = addrs.v4
			}
			if !slices.ContainsFunc(slices.Collect(slices.Chunk(all, len(slice))), func(a []byte) bool { return string(a) == string(slice) }) {
				t.Fatalf("addresses of %q: want %v among them", name, addr)
			}
			if hostsfile.IsWildcard(name) {
				return
			}
			if !slices.ContainsFunc(x.namesOf(addr), func(at uint32) bool { return string(x.appendName(nil, at)) == string(name) }) {
				t.Fatalf("names of %v: want %q among them", addr, name)
			}
		}, func(hostsfile.Error) {})
	})
}
