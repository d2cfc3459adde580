package cache

import (
	"testing"
	"time"

	"github.com/seamark/seamark/wire"
)

func TestDescribeEntry(t *testing.T) {
	const s = time.Second
	stored := func(kind answerKind, rcode wire.RCode, at, life, staleFor time.Duration) *entry {
		e := makeEntry(nil, &key{}, kind, nil, nil)
		e.rcode = rcode
		e.setTimes(at, life, staleFor)
		return e
	}
	for _, c := range []struct {
		entry *entry
		want  string
	}{
		{stored(success, 0, 10*s, 60*s, 0), "a positive answer has been stored for 30s, and expires in 30s"},
		{stored(denial, wire.NXDomain, 10*s, 60*s, 0), "a negative answer (NXDOMAIN) has been stored for 30s, and expires in 30s"},
		{stored(denial, 0, 39*s, 2*s, 0), "a negative answer (NODATA) has been stored for 1s, and expires in 1s"},
		{stored(failure, wire.ServFail, 40*s, 5*s, 0), "a failure has been stored for 0s, and expires in 5s"},
		{stored(success, 0, 10*s, 20*s, time.Hour), "a positive answer has been stored for 30s; it expired 10s ago, and may be served stale for 59m50s more"},
	} {
		if got := c.entry.describe(40 * s); got != c.want {
			t.Errorf("%v stored at %v: got %q, want %q", c.entry.kind(), c.entry.stored(), got, c.want)
		}
	}
}
