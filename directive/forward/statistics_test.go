package forward

import (
	"fmt"
	"slices"
	"testing"

	mdns "github.com/miekg/dns"
)

// Sent returns the numbers of sent and of unanswered queries for each upstream,
// in the order of the Corefile.
func TestSentStatistics(t *testing.T) {
	gone, up := newFakeUpstream(t, answerWithAddress("1")), newFakeUpstream(t, answerWithAddress("2"))
	gone.stop()
	r := newHarness(t, "forward . "+gone.addr+" "+up.addr+" {\n policy sequential\n max_fails 0\n}\nforward stub.example "+up.addr)
	sent := func(i int) (all []string) {
		r.forward[i].Sent(func(upstream string, queries, unanswered uint64) {
			all = append(all, fmt.Sprint(upstream, " ", queries, " ", unanswered))
		})
		return all
	}
	if got, want := sent(0), []string{gone.addr + " 0 0", up.addr + " 0 0"}; !slices.Equal(got, want) {
		t.Errorf("before the first query: got %q, want %q", got, want)
	}
	r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.2")
	r.wantAnswer("a.stub.example.", mdns.TypeA, "192.0.2.2")
	if got, want := sent(0), []string{gone.addr + " 1 1", fmt.Sprintf("%s %d 0", up.addr, up.queryCount())}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := sent(1), sent(0)[1:]; !slices.Equal(got, want) {
		t.Errorf("the same upstream of another forward: got %q, want %q", got, want)
	}
	if got := r.metric(fmt.Sprintf("seamark_forward_failures_total{to=%q}", gone.addr)); got != "1" {
		t.Errorf("failures_total of the refusing upstream: got %q, want 1", got)
	}
}
