package dnssec

import (
	"strings"
	"testing"
	"time"
)

var testTime = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func TestNext(t *testing.T) {
	long := strings.Repeat("\x3f"+strings.Repeat("a", 63), 3)
	for _, c := range []struct {
		name string
		leaf bool
		want string
	}{
		{"\x01a\x00", true, "\x01\x00\x01a\x00"},
		{"\x00", true, "\x01\x00\x00"},
		{"\x01a\x01b\x00", false, "\x02a\x00\x01b\x00"},
		{"\x3f" + strings.Repeat("a", 63) + "\x00", false, "\x3f" + strings.Repeat("a", 62) + "b\x00"},
		{"\x3d" + strings.Repeat("a", 61) + long + "\x00", true, "\x3d" + strings.Repeat("a", 60) + "b" + long + "\x00"},
		{"\x3d" + strings.Repeat("a", 60) + "@" + long + "\x00", true, "\x3d" + strings.Repeat("a", 60) + "[" + long + "\x00"},
		{"\x3d" + strings.Repeat("a", 60) + "\xff" + long + "\x00", true, "\x3c" + strings.Repeat("a", 59) + "b" + long + "\x00"},
		{"\x3d" + strings.Repeat("\xff", 61) + long + "\x00", true, long + "\x00"},
	} {
		if got := next([]byte(c.name), c.leaf); string(got) != c.want {
			t.Errorf("next(%q, %v) = %q, want %q", c.name, c.leaf, got, c.want)
		}
	}
}

// Signatures that are used again outlast others, and bytes are bounded.
func TestStoreEvicts(t *testing.T) {
	s := newStore(20)
	p := &s.parts[0]
	add := func(key uint64, size int) {
		p.put(&signatures{key: key, rdata: []string{strings.Repeat("x", size)}, made: testTime})
	}
	add(1, 100)
	for i := range uint64(100) {
		if p.get(1, testTime) == nil {
			t.Fatalf("after %d others: the signature that is used is gone", i)
		}
		add(100+i, 100)
	}
	if n := s.entries(); n != 10 {
		t.Errorf("got %d entries in one part of a store for 20, want 10", n)
	}
	add(2, 5000)
	if p.bytes > 10*bytesPerEntry || p.get(2, testTime) == nil {
		t.Errorf("after a large entry: got %d bytes, want at most %d and the entry", p.bytes, 10*bytesPerEntry)
	}
	add(2, 10)
	if len(p.byKey) != p.queue.Len() {
		t.Errorf("got %d entries by key and %d in the queue, want as many", len(p.byKey), p.queue.Len())
	}
}

func TestStoreRenews(t *testing.T) {
	p := &newStore(20).parts[0]
	p.put(&signatures{key: 1, made: testTime})
	for after, want := range map[string]bool{"0s": true, "143h59m": true, "144h1m": false, "-2h": true, "-4h": false} {
		if got := p.get(1, testTime.Add(duration(after))) != nil; got != want {
			t.Errorf("%s after it was made: got a signature %v, want %v", after, got, want)
		}
	}
}
