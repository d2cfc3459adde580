package table

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// Long names of a Deployment and an image fit into 80 columns; programs get whole cells.
func TestLongCells(t *testing.T) {
	const name, image = "rke2-coredns-rke2-coredns", "registry.example.org/mirror/coredns/coredns:v1.14.2-build20261121"
	for _, columns := range []int{80, 0} {
		var out bytes.Buffer
		table := New(&out, columns)
		table.Row("SERVER", "READY", "SERVING", "QUERIES", "SERVFAIL", "ERRORS", "P99", "RESTARTS", "IMAGE")
		table.Row(name, "2/2", 2, "4821000", "0.02%", "0.00%", "7.81ms", 0, image)
		table.Flush()
		if whole := strings.Contains(out.String(), name) && strings.Contains(out.String(), image); whole != (columns == 0) {
			t.Errorf("%d columns: got whole names %t\n%s", columns, whole, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > 0 && n > columns {
				t.Errorf("got %d columns, want %d at most: %q", n, columns, line)
			}
		}
	}
}
