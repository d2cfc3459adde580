package diff

import (
	"os"
	"strings"
	"testing"
)

// Each intended difference is a row of the page, with its reason.
func TestIntendedInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range intendedDifferences() {
		found := false
		for line := range strings.Lines(string(page)) {
			found = found || strings.HasPrefix(line, "| "+d.row) && strings.Contains(line, d.reason)
		}
		if !found {
			t.Errorf("docs/reference/differences.md: want a row that begins with %q and has the reason %q", d.row, d.reason)
		}
	}
}
