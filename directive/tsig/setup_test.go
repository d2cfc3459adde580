package tsig

import (
	"fmt"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/test/chaintest"
)

// A transfer is answered in full for either type, so one that may be unsigned gives the zone away.
func TestRequireOneTransferTypeWarns(t *testing.T) {
	for _, c := range []struct{ options, want string }{
		{"require AXFR", "[Corefile:3: tsig: require: AXFR without IXFR: an unsigned query of type IXFR gets the whole zone, too; write both]"},
		{"require A IXFR", "[Corefile:3: tsig: require: IXFR without AXFR: an unsigned query of type AXFR gets the whole zone, too; write both]"},
		{"require AXFR IXFR", "[]"},
		{"require AXFR\n require IXFR", "[]"},
		{"require A", "[]"},
		{"require all", "[]"},
		{"require none", "[]"},
		{"require_opcode QUERY", "[]"},
	} {
		b, err := chaintest.Setup("example.org {\n tsig {\n "+c.options+"\n }\n}", chaintest.QuietLog(),
			config.Directive{Name: "tsig", Setup: Setup})
		if err != nil {
			t.Fatalf("%s: %v", c.options, err)
		}
		if got := fmt.Sprint(b.Warnings()); got != c.want {
			t.Errorf("%s: got %s, want %s", c.options, got, c.want)
		}
	}
}
