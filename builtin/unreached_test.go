package builtin

import (
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
)

// unreached returns the warnings about directives that no query reaches, one a line, or "none".
func unreached(warnings error) string {
	var lines []string
	for _, w := range corefile.All(warnings) {
		if text := w.Error(); strings.Contains(text, "reached") {
			lines = append(lines, text)
		}
	}
	if lines == nil {
		return "none"
	}
	return strings.Join(lines, "\n")
}

// check and plan name the directives that no query can reach, and the one that answers in their place.
func TestUnreachedDirectives(t *testing.T) {
	groups := groupsOf(t, "testdata/unreached.txt")
	t.Chdir(folder(t))
	for _, g := range groups {
		text, want, _ := strings.Cut(g, "\n! ")
		want = strings.ReplaceAll(want, "\n! ", "\n")
		plan, err := planOf(text + "\n")
		if err != nil {
			t.Errorf("got error %v, want none\n%s", err, text)
			continue
		}
		if got := unreached(plan.Warnings()); got != want {
			t.Errorf("got\n%s\nwant\n%s\nof\n%s", got, want, text)
		}

		var described strings.Builder
		if err := plan.Describe(&described); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(want) {
			_, reason, _ := strings.Cut(strings.TrimSpace(line), ": never reached")
			if reason != "" && !strings.Contains(described.String(), "never reached"+reason) {
				t.Errorf("plan: got\n%s\nwant a line with never reached%s", described.String(), reason)
			}
		}
	}
}
