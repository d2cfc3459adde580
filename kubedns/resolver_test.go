package kubedns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A phonebook is who is asked for names.
type phonebook struct {
	mu    sync.Mutex
	addrs map[string]string // by name, with spaces between
	slow  map[string]time.Duration
	names []string // that were asked for
}

// set says what is known of a name, and how long it takes to tell.
func (b *phonebook) set(name, addrs string, slow time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addrs[name], b.slow[name] = addrs, slow
}

func (b *phonebook) forget(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.addrs, name)
}

// asked counts the look-ups of a name, or of all.
func (b *phonebook) asked(name string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.names {
		if name == "" || one == name {
			n++
		}
	}
	return n
}

func (b *phonebook) lookup(ctx context.Context, name string) (addrs []netip.Addr, err error) {
	b.mu.Lock()
	b.names = append(b.names, name)
	text, known := b.addrs[name]
	slow := b.slow[name]
	b.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !known {
		return nil, errors.New("no such host")
	}
	for addr := range strings.FieldsSeq(text) {
		addrs = append(addrs, netip.MustParseAddr(addr))
	}
	return addrs, nil
}

// A clocked is a Resolver at work in a synctest bubble.
type clocked struct {
	*watcher
	book    *phonebook
	configs chan Config
	begin   time.Time
}

// resolve runs a Resolver, and the test, in a bubble.
func resolve(t *testing.T, test func(c *clocked)) {
	synctest.Test(t, func(t *testing.T) {
		c := &clocked{
			watcher: &watcher{T: t}, begin: time.Now(), configs: make(chan Config),
			book: &phonebook{addrs: map[string]string{}, slow: map[string]time.Duration{}},
		}
		r := Resolver{Lookup: c.book.lookup, Log: c.logger()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx, c.configs, func(all []Forward) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.told = append(c.told, fmt.Sprint(time.Since(c.begin), all[:len(all)-1]))
			})
		}()
		test(c)
		cancel()
		<-done
	})
}

// set gives a Config of stub domains.
func (c *clocked) set(stubs string) {
	c.Helper()
	c.configs <- parsed(c.T, stubs, `[]`)
	synctest.Wait()
}

// expect is what has been told since the last time.
func (c *clocked) expect(want ...string) {
	c.Helper()
	synctest.Wait()
	c.mu.Lock()
	got := c.told
	c.told = nil
	c.mu.Unlock()
	if !slices.Equal(got, want) {
		c.Fatalf("told %q\nwant %q", got, want)
	}
}

// at waits until so long after the beginning.
func (c *clocked) at(d time.Duration) {
	time.Sleep(time.Until(c.begin.Add(d)))
	synctest.Wait()
}

// Names are looked up when a Config comes, and every half minute.
func TestResolver(t *testing.T) {
	resolve(t, func(c *clocked) {
		c.book.set("ns.foo.com", "10.0.0.2 10.0.0.1 10.0.0.2", 0)
		c.set(`{"a": ["1.1.1.1", "ns.foo.com", "2001:db8::1"]}`)
		c.expect("0s [{a [1.1.1.1:53 10.0.0.1:53 10.0.0.2:53 [2001:db8::1]:53]}]")
		c.book.set("ns.foo.com", "10.0.0.1 10.0.0.2", 0) // servers take turns
		c.at(59 * time.Second)
		c.expect()
		c.book.set("ns.foo.com", "::ffff:10.0.0.3 fe80::1%eth0 1.1.1.1", 0)
		c.at(60 * time.Second)
		c.expect("1m0s [{a [1.1.1.1:53 10.0.0.3:53 [2001:db8::1]:53]}]")
		if n := c.book.asked(""); n != 3 {
			t.Errorf("%d look-ups in a minute, want 3", n)
		}
		// Another Config: at once, and the same one is no news.
		c.book.set("ns.foo.com", "10.0.0.4", 0)
		c.at(70 * time.Second)
		c.set(`{"b": ["ns.foo.com"]}`)
		c.expect("1m10s [{b [10.0.0.4:53]}]")
		c.set(`{"b": ["ns.foo.com"]}`)
		c.expect()
		c.set(`{}`)
		c.expect("1m10s []")
		asked := c.book.asked("")
		c.at(200 * time.Second)
		if c.book.asked("") != asked {
			t.Error("names that nobody needs are looked up")
		}
	})
}

