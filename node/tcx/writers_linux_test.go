package tcx

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A writer answers with a text that shows whether it is whole: its name's number and its own letter, repeated.
type writer struct {
	letter byte
	rand   *rand.Rand
}

func (w *writer) ServeDNS(q *dns.Query) dns.Verdict {
	unit := append(bytes.Clone(q.Name()[1:6]), w.letter)
	text := bytes.Repeat(unit, 1+w.rand.IntN(30))
	r := wire.AppendRecordHeader(nil, wire.OwnerIsQuestion, wire.TypeTXT, 30, len(text))
	q.Answer.Append(wire.Answers, append(r, text...), 1)
	q.AllowRepeat(dns.Repeat{For: 1 + time.Duration(w.rand.Int64N(int64(20*time.Millisecond)))})
	return dns.Done
}

func (*writer) Repetition() dns.Repetition { return dns.Repetition{} }

// writeReplies stores replies to few names until done is closed, in a file of Replies.
func writeReplies(t testing.TB, file *os.File, letter byte, done <-chan struct{}) {
	replies, err := OpenReplies(file, []netip.Addr{alias4}, 53, Times{})
	if err != nil {
		t.Error(err)
		return
	}
	defer replies.Close()
	w := &writer{letter, rand.New(rand.NewPCG(uint64(letter), 1))}
	chain := new(dns.Chain)
	chain.Add("writer", w)
	mux := dns.NewMux(nil, nil)
	_ = mux.Route(wire.Root, chain)
	mux.Repeat(replies.Keep, replies.Forget)
	var port dns.Port
	port.Swap(mux)

	q, lent := dns.NewQuery(nil), make([]byte, 0, 1<<16)
	for {
		select {
		case <-done:
			return
		default:
		}
		q.Peer, q.Local = ports(pod4, alias4, 40000)
		q.Reset(numbered(w.rand.IntN(writtenNames)), dns.UDP, time.Now())
		port.Serve(q, lent)
		q.Observe(time.Now())
	}
}

const writtenNames = 50

// checkWhole sends queries for a time, and returns the number of repeated replies of each letter. Each one is whole.
func (b *repeatBench) checkWhole(length time.Duration) (repeated [256]int) {
	b.t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); {
		packet := numbered(rand.IntN(writtenNames))
		got := b.send(over4.query(frame{payload: packet}))
		if got == nil {
			continue
		}
		message := got[14+20+8:]
		r, ok := wire.ReadRecord(message, len(packet))
		text := message[min(r.RData, len(message)):]
		letter := text[5]
		unit := append(bytes.Clone(packet[13:18]), letter)
		if !ok || r.Next != len(message) || !bytes.Equal(text, bytes.Repeat(unit, len(text)/6)) {
			b.t.Fatalf("reply to %q: got %q, want one that is whole", packet, message)
		}
		repeated[letter]++
	}
	return repeated
}

// Of several processes that would write a reply at the same time one does, and no other before the rest is over.
// A process that writes for longer than the rest does not publish what another one writes.
func TestRepeatClaim(t *testing.T) {
	const processes, rounds = 2, 300_000
	var r reply
	now := uint64(time.Hour)
	var claims, at [processes]atomic.Uint64
	var running sync.WaitGroup
	for p := range processes {
		running.Go(func() {
			for round := range uint64(rounds) {
				at[p].Store(round)
				for at[1-p].Load() < round { // both at the same time
					runtime.Gosched()
				}
				if r.claim(now + (round+1)*uint64(rest+2)) {
					claims[p].Add(1)
				}
			}
		})
	}
	running.Wait()
	if got := claims[0].Load() + claims[1].Load(); got != rounds {
		t.Errorf("claims of two processes: got %d, want %d, one in each round", got, rounds)
	}
	now += (rounds + 1) * uint64(rest+2)

	first := now + uint64(rest) + 1
	second := first + uint64(rest) + 1
	if !r.claim(first) || r.claim(second-1) || !r.claim(second) {
		t.Error("want a claim, none before the rest is over, and one afterwards")
	}
	r.write(&reply{}, query, query, first, second+uint64(time.Hour))
	if got := r.until.Load(); got != second {
		t.Errorf("after the write of the first claim: repeated until %d, want %d, the second claim", got, second)
	}
	r.write(&reply{}, query, query, second, second+1)
	if got := r.until.Load(); got != second+1 {
		t.Errorf("after the write of the second claim: repeated until %d, want %d", got, second+1)
	}
}

// While two processes store replies, as in a hand-over, each repeated reply is one of them as a whole.
func TestRepeatTwoWriters(t *testing.T) {
	b := newRepeatBench(t)
	file, err := fileOf(b.program.replies, "replies")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	done := make(chan struct{})
	ended := make(chan struct{}, 2)
	for _, letter := range []byte("ab") {
		go func() {
			writeReplies(t, file, letter, done)
			ended <- struct{}{}
		}()
	}
	var repeated [256]int
	for deadline := time.Now().Add(time.Minute); repeated['a'] == 0 || repeated['b'] == 0; {
		for letter, n := range b.checkWhole(2 * time.Second) {
			repeated[letter] += n
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: got %d and %d replies of the two, want some of each", repeated['a'], repeated['b'])
		}
	}
	close(done)
	<-ended
	<-ended
	t.Logf("%d and %d repeated", repeated['a'], repeated['b'])
}

// writerVariable makes the test's program a process that TestRepeatWriterKilled kills.
const writerVariable = "SEAMARK_TEST_WRITER"

// A process that is killed while it stores replies leaves none that is not whole, and the next one stores its own in
// all places.
func TestRepeatWriterKilled(t *testing.T) {
	if letter := os.Getenv(writerVariable); letter != "" {
		writeReplies(t, os.NewFile(3, "replies"), letter[0], nil)
		return
	}
	b := newRepeatBench(t)
	file, err := fileOf(b.program.replies, "replies")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for kill := range 10 {
		letter := byte('a' + kill)
		c := exec.Command(os.Args[0], "-test.run=^TestRepeatWriterKilled$")
		c.Env = append(os.Environ(), writerVariable+"="+string(letter))
		c.ExtraFiles = []*os.File{file}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); b.checkWhole(50 * time.Millisecond)[letter] == 0; {
			if time.Now().After(deadline) {
				t.Fatalf("process %d: got no reply of it after a minute", kill)
			}
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		b.checkWhole(10 * time.Millisecond)
	}
}
