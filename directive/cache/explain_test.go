package cache

import (
	"testing"
	"time"

	"github.com/seamark/seamark/wire"
)

func TestDescribeEntry(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		entry *entry
		want  string
	}{
		{&entry{kind: success, stored: 10 * s, expires: 70 * s}, "a positive answer has been stored for 30s, and expires in 30s"},
		{&entry{kind: denial, rcode: wire.NXDomain, stored: 10 * s, expires: 70 * s}, "a negative answer (NXDOMAIN) has been stored for 30s, and expires in 30s"},
		{&entry{kind: denial, stored: 39 * s, expires: 41 * s}, "a negative answer (NODATA) has been stored for 1s, and expires in 1s"},
		{&entry{kind: failure, stored: 40 * s, expires: 45 * s}, "a failure has been stored for 0s, and expires in 5s"},
		{&entry{kind: success, stored: 10 * s, expires: 30 * s, staleFor: time.Hour}, "a positive answer has been stored for 30s; it expired 10s ago, and may be served stale for 59m50s more"},
	} {
		if got := c.entry.describe(40 * s); got != c.want {
			t.Errorf("%v stored at %v: got %q, want %q", c.entry.kind, c.entry.stored, got, c.want)
		}
	}
}
