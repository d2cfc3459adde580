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
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/race"
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

// writeReplies stores replies to few names until done is closed, in the files of Replies.
func writeReplies(t testing.TB, files []*os.File, letter byte, done <-chan struct{}) {
	replies, err := OpenReplies(files, []netip.Addr{alias4}, 53, Times{})
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

// Of several processes that would write a reply at the same time one does, and no other until it has, however long
// it takes: a process that was stopped goes on to write. After that the rest has to be over.
func TestRepeatClaim(t *testing.T) {
	const processes = 2
	rounds := race.Fewer(uint64(300_000))
	var r reply
	now := uint64(time.Hour)
	var claims, at, tried [processes]atomic.Uint64
	var running sync.WaitGroup
	for p := range processes {
		running.Go(func() {
			for round := range rounds {
				at[p].Store(round)
				for at[1-p].Load() < round { // both at the same time
					runtime.Gosched()
				}
				time := now + (round+1)*uint64(rest+2)
				won := r.claim(time)
				tried[p].Store(round + 1)
				if won {
					claims[p].Add(1)
					for tried[1-p].Load() < round+1 {
						runtime.Gosched()
					}
					r.write(&reply{}, query, query, time)
				}
			}
		})
	}
	running.Wait()
	if got := claims[0].Load() + claims[1].Load(); got != rounds {
		t.Errorf("claims of two processes: got %d, want %d, one in each round", got, rounds)
	}
	now += (rounds + 1) * uint64(rest+2)

	if r.claim(now - 3) {
		t.Error("got a claim before the rest is over")
	}
	if !r.claim(now) || r.claim(now+uint64(time.Hour)) {
		t.Error("want a claim, and none until it has ended")
	}
	r.expire(0)
	until := now + uint64(2*time.Hour)
	r.write(&reply{}, query, query, until)
	if got := r.until.Load(); got != until {
		t.Errorf("after the write: repeated until %d, want %d", got, until)
	}
	if r.claim(until+uint64(rest)) || !r.claim(until+uint64(rest)+1) {
		t.Error("want a claim after the rest")
	}
}

// While two processes store replies, as in a hand-over, each repeated reply is one of them as a whole.
func TestRepeatTwoWriters(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := newRepeatBench(t)
	files := b.files()
	done := make(chan struct{})
	ended := make(chan struct{}, 2)
	for _, letter := range []byte("ab") {
		go func() {
			writeReplies(t, files, letter, done)
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

// writerVariable makes the test's program a process that TestRepeatWriterKilled or TestRepeatWriterStopped controls.
const writerVariable = "SEAMARK_TEST_WRITER"

// startWriter starts a process that stores replies with a letter: TestRepeatWriterKilled in another program.
func startWriter(t *testing.T, files []*os.File, letter byte) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestRepeatWriterKilled$")
	c.Env = append(os.Environ(), writerVariable+"="+string(letter))
	c.ExtraFiles = files
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// waitForLetter waits until a reply with a letter is repeated.
func (b *repeatBench) waitForLetter(letter byte) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); b.checkWhole(50 * time.Millisecond)[letter] == 0; {
		if time.Now().After(deadline) {
			b.t.Fatalf("got no reply with the letter %c after a minute", letter)
		}
	}
}

// A process that is stopped at any instruction, for longer than another one rests, neither leaves replies that are not
// whole nor makes them when it continues: while the other one stores replies to the same names.
func TestRepeatWriterStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := newRepeatBench(t)
	files := b.files()
	stopped := startWriter(t, files, 'a')
	other := startWriter(t, files, 'b')
	defer func() {
		_ = stopped.Process.Kill()
		_ = other.Process.Kill()
		_ = stopped.Wait()
		_ = other.Wait()
	}()
	for range 15 {
		b.waitForLetter('a')
		_ = stopped.Process.Signal(syscall.SIGSTOP)
		b.waitForLetter('b')
		b.checkWhole(time.Duration(1+rand.IntN(2)) * rest)
		_ = stopped.Process.Signal(syscall.SIGCONT)
		b.checkWhole(20 * time.Millisecond)
	}
}

// A process that is killed while it stores replies leaves none that is not whole, and the next one stores its own, in
// all places.
func TestRepeatWriterKilled(t *testing.T) {
	if letter := os.Getenv(writerVariable); letter != "" {
		writeReplies(t, []*os.File{os.NewFile(3, "replies"), os.NewFile(4, "samples")}, letter[0], nil)
		return
	}
	b := newRepeatBench(t)
	files := b.files()
	for kill := range 10 {
		letter := byte('a' + kill)
		c := startWriter(t, files, letter)
		b.waitForLetter(letter)
		_ = c.Process.Kill()
		_ = c.Wait()
		b.checkWhole(10 * time.Millisecond)

		b.replies.replies[kill].until.Store(claimed) // as if it had been writing there, too
		if err := abandonClaims(files[0]); err != nil {
			t.Fatal(err)
		}
		for i := range b.replies.replies {
			if b.replies.replies[i].until.Load() == claimed {
				t.Errorf("place %d is claimed by a process that has ended", i)
			}
		}
	}
}
