package secondary

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/wire"
)

// A zone keeps the server from being ready until the primaries were asked, for a limited time.
func TestReady(t *testing.T) {
	for name, tt := range map[string]struct {
		replies map[uint16][]string
		silent  bool // the primary
		wait    time.Duration
	}{
		"transferred": {firstReplies, false, time.Millisecond},
		"refused":     {map[uint16][]string{}, false, time.Millisecond},
		"silent":      {nil, true, firstAttempt},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Secondary{static: new(zoneSet)}
				if got := s.Unready(); got != "not started" {
					t.Errorf("before the start: got %q, want not started", got)
				}

				c, _, _ := startEmptyCopy(t, 0, nil, tt.replies, func(c *zoneCopy) {
					if !tt.silent {
						return
					}
					c.clients[0].dial = func(context.Context, string, string) (net.Conn, error) {
						client, server := net.Pipe()
						go func() { _, _ = io.Copy(io.Discard, server) }()
						return client, nil
					}
				})
				s.zones.Set(wire.Name(origin), &servedZone{copy: c})
				s.started.Store(true)
				if want := "no primary of example.org. has answered yet"; tt.silent && s.Unready() != want {
					t.Errorf("at the start: got %q, want %q", s.Unready(), want)
				}

				time.Sleep(tt.wait - time.Millisecond)
				if tt.silent && s.Ready() {
					t.Errorf("after %v: got ready, want not", tt.wait-time.Millisecond)
				}
				time.Sleep(time.Millisecond)
				if !s.Ready() {
					t.Errorf("after %v: got %q, want ready", tt.wait, s.Unready())
				}
			})
		})
	}
}
