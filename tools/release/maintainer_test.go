package main

import (
	"strings"
	"testing"
)

// The packages say where to report defects; they name no address that does not exist.
func TestMaintainer(t *testing.T) {
	if !strings.Contains(maintainer, "https://github.com/seamark/seamark/issues") || strings.ContainsAny(maintainer, "@<>") {
		t.Errorf("got the maintainer %q, want the page for reports and no mail address", maintainer)
	}
}
