package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
)

// The text says what the kernel of a node does with the reply, if it may repeat replies.
func TestWriteKernel(t *testing.T) {
	for _, c := range []struct {
		kernel *dns.RepeatExplanation
		want   string
	}{
		{nil, ""},
		{&dns.RepeatExplanation{For: 2 * time.Minute}, "  The kernel repeats the reply until its data change, for 2m0s at most.\n"},
		{&dns.RepeatExplanation{Refused: "the directive log has to see each query"}, "  The kernel does not repeat the reply: the directive log has to see each query.\n"},
	} {
		var b strings.Builder
		Write(&b, Result{Query: Query{Name: "a.", Type: "A", Server: "dns://:53"}, Summary: "NODATA", Kernel: c.kernel})
		if want := "a. A from invalid IP at dns://:53\n  NODATA\n" + c.want; b.String() != want {
			t.Errorf("got %q, want %q", b.String(), want)
		}
	}
}

func TestDetails(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		object dns.Object
		want   string
	}{
		{dns.Object{}, ""},
		{dns.Object{ResourceVersion: "7"}, "resourceVersion 7"},
		{dns.Object{Unknown: "forbidden", File: "a.yaml:3"}, "resourceVersion unknown: forbidden, a.yaml:3"},
		{dns.Object{ResourceVersion: "7", Created: now.Add(-49 * time.Hour)}, "resourceVersion 7, age 2d (created 2025-12-31T02:04:05Z)"},
		{dns.Object{Created: now.Add(-47 * time.Hour)}, "age 47h (created 2025-12-31T04:04:05Z)"},
		{dns.Object{Created: now.Add(-119 * time.Minute)}, "age 119m (created 2026-01-02T01:05:05Z)"},
		{dns.Object{Created: now.Add(-119 * time.Second)}, "age 119s (created 2026-01-02T03:02:06Z)"},
		{dns.Object{Created: now.Add(time.Hour)}, "age 0s (created 2026-01-02T04:04:05Z)"}, // by another clock
	} {
		if got := Details(c.object, now); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.object, got, c.want)
		}
	}
}
