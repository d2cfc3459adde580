package memory

import "testing"

// A claim that succeeds another one has its bytes until that one is released; then its own count. If it
// is released first, nothing is left of it.
func TestClaimSucceed(t *testing.T) {
	b := New(1000<<20, FromMachine)
	used := func() int64 { return b.Part(Files).Used }
	claim := func(bytes int64) *Claim {
		c := b.Claim(Files)
		c.Set(bytes)
		return c
	}
	grow := func(c *Claim, bytes int64) {
		t.Helper()
		if err := c.Grow(bytes); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, want int64) {
		t.Helper()
		if got := used(); got != want {
			t.Errorf("%s: %d bytes are used, want %d", when, got, want)
		}
	}

	old, next, third := claim(40<<20), b.Claim(Files), b.Claim(Files)
	if !next.Succeed(old) || third.Succeed(old) {
		t.Error("want one claim that succeeds the old one")
	}
	grow(next, 30<<20)
	expect("less than the old one", 40<<20)
	grow(next, 50<<20)
	expect("more than the old one", 50<<20)
	old.Release()
	expect("after the old one", 50<<20)
	grow(next, 51<<20)
	next.Set(20 << 20)
	expect("later", 20<<20)

	if !third.Succeed(next) {
		t.Error("a claim that has succeeded another cannot be succeeded")
	}
	grow(third, 25<<20)
	third.Release()
	expect("after the new one was released first", 20<<20)
	fourth := b.Claim(Files)
	if !fourth.Succeed(next) {
		t.Error("no other claim succeeds the old one")
	}
	grow(fourth, 10<<20)
	next.Release()
	expect("with less than the old one had", 10<<20)
	fourth.Release()
	expect("in the end", 0)
}
