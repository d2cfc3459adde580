package zonefile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seamark/seamark/wire"
)

// $GENERATE is limited before it is expanded, however an entry is written, and whether or not it makes records. What
// precedes the first entry that is not permitted is read.
func TestGenerateLimited(t *testing.T) {
	const tooMany, hidden = "$GENERATE makes too many records", "want $GENERATE at the beginning of a line"
	for name, tt := range map[string]struct {
		text    string
		records int
		want    string // in the error
	}{
		"permitted":         {"$GENERATE 1-100 h$ A 10.0.0.$\n", 100, ""},
		"with steps":        {"$GENERATE 0-198/2 h$ A 10.0.0.$ ; comment (\n", 100, ""},
		"quoted":            {"$generate 1-9 h$ TXT \"a $ (b)\"\n", 9, ""},
		"text":              {"$GENERATE 1-9 h$ TXT \"a $ \\\" b\"\n", 9, ""},
		"several":           {"$GENERATE 1-50 h$ A 10.0.0.$\n$GENERATE 51-100 h$ A 10.0.0.$\n", 100, ""},
		"too many":          {"a A 10.0.0.1\n$GENERATE 1-101 h$ A 10.0.0.$\n", 1, "x:2: " + tooMany},
		"too many together": {"$GENERATE 1-51 h$ A 10.0.0.$\n$GENERATE 51-100 h$ A 10.0.0.$\n", 51, "x:2: " + tooMany},
		"long":              {"$GENERATE 1-40 h$ TXT " + strings.Repeat("a", 500) + "\n", 0, tooMany},
		"too long":          {"$GENERATE 1-2 h$ TXT" + strings.Repeat(" a", 600) + "\n", 0, "at most 1024 bytes"},
		"nothing":           {"$GENERATE 1-9 \n", 0, "want $GENERATE with a range"},
		"comment alone":     {"$GENERATE 1-9 ; a\n", 0, "want $GENERATE with a range"},
		"signs":             {"$GENERATE +0-+65535 a\n", 0, "want $GENERATE with a range"},
		"many":              {strings.Repeat("$GENERATE 1-1 \\a\n", 1001), 0, tooMany},
		"no records":        {strings.Repeat("$GENERATE 0-65535 \\a\n", 55000), 0, "x:1: " + tooMany},
		"carriage return":   {"$GEN\rERATE 0-65535 \\a\n", 0, hidden},
		"parentheses":       {"$GENER()ATE 0-65535 \\a\n", 0, hidden},
		"line end":          {"$GENER(\nATE 0-65535 \\a\n)", 0, hidden},
		"after parenthesis": {"(\n$GENERATE 0-1 a" + strings.Repeat(" a\n", 1000) + ")", 0, hidden},
		"in parentheses":    {"($GENERATE 0-65535 \\a)\n", 0, hidden},
		"range over lines":  {"$GENERATE (\n0-65535 \\a)\n", 0, "want $GENERATE with a range"},
		"open quote":        {"$GENERATE 0-1 a TXT \"\n\"" + strings.Repeat(" a", 1000) + "\n", 0, hidden},
		"after a comment":   {"a A 10.0.0.1 ; as $GENERATE would\n; $GENERATE 0-65535 h$ A 10.0.0.$\n", 1, ""},
		"after a quote":     {"a TXT \"\n;\" \n$GENERATE 0-65535 \\a\n", 1, tooMany},
		"mentioned":         {"a TXT \"as $GENERATE\"\nb TXT \"x\" ; not $GENERATE 0-65535 \\a\n", 2, ""},
		"wide":              {"$GENERATE 0-49 $$TTL " + strings.Repeat("${0,255}", 28) + "\n", 0, tooMany},
		"of 32 bits":        {"$GENERATE 4000000000-4000065535 \\a\n", 0, tooMany}, // where an int has them
		"directives":        {"$GENERATE 0-65535 $$ORIGIN a.\n", 0, tooMany},
	} {
		records := 0
		err := ReadText("x", tt.text, wire.Root, 60, 100, func(Record) error { records++; return nil })
		if got := fmt.Sprint(err); records != tt.records || (err == nil) != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %d records and error %v, want %d and %q", name, records, err, tt.records, tt.want)
		}
		if err != nil && !errors.As(err, new(*Error)) {
			t.Errorf("%s: got an error of type %T, want *Error", name, err)
		}
	}

	err := ReadText("x", strings.Repeat("$GENERATE 1-1 \\a\n", 1001), wire.Root, 60, 1<<20, func(Record) error { return nil })
	if err == nil || err.Error() != "x:1001: want at most 1000 $GENERATE entries" {
		t.Errorf("got error %v, want one about 1000 entries", err)
	}
}

// The text of a record expands no $GENERATE.
func TestRecordGeneratesNothing(t *testing.T) {
	for _, text := range []string{
		". A 10.0.0.1\n$GENERATE 0-65535 \\a\n", ". A 10.0.0.1\n(\n$GEN\rERATE 0-65535 \\a\n)", ". A (10.0.0.1\n)\n$generate 0-65535 \\a",
		"($GENERATE 0-65535 \\a)", "(\r$GENERATE 0-65535 \\a)",
	} {
		if _, err := ParseRecord(text, wire.Root, 60); err == nil || !strings.Contains(err.Error(), "$GENERATE") && err.Error() != "want a record, got a directive" {
			t.Errorf("%q: got error %v, want one about $GENERATE or a directive", text, err)
		}
	}
	if r, err := ParseRecord(`. TXT "as $GENERATE"`, wire.Root, 60); err != nil {
		t.Errorf("got %v, %v, want a TXT record", r, err)
	}
}
