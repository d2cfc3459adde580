package capture

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/sys/follow"
)

// An instance whose connections the first one closes at once pauses between two attempts.
func TestInstanceRefusedPauses(t *testing.T) {
	const refusals = 3
	i := &instance{
		name: instanceName(fmt.Sprintf("refused-%d", os.Getpid())), log: slog.New(slog.DiscardHandler),
		peers: map[net.Conn]bool{}, changed: make(chan struct{}),
	}
	first, err := net.Listen("unix", i.name)
	if err != nil {
		t.Fatal(err)
	}

	// It is outside of the bubble, where time stands still while a goroutine waits for the network.
	peer := follow.Go(func(ctx context.Context) {
		for n := range refusals {
			conn, err := first.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			if n == refusals-1 {
				_ = first.Close() // the instance gets the name next
			}
			_ = conn.Close()
		}

		// The end of its listener ends the instance.
		for ctx.Err() == nil {
			i.mu.Lock()
			own := i.listener
			i.mu.Unlock()
			if own != nil {
				_ = own.Close()
				return
			}
			runtime.Gosched()
		}
	})
	t.Cleanup(peer.Stop)

	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		i.run(t.Context(), nil)
		if got := time.Since(start); got != refusals*claimDelay {
			t.Errorf("%d connections that were closed at once: got pauses of %v, want %v", refusals, got, refusals*claimDelay)
		}
	})
}