// A name that is not found keeps its addresses; its domain stays, also without any.
func TestResolverLost(t *testing.T) {
	resolve(t, func(c *clocked) {
		c.book.set("good", "10.0.0.1", 0)
		c.book.set("empty", "", 0)
		c.set(`{"a": ["good"], "b": ["lost"], "c": ["empty", "1.1.1.1"]}`)
		c.expect("0s [{a [10.0.0.1:53]} {b []} {c [1.1.1.1:53]}]")
		c.book.forget("good")
		c.at(5 * time.Minute)
		c.expect()
		for words, want := range map[string]string{
			"good":  "looking up its addresses: no such host: the 1 that it had stay",
			"lost":  "looking up its addresses: no such host: it is not asked until it has one",
			"empty": "looking up its addresses: it has no address: it is not asked until it has one",
		} {
			if lines := c.said("server " + words + ":"); len(lines) != 1 || !strings.Contains(lines[0], want) {
				t.Errorf("%s: %q", words, lines)
			}
		}
		// What is known of it is kept for another Config.
		c.set(`{"a": ["2.2.2.2", "good"]}`)
		c.expect("5m0s [{a [2.2.2.2:53 10.0.0.1:53]}]")
		c.book.set("good", "10.0.0.2", 0)
		c.at(330 * time.Second)
		c.expect("5m30s [{a [2.2.2.2:53 10.0.0.2:53]}]")
		if lines := c.said("server good: it has an address now"); len(lines) != 1 {
			t.Errorf("%q", lines)
		}
		c.book.forget("good")
		c.at(6 * time.Minute)
		if lines := c.said("server good: looking up"); len(lines) != 2 {
			t.Errorf("that it is lost again: %q", lines)
		}
		// Of a name that went nothing is kept.
		c.set(`{}`)
		c.expect("6m0s []")
		c.set(`{"a": ["good"]}`)
		c.expect("6m0s [{a []}]")
	})
}

// A name that takes its time keeps the others waiting for a second, and no longer;
// nobody waits for it twice.
func TestResolverSlow(t *testing.T) {
	resolve(t, func(c *clocked) {
		c.book.set("slow", "10.0.0.1", 3*time.Second)
		c.book.set("quick", "10.0.0.2", time.Millisecond)
		c.book.set("dead", "10.0.0.3", time.Hour)
		c.set(`{"a": ["quick"]}`)
		c.at(500 * time.Millisecond)
		c.expect("1ms [{a [10.0.0.2:53]}]")
		c.set(`{"a": ["quick"], "b": ["slow"]}`)
		c.at(time.Second)
		c.set(`{"a": ["quick"], "b": ["slow"], "c": ["dead"]}`)
		c.at(10 * time.Second)
		c.expect("2s [{a [10.0.0.2:53]} {b []} {c []}]", "3.5s [{a [10.0.0.2:53]} {b [10.0.0.1:53]} {c []}]")
		if lines := c.said("server dead: looking up its addresses: context deadline exceeded"); len(lines) != 1 {
			t.Errorf("the dead one: %q", c.log())
		}
		if n := c.book.asked("slow"); n != 1 {
			t.Errorf("the slow one was asked for %d times at the same time", n)
		}
		c.set(`{}`) // while nobody is asked for
		c.expect("10s []")
		c.set(`{"d": ["dead"]}`) // it ends while that is being looked up
	})
}

// Many names are looked up, not all at the same time.
func TestResolverMany(t *testing.T) {
	resolve(t, func(c *clocked) {
		var stubs, want []string
		for i := range 3 * atOnce {
			name := fmt.Sprintf("n%02d", i)
			c.book.set(name, "10.0.0.1", 100*time.Millisecond)
			stubs = append(stubs, fmt.Sprintf(`"a%02d": [%q]`, i, name))
			want = append(want, fmt.Sprintf("{a%02d [10.0.0.1:53]}", i))
		}
		c.set("{" + strings.Join(stubs, ",") + "}")
		if n := c.book.asked(""); n != atOnce {
			t.Errorf("%d at the same time", n)
		}
		c.at(time.Minute / 4)
		c.expect("300ms [" + strings.Join(want, " ") + "]")
	})
}
