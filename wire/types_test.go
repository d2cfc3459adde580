package wire

import "testing"

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
