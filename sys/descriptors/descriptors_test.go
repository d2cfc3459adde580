package descriptors

import "testing"

// A listener is one with n connections, of which some may be closed.
type listener struct {
	share    *Share
	n, spare int
	evicted  int
}

func (l *listener) evict() bool {
	if l.spare == 0 {
		return false
	}
	l.spare--
	l.n--
	l.evicted++
	l.share.Release()
	return true
}

func (l *listener) open(n int, spare bool) (opened int) {
	for range n {
		if !l.share.Acquire() {
			break
		}
		opened++
		l.n++
		if spare {
			l.spare++
		}
	}
	return opened
}

func join(b *Budget) *listener {
	l := new(listener)
	l.share = b.Join(l.evict)
	return l
}

// At the limit the listener that has most connections loses some, until all have as many.
func TestAcquireFromLargest(t *testing.T) {
	b := &Budget{limit: 100}
	dns, pages := join(b), join(b)
	if n := dns.open(500, true); n != 500 || dns.n != 100 {
		t.Errorf("one listener: got %d of 500 connections, %d at a time; want all, and 100", n, dns.n)
	}
	if n := pages.open(200, true); n != 200 || pages.n != 50 || dns.n != 50 {
		t.Errorf("another listener: got %d of 200 connections, and then %d beside %d; want all, and 50 beside 50",
			n, pages.n, dns.n)
	}
	if b.used != 100 {
		t.Errorf("got %d connections in all, want 100", b.used)
	}
}

// Connections that cannot be closed are not replaced, but a listener always has a few.
func TestAcquireNothingToSpare(t *testing.T) {
	b := &Budget{limit: 100}
	dns, pages := join(b), join(b)
	if n := dns.open(500, false); n != 100 {
		t.Errorf("got %d connections of a listener that can spare none, want 100", n)
	}
	if n := pages.open(500, false); n != fewest {
		t.Errorf("got %d connections of another listener, want %d", n, fewest)
	}
	dns.share.Release()
	if dns.open(1, false) != 0 {
		t.Error("a connection above the limit was replaced")
	}
	pages.share.Leave()
	if len(b.shares) != 1 {
		t.Errorf("got %d listeners after one has left, want 1", len(b.shares))
	}
}

// Without a budget there is no limit.
func TestAcquireNoBudget(t *testing.T) {
	var b *Budget
	s := b.Join(nil)
	defer s.Leave()
	for range 10 {
		if !s.Acquire() {
			t.Fatal("a connection without a budget is refused")
		}
	}
	s.Release()
}
