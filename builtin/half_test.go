package builtin

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Half an address, one with a bracket too many, and one with a control character are an error or a
// warning in every option that takes an address.
func TestHalfAddressIsReported(t *testing.T) {
	groups := groupsOf(t, "testdata/accepted.txt")
	t.Chdir(folder(t))

	reported := 0
	for _, g := range groups {
		lines := strings.Split(g, "\n")
		for i, line := range lines {
			if words := strings.Fields(line); slices.Contains(notAddresses, words[0]) || strings.Contains(line, " PTR ") {
				continue
			}
			for _, half := range halfAddresses(line) {
				lines[i] = half
				plan, err := planOf(".:1053 {\n" + strings.Join(lines, "\n") + "\n}\n")
				switch {
				case err != nil || plan.Warnings() != nil:
					reported++
				default:
					t.Errorf("got neither error nor warning for %q\n%s", half, g)
				}
			}
			lines[i] = line
		}
	}
	if reported < 100 {
		t.Errorf("got %d lines with half an address, want 100 or more", reported)
	}
}

// notAddresses are options whose words that look like addresses are names, parts of an expression, or
// have no effect (upstream, of federation). default is checked where kubedns_config is expanded.
var notAddresses = []string{"expr", "upstream", "default"}

var literal = regexp.MustCompile(`\[[0-9a-f:]+(%\w+)?\]|\b\d+\.\d+\.\d+\.\d+\b|\b[0-9a-f]+(:[0-9a-f]*){2,}`)

// halfAddresses returns forms of a line in which one of its addresses is damaged.
func halfAddresses(line string) (halves []string) {
	for _, at := range literal.FindAllStringIndex(line, -1) {
		before, bare, after := line[:at[0]], strings.Trim(line[at[0]:at[1]], "[]"), line[at[1]:]
		for _, damaged := range []string{"[" + bare, bare + "]", "[[" + bare + "]]", "[" + bare + "]]", bare + "\x00", "\x01" + bare} {
			halves = append(halves, before+damaged+after)
		}
	}
	return halves
}
