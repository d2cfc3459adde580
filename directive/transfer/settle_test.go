package transfer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A versionless handler has a zone that is not loaded.
type versionless struct{ zone.Transferable }

func (versionless) Version(wire.Name) zone.Version { return nil }

// A socketPipe is a pipe that is closed like a socket.
type socketPipe struct{ net.Conn }

func (p socketPipe) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = net.ErrClosed
	}
	return n, err
}

// A server gets one more message ten seconds after the last of several changes, and none after one.
func TestNotifyAgainAfterChanges(t *testing.T) {
	for name, c := range map[string]struct {
		changes []time.Duration // the times between them
		want    int             // messages
	}{
		"one change":          {[]time.Duration{0}, 1},
		"far from each other": {[]time.Duration{0, time.Minute}, 2},
		"two changes":         {[]time.Duration{0, time.Second}, 3},
		"many changes":        {[]time.Duration{0, time.Second, 9 * time.Second, time.Millisecond}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var got []time.Duration
				began := time.Now()
				dial := func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					go func() {
						buf := make([]byte, 512)
						for {
							n, err := theirs.Read(buf)
							if err != nil {
								return
							}
							mu.Lock()
							got = append(got, time.Since(began))
							mu.Unlock()
							buf[2] |= 0x80
							_, _ = theirs.Write(buf[:n])
						}
					}()
					return socketPipe{ours}, nil
				}
				to := &target{
					dial: dial, log: slog.New(slog.DiscardHandler), wake: follow.NewSignal(), pending: map[wire.Name]*attempt{},
				}
				ctx, cancel := context.WithCancel(t.Context())
				go to.run(ctx)

				last := time.Duration(0)
				for _, wait := range c.changes {
					time.Sleep(wait)
					last = time.Since(began)
					to.add(versionless{}, "\x07example\x00")
				}
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				to.mu.Lock()
				defer to.mu.Unlock()
				if len(got) != c.want || c.want > len(c.changes) && got[len(got)-1] < last+settleTime {
					t.Errorf("changes until %s: got messages at %v, want %d", last, got, c.want)
				}
				if len(to.pending) > 0 {
					t.Errorf("after an hour: got %d attempts, want none", len(to.pending))
				}
				cancel()
			})
		})
	}
}
