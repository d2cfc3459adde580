package admin

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"
)

// A client that sends wrong tokens has half of the reviews, and never those of another client.
func TestReviewRatePerClient(t *testing.T) {
	v := newReviewer(new(connection), "", slog.New(slog.DiscardHandler))
	guesser, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::")
	now, tokens := time.Now(), 0
	admitted := func(client netip.Addr, n int) (count int) {
		for range n {
			tokens++
			if _, ok := v.known(reviewKey([]byte(fmt.Sprintf("%032d", tokens))), client, now); ok {
				count++
			}
		}
		return count
	}
	if n := admitted(guesser, 1000); n != reviewBurst/2 {
		t.Errorf("first tokens of one client: got %d reviews, want %d", n, reviewBurst/2)
	}
	if n := admitted(other, 3); n != 3 {
		t.Errorf("tokens of another client: got %d of 3 reviews", n)
	}
	total := 0
	for range 60 {
		now = now.Add(time.Second)
		total += admitted(guesser, 100)
		if n := admitted(other, 3); n != 3 {
			t.Fatalf("tokens of another client after %d: got %d of 3 reviews", tokens, n)
		}
	}
	if want := 60 * reviewRate / 2; total != want {
		t.Errorf("in a minute: got %d reviews of one client, want %d", total, want)
	}
	for i := range 3 * maxReviewRates {
		now = now.Add(time.Second)
		admitted(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)
	}
	if len(v.rates) > maxReviewRates {
		t.Errorf("got the rates of %d clients, want at most %d", len(v.rates), maxReviewRates)
	}
}
