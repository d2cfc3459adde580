package wire

import (
	"testing"

	mdns "github.com/miekg/dns"
)

// Each mnemonic is parsed to the type whose String it is, and those are all that the library knows.
func TestTypeMnemonics(t *testing.T) {
	for name, n := range mdns.StringToType {
		if n == 0 || n == 65535 { // reserved: the library's names are none of RFC 1035
			continue
		}
		if got, ok := ParseType(name); uint16(got) != n || !ok || Type(n).String() != name {
			t.Errorf("ParseType(%q): got %d and %v, and String %q, want %d", name, got, ok, Type(n).String(), n)
		}
	}
}

func TestParseType(t *testing.T) {
	for s, want := range map[string]Type{"A": 1, "aaaa": 28, "HTTPS": 65, "TYPE65": 65, "type0": 0, "CAA": 257, "ANY": 255} {
		if got, ok := ParseType(s); got != want || !ok {
			t.Errorf("%s: got %d, %v, want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "B", "TYPE", "TYPE65536", "TYPE-1", "*"} {
		if got, ok := ParseType(s); ok {
			t.Errorf("ParseType(%q): got %d, want false", s, got)
		}
	}
}

func TestParseClass(t *testing.T) {
	for s, want := range map[string]Class{"IN": 1, "ch": 3, "HS": 4, "ANY": 255, "CLASS7": 7} {
		if got, ok := ParseClass(s); got != want || !ok {
			t.Errorf("%s: got %d, %v, want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "A", "CLASS", "CLASS65536"} {
		if got, ok := ParseClass(s); ok {
			t.Errorf("ParseClass(%q): got %d, want false", s, got)
		}
	}
}

func TestParseRCode(t *testing.T) {
	for _, c := range []struct {
		text string
		want RCode
		ok   bool
	}{
		{"NOERROR", NoError, true}, {"nxdomain", NXDomain, true}, {"YXRRSET", 7, true}, {"DSOTYPENI", 11, true},
		{"0", NoError, true}, {"15", 15, true},
		{"16", BadVers, true}, {"23", BadCookie, true}, {"24", 0, false}, {"-1", 0, false}, {"", 0, false},
		{"BADVERS", BadVers, true}, {"badsig", BadVers, true}, {"BADCOOKIE", BadCookie, true}, {"RCODE12", 0, false},
	} {
		if got, ok := ParseRCode(c.text); got != c.want || ok != c.ok {
			t.Errorf("ParseRCode(%q) = %d, %v; want %d, %v", c.text, got, ok, c.want, c.ok)
		}
	}
	for code, want := range map[RCode]string{0: "NOERROR", 8: "NXRRSET", 11: "DSOTYPENI", 12: "RCODE12", 16: "BADVERS", 4095: "RCODE4095"} {
		if got := code.String(); got != want {
			t.Errorf("RCode %d: got %s, want %s", code, got, want)
		}
	}
}
