package forward

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/test/chaintest"
)

// Each upstream has one socket or connection whatever the memory is, on which all queries wait, and it is closed
// when none does. With memory connections stay.
func TestUpstreamConnectionsMemory(t *testing.T) {
	for _, c := range []struct {
		option string
		one    int64 // the memory of a connection
	}{{"", socketMemory}, {"force_tcp", streamMemory}} {
		for _, full := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, full %t", c.option, full), func(t *testing.T) {
				connectionsMemory(t, c.option, c.one, full)
			})
		}
	}
}

func connectionsMemory(t *testing.T, option string, one int64, full bool) {
	const queries = 3 * maxStreamLoad
	release := make(chan struct{})
	up := newFakeUpstream(t, answerAfter(release, "1"))
	r := newHarness(t, fmt.Sprintf("forward . %s {\n %s\n max_fails 0\n expire 1h\n}", up.addr, option))
	b := memory.New(64<<20, memory.FromGroup)
	r.forward[0].set.memory = b
	filled := int64(0)
	if full {
		filled = b.Max(memory.Upstreams)
		b.Force(memory.Upstreams, filled)
	}

	var all sync.WaitGroup
	for i := range queries {
		all.Go(func() {
			if m, err := r.ask(query(fmt.Sprintf("n%d.example.", i), mdns.TypeA), dns.UDP); brief(m) != "192.0.2.1" {
				t.Errorf("query %d: got %s, error %v, want the address", i, brief(m), err)
			}
		})
	}
	chaintest.Eventually(t, "all queries wait", func() bool { return up.queryCount() >= queries })
	used := b.Part(memory.Upstreams).Used - filled
	if used < one || full && used > socketMemory+streamMemory { // a query may be repeated over TCP
		t.Errorf("%d queries wait: got %d bytes in use, want one connection, and without memory no more", queries, used)
	}
	close(release)
	all.Wait()

	if !full {
		if used := b.Part(memory.Upstreams).Used; used < one {
			t.Errorf("after the replies: got %d bytes in use, want those of a connection at least", used)
		}
		return
	}
	chaintest.Eventually(t, "the connection is closed", func() bool { return b.Part(memory.Upstreams).Used == filled })
	if b.Part(memory.Upstreams).Refused == 0 {
		t.Error("got no refused connection in the metrics")
	}
}

// A connection needs memory for what it has received of a large reply, not for its announced size, and gives it
// back. Without memory the reply is refused, which is no fault of the upstream.
func TestReplyBuffer(t *testing.T) {
	b := memory.New(64<<20, memory.FromGroup)
	used := func() int64 { return b.Part(memory.Upstreams).Used }
	u := &upstream{set: &upstreamSet{memory: b}}
	buf := newReplyBuffer(u)
	for filled := readBuffer; filled <= 32<<10; filled *= 2 {
		if err := buf.grow(0xFFFF + 2); err != nil {
			t.Fatal(err)
		}
		if len(buf.bytes) != 2*filled || used() != int64(2*filled-readBuffer) {
			t.Errorf("%d bytes received: got a buffer of %d and %d bytes in use, want twice as much", filled, len(buf.bytes), used())
		}
	}
	buf.shrink(readBuffer)
	if used() == 0 {
		t.Error("a buffer whose bytes do not fit into a small one: got a small one")
	}
	buf.shrink(readBuffer - 1)
	if len(buf.bytes) != readBuffer || used() != 0 {
		t.Errorf("small rest: got a buffer of %d and %d bytes in use, want %d and 0", len(buf.bytes), used(), readBuffer)
	}

	for _, size := range []int{0, 1, readBuffer, readBuffer + 1, 0xFFFF} {
		want := bytes.Repeat([]byte{1}, size)
		if got, err := u.readAll(bytes.NewReader(want), size); !bytes.Equal(got, want) || err != nil || used() != 0 {
			t.Errorf("%d bytes: got %d, error %v and %d in use, want all and 0", size, len(got), err, used())
		}
	}

	b.Force(memory.Upstreams, b.Max(memory.Upstreams))
	if err := buf.grow(0xFFFF + 2); !isLocal(err) {
		t.Errorf("without memory: got error %v, want one of this machine", err)
	}
	_, err := u.readAll(strings.NewReader(strings.Repeat("x", readBuffer+1)), 0xFFFF)
	if _, full := errors.AsType[*memory.Error](err); !full || used() != b.Max(memory.Upstreams) {
		t.Errorf("without memory: got error %v and %d bytes in use, want one of the memory and %d", err, used(), b.Max(memory.Upstreams))
	}
	if got, err := u.readAll(io.LimitReader(strings.NewReader("small"), 5), 5); string(got) != "small" || err != nil {
		t.Errorf("small reply without memory: got %q, error %v", got, err)
	}
}
