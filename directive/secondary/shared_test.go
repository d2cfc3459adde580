package secondary

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// sending is a directive that sends every zone.
type sending struct{}

func (sending) Transfers(wire.Name) bool { return true }

// startBlocks starts the server blocks of one plan, each with a secondary of one zone with the same primary and some
// options. old is the plan before, or nil.
func startBlocks(
	t *testing.T, dial func(context.Context, string, string) (net.Conn, error), old *config.Start, options ...string,
) (handlers []*Secondary, plan *config.Start, err error) {
	t.Helper()
	plan = config.NewStart(t.Context(), old)
	var blocks []*config.Block
	for _, o := range options {
		text, sends := strings.CutSuffix(o, "transfer")
		if !strings.Contains(text, "from") {
			text = "transfer from 192.0.2.53\n" + text
		}
		b, err := chaintest.Setup("example.org {\nsecondary {\n"+text+"\n}\n}", chaintest.QuietLog(),
			config.Directive{Name: "secondary", Setup: Setup})
		if err != nil {
			t.Fatal(err)
		}
		b.Dial = dial
		if sends {
			b.Offer(sending{})
		}
		blocks, handlers = append(blocks, b), append(handlers, config.Find[*Secondary](b)...)
	}

	for _, b := range blocks {
		if err := b.Started(plan); err != nil {
			plan.Abort()
			return nil, nil, err
		}
	}
	for _, b := range blocks {
		b.Swapped()
	}
	plan.Commit()
	return handlers, plan, nil
}

// Server blocks that share the copy of a zone must agree about what it has once: its options are not those of the
// block that is the last one.
func TestSharedCopyOptions(t *testing.T) {
	for _, option := range []string{"key a.", "max_size 1MB", "follow 1s", "expire 1m"} {
		for _, options := range [][]string{{option, ""}, {"", option}, {option, option, ""}} {
			_, _, err := startBlocks(t, (&scriptedPrimary{t: t}).dial, nil, options...)
			if err == nil || !strings.Contains(err.Error(), "another server block has other options for the copy of example.org.") {
				t.Errorf("%q: got error %v, want one about other options", options, err)
			}
		}

		all, plan, err := startBlocks(t, (&scriptedPrimary{t: t}).dial, nil, option, option)
		if err != nil {
			t.Fatalf("%s twice: %v", option, err)
		}
		if one, two := all[0].zones.Get(origin).copy, all[1].zones.Get(origin).copy; one != two {
			t.Errorf("%s twice: got two copies, want one", option)
		}
		plan.Stop()
	}
}

// A copy that one of several server blocks sends is kept as one that is sent, whichever block that is, and until
// none sends it.
func TestSharedCopySent(t *testing.T) {
	var plan *config.Start
	for _, options := range [][]string{{"", ""}, {"transfer", ""}, {"", "transfer"}, {"transfer", "transfer"}, {"", ""}} {
		all, next, err := startBlocks(t, (&scriptedPrimary{t: t}).dial, plan, options...)
		if err != nil {
			t.Fatal(err)
		}
		plan = next
		if got, want := all[0].zones.Get(origin).copy.sends.Load(), strings.Join(options, "") != ""; got != want {
			t.Errorf("%q: got a copy that is sent: %v, want %v", options, got, want)
		}
	}
	plan.Stop()
}

// A reload that changes the primaries of a zone succeeds when these have sent it, so that it is served all the time. It
// does not wait long for primaries that are silent, however many server blocks there are.
func TestReloadAwaitsOtherPrimaries(t *testing.T) {
	for name, tt := range map[string]struct {
		replies map[uint16][]string
		pace    time.Duration
		served  bool
		most    time.Duration
	}{
		"transferred": {firstReplies, 10 * time.Millisecond, true, firstAttempt - time.Second},
		"refused":     {nil, 0, false, time.Second},
		"silent":      {firstReplies, time.Minute, false, firstAttempt + minAttempt},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &scriptedPrimary{t: t, replies: firstReplies}
				_, plan, err := startBlocks(t, p.dial, nil, "", "")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)

				p.set(tt.pace, tt.replies)
				began := time.Now()
				other := []string{"transfer from 192.0.2.54", "transfer from 192.0.2.55"}
				all, plan, err := startBlocks(t, p.dial, plan, other...)
				if took := time.Since(began); err != nil || took > tt.most {
					t.Errorf("got a reload of %v, %v, want at most %v", took, err, tt.most)
				}
				for i, s := range all {
					if served := s.zones.Get(origin).copy.current.Load() != nil; served != tt.served {
						t.Errorf("%s: got a zone that is served: %v, want %v", other[i], served, tt.served)
					}
				}
				plan.Stop()
				p.task.Wait()
			})
		})
	}
}

// Server blocks whose primaries answer are not replaced early because those of a block before them are silent.
func TestReloadAwaitsPrimariesAfterSilentOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, silent := &scriptedPrimary{t: t, replies: firstReplies}, &scriptedPrimary{t: t, replies: firstReplies, pace: time.Minute}
		_, plan, err := startBlocks(t, p.dial, nil, "", "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)

		p.set(time.Millisecond, firstReplies)
		all, plan, err := startBlocks(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "192.0.2.54:53" {
				return silent.dial(ctx, network, address)
			}
			return p.dial(ctx, network, address)
		}, plan, "transfer from 192.0.2.54", "transfer from 192.0.2.55")
		if err != nil {
			t.Fatal(err)
		}
		if all[1].zones.Get(origin).copy.current.Load() == nil {
			t.Error("got a zone that is not served, want it transferred")
		}
		plan.Stop()
		p.task.Wait()
		silent.task.Wait()
	})
}
